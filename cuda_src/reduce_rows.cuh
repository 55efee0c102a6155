// Many rows of any length, each by a warp or some warps of a block: one launch, no workspace.
#pragma once
#include "block.cuh"
#include "row_leaf.cuh"

// Rows of any length, W warps each, several rows a block, which waits for what comes before the launch when it knows what to
// load.
template <class Op, class Rows, int Warps, int W>
__device__ __forceinline__ void reduce_rows(const ShapedProblem& problem)
{
    constexpr int groups = Warps / W;
    __shared__ typename Op::Accumulator slots[2][Warps];
    launch_dependents();
    prefetch_rows<Op, Rows, Warps>(problem, uint64(blockIdx.x) * groups, groups, 0, true);
    if (!is_same<typename Op::Pivot, Unused> || problem.device_length != nullptr) wait_for_prerequisites();
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes, group = warp / W, member = warp % W;
    const uint64 row = uint64(blockIdx.x) * groups + group;
    const ShapedSource<Op, typename Rows::Kept> source(problem, min(row, problem.rows - 1));
    const Placed placed = placed_in<Op, Rows>(problem, source.row.length);
    const uint32 tiles = tile_count<Op, W>(source);  // the same for every row of the block: barriers may be inside
    WarpCounter<Op> counter;
    wait_for_prerequisites();
#pragma unroll 1
    for (uint32 i = 0; i < tiles; ++i) {
        auto value = row_leaf_fold<Op, Rows>(source, uint64(i) * W + member, placed, lane);
        if constexpr (W > 1) {
            if (lane == 0) slots[i & 1u][warp] = value;
            __syncthreads();
            if (member == 0) value = warp_fold<Op, W>(slots[i & 1u][group * W + lane % W]);
        }
        if (member == 0) counter.push(value, lane);
    }
    if (member != 0 || row >= problem.rows) return;
    const auto root = counter.result();
    if (lane == 0) store_result<Op>(problem, source.row, row, root);
}

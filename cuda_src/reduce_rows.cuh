// Many rows of any length, each by a warp or some warps of a block: one launch, no workspace.
#pragma once
#include "block.cuh"
#include "row_leaf.cuh"

// Rows of any length, W warps each, several rows a block, which waits for what comes before the launch when it knows what to
// load. W is a power of two or, where a row has no more leaves than warps, any number.
template <class Op, class Rows, int Warps, int W, bool InOneTurn>
__device__ __forceinline__ void reduce_rows(const ShapedProblem& problem)
{
    static_assert(InOneTurn || (W & (W - 1)) == 0, "each turn folds a subtree");
    constexpr int groups = Warps / W;
    __shared__ typename Op::Accumulator slots[InOneTurn ? 1 : 2][Warps];
    const bool is_late = InOneTurn && is_short_grid<Warps>(few_turns_of_tiles);
    if (!is_late) launch_dependents();
    prefetch_rows<Op, Rows, Warps>(problem, uint64(blockIdx.x) * groups, groups, 0, !is_late);
    if (!is_same<typename Op::Pivot, Unused> || problem.device_length != nullptr) wait_for_prerequisites();
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes, group = warp / W, member = warp % W;
    const uint64 row = uint64(blockIdx.x) * groups + group;
    const ShapedSource<Op, typename Rows::Kept> source(problem, min(row, problem.rows - 1));
    const Placed placed = placed_in<Op, Rows>(problem, source.row.length);
    const uint32 tiles = InOneTurn ? 1 : tile_count<Op, W>(source);  // of every row of the block: barriers may be inside
    typename Op::Accumulator root;
    WarpCounter<Op> counter;
    wait_for_prerequisites();
#pragma unroll 1
    for (uint32 i = 0; i < tiles; ++i) {
        root = row_leaf_fold<Op, Rows>(source, uint64(i) * W + member, placed, lane);
        if (is_late) launch_dependents();
        if constexpr (W > 1) {
            if (lane == 0) slots[i % (InOneTurn ? 1 : 2)][warp] = root;
            __syncthreads();
            if (member == 0) root = fold_warps<Op, W>(&slots[i % (InOneTurn ? 1 : 2)][group * W], lane);
        }
        if (!InOneTurn && member == 0) counter.push(root, lane);
    }
    if (member != 0 || row >= problem.rows) return;
    if constexpr (!InOneTurn) root = counter.result();
    if (lane == 0) store_result<Op>(problem, source.row, row, root);
}

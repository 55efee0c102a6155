// Few long rows: each is cut into tiles, one a block, whose partials another block folds as they come.
#pragma once
#include "grid.cuh"
#include "reduce_rows.cuh"

// One leaf of a row, by one warp that waits for the launch's prerequisites as late as it can.
template <class Op, class Rows, class S>
__device__ __forceinline__ typename Op::Accumulator late_leaf_fold(const S& source, uint64 leaf, uint32 lane)
{
    if constexpr (Rows::can_be_whole) return leaf_fold<Op>(source, leaf, lane);
    wait_for_prerequisites();
    return row_leaf_fold<Op, Rows>(source, leaf, false, lane);
}

// The grid's last blocks fold, as many for each row. They start when all others have started, and nobody else waits for them.
template <class Op, class Rows, int Warps> __device__ __forceinline__ void reduce_batch(const ShapedProblem& problem)
{
    __shared__ BlockSlots<Op, Warps> shared;
    launch_dependents();
    const uint32 tiles = uint32(problem.count), folding = uint32(problem.rows) * tiles;
    auto* slots = grid_slots<Op>(problem.workspace);
    if (blockIdx.x < folding) {
        const uint32 row = blockIdx.x / tiles, tile = blockIdx.x - row * tiles;
        prefetch_rows<Op, Rows, Warps>(problem, row, 1, uint64(tile) * Warps * leaf_bytes);
        if (!is_same<typename Op::Pivot, Unused> || problem.device_length != nullptr) wait_for_prerequisites();
        const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;
        const ShapedSource<Op, typename Rows::Kept> source(problem, row);
        auto value = late_leaf_fold<Op, Rows>(source, uint64(tile) * Warps + warp, lane);
        value = block_fold<Op, Warps>(value, shared, 0);
        if (threadIdx.x == 0) slots[blockIdx.x].publish(value);
    } else {
        wait_for_prerequisites();
        const uint32 folders = gridDim.x / uint32(problem.rows) - tiles, number = blockIdx.x - folding, row = number / folders;
        typename Op::Accumulator root;
        if (!grid_fold_by<Op, Warps>(number - row * folders, folders, slots + uint64(row) * tiles, tiles, shared, root)) return;
        const ShapedSource<Op, typename Rows::Kept> source(problem, row);
        if (threadIdx.x == 0) store_result<Op>(problem, source.row, row, root);
    }
}

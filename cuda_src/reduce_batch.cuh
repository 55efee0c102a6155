// Few long rows: each is cut into tiles, one a block, whose partials another block folds as they come.
#pragma once
#include "grid.cuh"
#include "reduce_rows.cuh"

// The grid's last blocks fold, one a row. They start when all others have started, and nobody waits for them.
template <class Op, class Rows, int Warps> __device__ __forceinline__ void reduce_batch(const ShapedProblem& problem)
{
    __shared__ BlockSlots<Op, Warps> shared;
    launch_dependents();
    const uint32 tiles = uint32(problem.count), folding = gridDim.x - uint32(problem.rows);
    const uint32 row = blockIdx.x < folding ? blockIdx.x / tiles : blockIdx.x - folding, tile = blockIdx.x % tiles;
    auto* slots = grid_slots<Op>(problem.workspace) + uint64(row) * tiles;
    if (blockIdx.x < folding) {
        prefetch_rows<Op, Rows, Warps>(problem, row, 1, uint64(tile) * Warps * leaf_bytes);
        wait_for_prerequisites();
        const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;
        const ShapedSource<Op, typename Rows::Kept> source(problem, row);
        const bool whole = Rows::whole(problem, source.row.length * sizeof(typename Op::Input));
        auto value = row_leaf_fold<Op, Rows>(source, uint64(tile) * Warps + warp, whole, lane);
        value = block_fold<Op, Warps>(value, shared, 0);
        if (threadIdx.x == 0) slots[tile].publish(value);
    } else {
        wait_for_prerequisites();
        const auto value = grid_fold<Op, Warps>(slots, tiles, shared, 0);
        const ShapedSource<Op, typename Rows::Kept> source(problem, row);
        if (threadIdx.x == 0) store_result<Op>(problem, source.row, row, value);
    }
}

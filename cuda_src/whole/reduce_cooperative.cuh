// Strategy `cooperative`: as many blocks as are resident at once stride over the tiles and meet at a grid barrier, after which
// block 0 folds the partials.
#pragma once
#include "tree/grid.cuh"

template <class Op, int Warps> __device__ __forceinline__ void reduce_cooperative(const Problem& problem)
{
    __shared__ BlockSlots<Op, Warps> shared;
    const auto source = whole_array<Op>(problem);
    const uint32 tiles = tile_count<Op, Warps>(source);
    auto* slots = grid_slots<Op>(problem.workspace);

    uint32 turn = 0;
    for (uint32 tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++turn) {
        const auto value = block_fold_tile<Op, Warps>(source, tile, shared, turn);
        if (threadIdx.x == 0) slots[tile].publish(value);
    }
    grid_barrier(reinterpret_cast<GridHeader*>(problem.workspace));
    if (blockIdx.x != 0) return;
    const auto root = grid_fold<Op, Warps>(slots, {tiles}, shared, turn);
    if (threadIdx.x == 0) store_result<Op>(problem, source.row, 0, root);
}

// Strategy `cooperative`: as many blocks as fit at once walk over the tiles, meet at a grid barrier, block 0 folds.
#pragma once
#include "grid.cuh"

template <class Op, int Warps>
__device__ __forceinline__ void reduce_cooperative(const void* elements, void* result, uint64 length, void* workspace)
{
    __shared__ BlockSlots<Op, Warps> shared;
    const Source<typename Op::Input> source{static_cast<const char*>(elements), length};
    const uint32 tiles = uint32((source.leaf_count() + Warps - 1) / Warps);
    auto* slots = grid_slots<Op>(workspace);

    uint32 turn = 0;
    for (uint32 tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++turn) {
        const auto value = block_fold_tile<Op, Warps>(source, tile, shared, turn);
        if (threadIdx.x == 0) slots[tile].publish(value);
    }
    grid_barrier(static_cast<GridHeader*>(workspace));
    if (blockIdx.x != 0) return;
    const auto value = grid_fold<Op, Warps>(slots, tiles, shared, turn);
    store_result<Op>(result, value, length);
}

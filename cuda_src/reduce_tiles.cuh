// Strategy `tiles`: one tile a block, clusters of 1 to 16 blocks, and the last cluster in folds the partials.
#pragma once
#include "grid.cuh"

template <class Op, int Warps, int Blocks>
__device__ __forceinline__ void reduce_tiles(const void* elements, void* result, uint64 length, void* workspace)
{
    __shared__ BlockSlots<Op, Warps> shared;
    cluster_enter<Blocks>();
    launch_dependents();
    wait_for_prerequisites();

    const Source<typename Op::Input> source{static_cast<const char*>(elements), length};
    auto value = block_fold_tile<Op, Warps>(source, blockIdx.x, shared, 0);
    value = cluster_fold<Op, Blocks>(value);
    if (rank_in_cluster<Blocks>() != 0) return;

    auto* partials = grid_partials<Op>(workspace);
    const uint32 clusters = gridDim.x / Blocks;
    if (clusters > 1) {
        if (threadIdx.x == 0) partials[blockIdx.x / Blocks] = value;
        if (!grid_is_last(static_cast<GridHeader*>(workspace), clusters)) return;
        value = grid_fold<Op, Warps>(partials, clusters, shared, 1);
    }
    store_result<Op>(result, value, length);
}

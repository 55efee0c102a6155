// Strategies `block` and `cluster`: one cluster of 1 to 16 blocks folds everything; no workspace.
#pragma once
#include "grid.cuh"

// Each block folds `tiles_per_block` consecutive tiles, a power of two; the blocks meet in rank 0's shared memory.
template <class Op, int Warps, int Blocks>
__device__ __forceinline__ void reduce_cluster(const void* elements, void* result, uint64 length, uint32 tiles_per_block)
{
    __shared__ BlockSlots<Op, Warps> shared;
    cluster_enter<Blocks>();
    launch_dependents();
    wait_for_prerequisites();

    const Source<typename Op::Input> source{static_cast<const char*>(elements), length};
    const uint32 rank = rank_in_cluster<Blocks>();
    auto value = block_fold_tiles<Op, Warps>(source, uint64(rank) * tiles_per_block, tiles_per_block, shared);
    value = cluster_fold<Op, Blocks>(value);
    if (rank == 0) store_result<Op>(result, value, length);
}

// Strategies `block` and `cluster`: one cluster of 1 to 16 blocks folds everything; no workspace.
#pragma once
#include "grid.cuh"

// Each block folds `count` consecutive tiles, a power of two; the blocks' results are folded in rank 0's shared memory.
template <class Op, int Warps, int Blocks> __device__ __forceinline__ void reduce_cluster(const Problem& problem)
{
    __shared__ BlockSlots<Op, Warps> shared;
    cluster_enter<Blocks>();
    launch_dependents();

    const auto source = whole_array<Op>(problem);
    const uint32 rank = rank_in_cluster<Blocks>(), count = uint32(problem.count);
    auto value = block_fold_tiles<Op, Warps>(source, uint64(rank) * count, count, shared);
    value = cluster_fold<Op, Blocks>(value);
    if (rank == 0 && threadIdx.x == 0) store_result<Op>(problem, source.row, 0, value);
}

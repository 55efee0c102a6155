// Folds across the blocks of a thread-block cluster, through distributed shared memory.
#pragma once
#include "block.cuh"

// Announces that this block runs: the others may write to its shared memory from now on. Every thread calls it once, at entry.
template <int Blocks> __device__ __forceinline__ void cluster_enter()
{
#if __CUDA_ARCH__ >= 900
    if constexpr (Blocks > 1) cluster_arrive_relaxed();
#endif
}

template <int Blocks> __device__ __forceinline__ uint32 rank_in_cluster()
{
#if __CUDA_ARCH__ >= 900
    if constexpr (Blocks > 1) return cluster_rank();
#endif
    return 0;
}

// The cluster level: folds one value a block, held by its thread 0, balanced over the rank. Every thread of every block calls
// it once, after cluster_enter; all lanes of warp 0 of rank 0 hold the result, all other threads nothing useful. Only rank 0's
// shared memory is written from outside, and rank 0 waits for that: the other blocks may exit at once.
template <class Op, int Blocks>
__device__ __forceinline__ typename Op::Accumulator cluster_fold(typename Op::Accumulator value)
{
    if constexpr (Blocks == 1) return value;
#if __CUDA_ARCH__ >= 900
    __shared__ typename Op::Accumulator slots[Blocks];
    const uint32 rank = cluster_rank();
    cluster_wait();  // every block of the cluster has started
    if (threadIdx.x == 0) store_to_rank(&slots[rank], 0, value);
    cluster_arrive();
    if (rank == 0) {
        cluster_wait();
        if (all_agree(threadIdx.x < lanes)) value = warp_fold<Op, Blocks>(slots[threadIdx.x % Blocks]);
    }
#endif
    return value;
}

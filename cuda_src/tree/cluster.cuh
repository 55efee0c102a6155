// Folds across the blocks of a thread-block cluster, through distributed shared memory.
#pragma once
#include "tree/block.cuh"
#include "base/ptx_cluster.cuh"

constexpr uint32 most_in_cluster = 16;

// A place for each block's value, in rank 0, and the barrier that counts the bytes of those that come from the others.
template <class Op, int Blocks> struct ClusterSlots {
    uint64 barrier;
    typename Op::Accumulator slots[Blocks];
};

// Announces that this block runs and that its barrier counts the bytes that come from the others to rank 0: they may write to its
// shared memory from now on. Every thread calls it once, at entry.
__device__ __forceinline__ void cluster_enter(uint64& barrier, uint32 bytes)
{
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) expect_bytes(&barrier, bytes);
    __syncwarp();
    cluster_arrive();
#endif
}

// Waits in rank 0 until all bytes have come. All 32 lanes of a warp call it.
__device__ __forceinline__ void cluster_await(uint64& barrier)
{
#if __CUDA_ARCH__ >= 900
    while (!__all_sync(0xffffffffu, have_arrived(&barrier))) {}
#endif
}

// The same where each block brings one value. Here and below the cluster has `blocks` blocks, at most `Blocks`.
template <class Op, int Blocks>
__device__ __forceinline__ void cluster_enter(ClusterSlots<Op, Blocks>& shared, uint32 blocks = Blocks)
{
    if (blocks > 1) cluster_enter(shared.barrier, (blocks - 1) * sizeof(typename Op::Accumulator));
}

// Brings all threads of a cluster together; what they stored before, to any of its blocks, all see afterwards.
__device__ __forceinline__ void cluster_synchronise()
{
#if __CUDA_ARCH__ >= 900
    cluster_arrive();
    cluster_wait();
#endif
}

__device__ __forceinline__ uint32 rank_in_cluster(uint32 blocks)
{
#if __CUDA_ARCH__ >= 900
    if (blocks > 1) return cluster_rank();
#endif
    return 0;
}

// The cluster level: folds one value a block, held by all lanes of its warp 0, balanced over the rank. Every thread of every
// block calls it once, after cluster_enter; all lanes of warp 0 of rank 0 hold the result, all other threads nothing useful. Only
// rank 0's shared memory is written from outside, and its warp 0 waits for that: all others may exit at once. Stores that count
// their bytes where they arrive take one way; ordinary ones and a barrier of the cluster, three.
template <class Op, int Blocks>
__device__ __forceinline__ typename Op::Accumulator
cluster_fold(typename Op::Accumulator value, ClusterSlots<Op, Blocks>& shared, uint32 blocks = Blocks)
{
#if __CUDA_ARCH__ >= 900
    if (blocks == 1 || !all_agree(threadIdx.x < lanes)) return value;
    const uint32 rank = cluster_rank(), from = threadIdx.x % Blocks;
    if (rank != 0) {
        cluster_wait();  // every block of the cluster has started
        if (threadIdx.x == 0) store_to_rank(&shared.slots[rank], 0, value, &shared.barrier);
    } else {
        cluster_await(shared.barrier);
        value = warp_fold<Op, Blocks>(from == 0 ? value : from < blocks ? shared.slots[from] : Op::identity());
    }
#endif
    return value;
}

// The same with the result in warp 0 of every block, to each of which all others bring their values, so that it need not be sent
// back. A block's shared memory is written from outside until its warp 0 has the result.
template <class Op, int Blocks>
__device__ __forceinline__ typename Op::Accumulator
cluster_fold_in_all(typename Op::Accumulator value, ClusterSlots<Op, Blocks>& shared, uint32 blocks)
{
#if __CUDA_ARCH__ >= 900
    if (blocks == 1 || !all_agree(threadIdx.x < lanes)) return value;
    const uint32 rank = cluster_rank(), lane = threadIdx.x, from = lane % Blocks;
    cluster_wait();  // every block of the cluster has started
    if (lane < blocks && lane != rank) store_to_rank(&shared.slots[rank], lane, value, &shared.barrier);
    cluster_await(shared.barrier);
    value = warp_fold<Op, Blocks>(from == rank ? value : from < blocks ? shared.slots[from] : Op::identity());
#endif
    return value;
}

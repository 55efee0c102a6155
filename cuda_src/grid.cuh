// Folds across a grid, through global memory: a workspace of a header and one partial a cluster.
#pragma once
#include "cluster.cuh"

// The first 256 bytes of the workspace. All zero before the first launch; every launch leaves it fit for the next.
struct GridHeader {
    uint32 ticket;    // clusters that have delivered their partial
    uint32 barrier;   // the grid barrier's arrivals; bit 31 flips with each use
    uint32 unused[62];
};

template <class Op> __device__ __forceinline__ typename Op::Accumulator* grid_partials(void* workspace)
{
    return reinterpret_cast<typename Op::Accumulator*>(static_cast<GridHeader*>(workspace) + 1);
}

// Whether this block is the last of `count` to come here. Every thread calls it, at most once, after thread 0 has
// written the block's partial; in the last block, all partials are visible to all threads.
__device__ __forceinline__ bool grid_is_last(GridHeader* header, uint32 count)
{
    __shared__ bool last;
    if (threadIdx.x == 0) last = atomic_wrap_increment(&header->ticket, count - 1) == count - 1;
    __syncthreads();
    if (last) __threadfence();
    return last;
}

// Waits until every block of the grid is here; what they wrote before is then visible. Needs a cooperative launch: all
// blocks resident. Block 0 adds what makes bit 31 flip when all have come, so there is nothing to reset.
__device__ __forceinline__ void grid_barrier(GridHeader* header)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        const uint32 arrival = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
        const uint32 before = atomic_add(&header->barrier, arrival);
        while (((load_acquire(&header->barrier) ^ before) & 0x80000000u) == 0) __nanosleep(20);
    }
    __syncthreads();
    __threadfence();
}

// A value that another block wrote during this kernel: from the L2, never from a stale line of the L1.
template <class T> __device__ __forceinline__ T load_partial(const T* address)
{
    if constexpr (sizeof(T) == 16) {
        union { float4 raw; T whole; } u;
        u.raw = __ldcg(reinterpret_cast<const float4*>(address));
        return u.whole;
    } else {
        return __ldcg(address);
    }
}

constexpr uint32 partials_in_flight = 8;

// The top of the tree: `count` partials folded by one block, each warp a run of a power of two of them. Every thread
// calls it; all lanes of warp 0 hold the result.
template <class Op, int Warps>
__device__ __forceinline__ typename Op::Accumulator
grid_fold(const typename Op::Accumulator* partials, uint32 count, BlockSlots<Op, Warps>& shared, uint32 turn)
{
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    if (count <= lanes) return warp_fold<Op>(lane < count ? load_partial(partials + lane) : Op::identity());

    constexpr uint32 batch = lanes * partials_in_flight;
    uint32 batches = 1;  // for each warp
    while (uint64(batches) * batch * Warps < count) batches *= 2;
    WarpCounter<Op> counter;
#pragma unroll 1
    for (uint32 i = 0; i < batches; ++i) {
        const uint64 first = (uint64(warp) * batches + i) * batch + lane;
        typename Op::Accumulator a[partials_in_flight];
#pragma unroll
        for (uint32 k = 0; k < partials_in_flight; ++k)
            a[k] = first + k * lanes < count ? load_partial(partials + first + k * lanes) : Op::identity();
        counter.push(warp_fold_array<Op, partials_in_flight>(a, lane), lane);
    }
    return block_fold<Op, Warps>(counter.result(), shared, turn);
}

// Thread 0 of the block that holds the tree's root writes the result.
template <class Op>
__device__ __forceinline__ void store_result(void* result, typename Op::Accumulator root, uint64 length)
{
    if (threadIdx.x == 0)
        *static_cast<typename Op::Result*>(result) = length == 0 ? Op::empty() : Op::finish(root);
}

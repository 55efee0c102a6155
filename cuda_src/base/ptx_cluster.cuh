// Instructions about thread-block clusters: their barrier, and stores to another block's shared memory that tell when they have
// arrived.
#pragma once
#include "base/types.cuh"

#if __CUDA_ARCH__ >= 900
// Volatile, so that it is read anew instead of kept in a register that the elements need.
__device__ __forceinline__ uint32 cluster_rank()
{
    uint32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// The two halves of the cluster's barrier, for whole warps (aligned); a thread that has exited counts as arrived.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// A barrier in shared memory whose first phase is complete once so many bytes have been stored by store_to_rank. One thread
// calls it; before others use the barrier they must synchronise with that thread.
__device__ __forceinline__ void expect_bytes(uint64* barrier, uint32 bytes)
{
    const uint32 at = uint32(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(at), "r"(bytes) : "memory");
}

// Whether that phase is complete; if so, what was stored is visible. It may wait for a while.
__device__ __forceinline__ bool have_arrived(uint64* barrier)
{
    uint32 complete;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                 : "=r"(complete) : "r"(uint32(__cvta_generic_to_shared(barrier))) : "memory");
    return complete;
}

// The address of the copy of a variable in shared memory that the block of that rank holds.
__device__ __forceinline__ uint32 address_in_rank(const void* local, uint32 rank)
{
    uint32 remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(uint32(__cvta_generic_to_shared(local))), "r"(rank));
    return remote;
}

// Writes a word to the copy of *local that the block of that rank holds, which must have started.
__device__ __forceinline__ void store_word_to_rank(uint32* local, uint32 rank, uint32 word)
{
    asm volatile("st.shared::cluster.u32 [%0], %1;" :: "r"(address_in_rank(local, rank)), "r"(word) : "memory");
}

// Writes `value` to the copy of *local, and counts its bytes at the copy of *barrier, that the block of that rank holds. That
// block must have started, and must not exit before they have arrived; this one may.
template <class T> __device__ __forceinline__ void store_to_rank(T* local, uint32 rank, T value, uint64* barrier)
{
    static_assert(sizeof(T) % 4 == 0, "stored in words");
    constexpr uint32 wide = sizeof(T) % 8 == 0 && alignof(T) % 8 == 0 ? 8 : 4;
    const uint32 to = address_in_rank(local, rank), counter = address_in_rank(barrier, rank);
    union { T whole; uint32 words[sizeof(T) / 4]; uint64 pairs[(sizeof(T) + 7) / 8]; } u;
    u.whole = value;
#pragma unroll
    for (uint32 i = 0; i < sizeof(T) / wide; ++i) {
        if constexpr (wide == 8)
            asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];"
                         :: "r"(to + 8 * i), "l"(u.pairs[i]), "r"(counter) : "memory");
        else
            asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
                         :: "r"(to + 4 * i), "r"(u.words[i]), "r"(counter) : "memory");
    }
}
#endif

// Instructions that C++ has no name for: fences, streaming loads, copies. One function each. Those about the launch as a whole are
// in ptx_launch.cuh, those about clusters in ptx_cluster.cuh.
#pragma once
#include "base/ptx_launch.cuh"
#include "base/types.cuh"

// 16 aligned bytes that are read once and that nobody writes during the kernel: they are not kept in the L1.
__device__ __forceinline__ uint4 load_streaming(const uint4* address)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(address));
    return v;
}

// The same if `wanted`, else `v`; without a branch.
__device__ __forceinline__ uint4 load_streaming_if(bool wanted, const uint4* address, uint4 v = make_uint4(0, 0, 0, 0))
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0;"
                 "@p ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                 : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w) : "l"(address), "r"(uint32(wanted)));
    return v;
}

// 16 bytes by way of the L1, because neighbours want them too or for another reason, if `wanted`, else `v`; without a branch.
__device__ __forceinline__ uint4 load_cached_if(bool wanted, const uint4* address, uint4 v = make_uint4(0, 0, 0, 0))
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                 : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w) : "l"(address), "r"(uint32(wanted)));
    return v;
}

// The same two loads where the value has no meaning unless `wanted` is not zero: no instruction gives it one.
__device__ __forceinline__ uint4 load_streaming_where(uint32 wanted, const uint4* address)
{
    uint4 v;
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0;"
                 "@p ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(address), "r"(wanted));
    return v;
}
__device__ __forceinline__ uint4 load_cached_where(uint32 wanted, const uint4* address)
{
    uint4 v;
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(address), "r"(wanted));
    return v;
}

// A word of 4 or 8 bytes that neighbours want too, if `wanted`, else `v`, without a branch: the compiler would put what is
// computed with the word under the condition as well, and for many words there are too few predicates.
__device__ __forceinline__ uint32 load_word_if(bool wanted, const uint32* address, uint32 v)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.nc.u32 %0, [%1]; }"
                 : "+r"(v) : "l"(address), "r"(uint32(wanted)));
    return v;
}
__device__ __forceinline__ uint2 load_word_if(bool wanted, const uint2* address, uint2 v)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %3, 0; @p ld.global.nc.v2.u32 {%0, %1}, [%2]; }"
                 : "+r"(v.x), "+r"(v.y) : "l"(address), "r"(uint32(wanted)));
    return v;
}

// The same of one or two bytes.
__device__ __forceinline__ unsigned char load_word_if(bool wanted, const unsigned char* address, unsigned char v)
{
    uint32 wide = v;
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.nc.u8 %0, [%1]; }"
                 : "+r"(wide) : "l"(address), "r"(uint32(wanted)));
    return static_cast<unsigned char>(wide);
}
__device__ __forceinline__ unsigned short load_word_if(bool wanted, const unsigned short* address, unsigned short v)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.nc.u16 %0, [%1]; }"
                 : "+h"(v) : "l"(address), "r"(uint32(wanted)));
    return v;
}

// 16 bytes stored, or loaded, by one access, relaxed at the scope of the GPU: never torn, and never from a stale cache line.
__device__ __forceinline__ void store_whole(uint4* address, uint4 v)
{
    asm volatile("{ .reg .b64 l, h; .reg .b128 v; mov.b64 l, {%1, %2}; mov.b64 h, {%3, %4}; mov.b128 v, {l, h};"
                 "st.relaxed.gpu.global.b128 [%0], v; }"
                 :: "l"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

__device__ __forceinline__ uint4 load_whole(const uint4* address)
{
    uint4 v;
    asm volatile("{ .reg .b64 l, h; .reg .b128 v; ld.relaxed.gpu.global.b128 v, [%4]; mov.b128 {l, h}, v;"
                 "mov.b64 {%0, %1}, l; mov.b64 {%2, %3}, h; }"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(address) : "memory");
    return v;
}

// Read and written without any order, by threads of the whole GPU at once.
__device__ __forceinline__ uint64 load_relaxed(const uint64* address)
{
    uint64 v;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(address) : "memory");
    return v;
}

__device__ __forceinline__ void store_relaxed(uint64* address, uint64 value)
{
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" :: "l"(address), "l"(value) : "memory");
}

__device__ __forceinline__ uint32 load_acquire(const uint32* address)
{
    uint32 v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
    return v;
}

// Releases what this thread wrote or has seen written, and acquires what other threads released at this address.
__device__ __forceinline__ uint32 atomic_add(uint32* address, uint32 value)
{
    uint32 old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(address), "r"(value) : "memory");
    return old;
}

__device__ __forceinline__ uint64 atomic_add_relaxed(uint64* address, uint64 value)
{
    uint64 old;
    asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(address), "l"(value) : "memory");
    return old;
}

// Increments a counter that wraps to 0 after `last`; returns the old count. Orders no other access.
__device__ __forceinline__ uint32 atomic_count(uint32* address, uint32 last)
{
    uint32 old;
    asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(old) : "l"(address), "r"(last) : "memory");
    return old;
}

// The same with release and acquire: what a thread did before it counted is visible to those that count after it.
__device__ __forceinline__ uint32 atomic_count_ordered(uint32* address, uint32 last)
{
    uint32 old;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(old) : "l"(address), "r"(last) : "memory");
    return old;
}

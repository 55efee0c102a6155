// When the blocks of a launch run: what attributes of order, priority, caches and fences do. Times are in nanoseconds.
#pragma once
#include "study/placement.cuh"

struct Stamp {
    uint64 begin;      // the block's first instruction
    uint64 released;   // its wait for prerequisites has returned, or it has triggered its dependents
    uint64 end;
    uint64 multiprocessor;
};

// The GPU's own clock, the same for all multiprocessors; it ticks once a microsecond or faster.
__device__ __forceinline__ uint64 nanoseconds()
{
    uint64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now) :: "memory");
    return now;
}

// One Stamp a block, which runs for `duration`. With `dependent` it waits for its prerequisites first; with `triggers`
// it lets its dependents begin.
extern "C" __global__ void study_spin(Stamp* out, uint64 duration, uint32 dependent, uint32 triggers)
{
    Stamp stamp;
    stamp.begin = nanoseconds();
    if (dependent) wait_for_prerequisites();
    if (triggers) launch_dependents();
    stamp.released = nanoseconds();
    do stamp.end = nanoseconds(); while (stamp.end - stamp.begin < duration);
    stamp.multiprocessor = multiprocessor();
    if (threadIdx.x == 0) out[blockIdx.x] = stamp;
}

// Reads `count` vectors through the level-2 cache. The word is written for values that nobody puts there.
extern "C" __global__ void study_read(const uint4* data, uint64 count, uint32* word)
{
    uint32 mixed = 0;
    const uint64 step = uint64(gridDim.x) * blockDim.x;
    for (uint64 i = uint64(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
        const uint4 v = __ldcg(data + i);
        mixed |= v.x | v.y | v.z | v.w;
    }
    if (mixed == 0xfedcba98u) *word = mixed;
}

// Writes all over `words` words, such as memory of the host, which is far, for `duration`.
extern "C" __global__ void study_flood(volatile uint32* far, uint32 words, uint64 duration)
{
    const uint64 begin = nanoseconds();
    const uint32 step = gridDim.x * blockDim.x;
    while (nanoseconds() - begin < duration)
        for (uint32 i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) far[i] = i;
}

// Stores and fences for the whole system, `rounds` times; *out is what a round takes.
extern "C" __global__ void study_fence(volatile uint32* own, uint32 rounds, uint64* out)
{
    const uint64 begin = nanoseconds();
    for (uint32 i = 0; i < rounds; ++i) {
        *own = i;
        __threadfence_system();
    }
    *out = (nanoseconds() - begin) / rounds;
}

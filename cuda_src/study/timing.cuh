// When the blocks of a launch run: what attributes of order, priority, caches and memory domains do. Times in nanoseconds.
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

// Each block runs for `duration` and leaves a Stamp. With `dependent` it first waits for its prerequisites; with `triggers` it
// lets its dependents begin.
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

// Reads `count` vectors through the L2. The word is written only for a value that nobody puts there.
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

// Writes `count` vectors, for instance of another GPU's memory.
extern "C" __global__ void study_write(uint4* data, uint64 count)
{
    const uint64 step = uint64(gridDim.x) * blockDim.x;
    for (uint64 i = uint64(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
        const uint32 word = uint32(i);
        data[i] = make_uint4(word, word, word, word);
    }
}

// Follows `steps` links, one load after the other: each linked word holds the index of the next. out[0] is their time.
extern "C" __global__ void study_chase(const uint32* data, uint32 steps, uint64* out)
{
    uint32 at = 0;
    const uint64 begin = nanoseconds();
    for (uint32 i = 0; i < steps; ++i) at = __ldcg(data + at);
    out[1] = at;
    out[0] = nanoseconds() - begin;
}

// Writes a word of each of `lines` lines of 128 bytes, over and over for `duration`: for instance of the host's memory, which
// is far away. *out is the first thread's Stamp.
extern "C" __global__ void study_flood(uint32* far, uint32 lines, uint64 duration, Stamp* out)
{
    Stamp stamp = {};
    stamp.begin = nanoseconds();
    const uint32 step = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    do {
        for (uint32 i = first; i < lines; i += step) far[32 * i] = i;
        stamp.end = nanoseconds();
    } while (stamp.end - stamp.begin < duration);
    if (first == 0) *out = stamp;
}

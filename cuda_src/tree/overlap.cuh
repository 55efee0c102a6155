// How a launch overlaps the one before it in its stream and the one after it: what it brings into the L2 before it may read,
// and when it lets the blocks of the next one in (programmatic dependent launch). Nothing is read before the wait: after a kernel
// that does not let this launch in early, it would be read twice (benchmarks/NOTES.md, "Nothing before the wait").
#pragma once
#include "tree/source.cuh"

// Warps of a multiprocessor that are resident at once, about.
constexpr uint32 resident_warps = 32;

// Which of `count` tiles the block of this number takes. `apart` blocks, about as many as run at the same time, are given tiles
// that lie a run apart, and the next ones those behind them, so that each place on the device reads a run of tiles one after
// the other: the memory serves that a little better than neighbouring tiles at once (benchmarks/NOTES.md, "Runs of tiles").
// What is left over after whole runs for all stays in order.
__device__ __forceinline__ uint32 tile_of(uint32 block, uint32 count, uint32 apart)
{
    constexpr uint32 run = 8;
    const uint32 all = apart * run;
    if (count < all) return block;
    const uint32 first = block / all * all, past = block % all;
    return first + all <= count ? first + past % apart * run + past / apart : block;
}

// Prefetches what a block begins with into the L2, if the block is one of those that start first (blocks start in the order of
// their numbers): the memory has time for it while the preceding kernel ends. Blocks that start later have nothing to wait for.
template <int Warps> __device__ __forceinline__ void prefetch_start(const char* begin, uint64 bytes)
{
    constexpr uint64 most = Warps * leaf_bytes;
    if (threadIdx.x == 0 && blockIdx.x < resident_warps / Warps * multiprocessors()) prefetch_l2(begin, uint32(min(bytes, most)));
}

// Whether the next launch's blocks, of so many warps each, are let in when a tile is folded, instead of at once: in grids of few
// turns (waves of blocks).
// If these blocks came early they would crowd where there is room, so that some multiprocessors would have several blocks of one
// launch and others none (benchmarks/NOTES.md, "Grids of few turns").
__device__ __forceinline__ bool lets_in_late(uint32 warps)
{
    return uint64(gridDim.x) * warps <= 12 * resident_warps * multiprocessors();
}

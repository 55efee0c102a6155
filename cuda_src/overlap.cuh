// How a launch overlaps the one before it in its stream and the one after it: what it brings into the L2 before it may read,
// and when it lets the blocks of the next one in (programmatic dependent launch).
#pragma once
#include "source.cuh"

// About how many blocks of so many warps are resident on the device at once.
template <int Warps> __device__ __forceinline__ uint32 places() { return 32 / Warps * multiprocessors(); }

// Whether the grid is so small that it leaves room for the blocks of the next two launches and more. If these came early they
// would crowd where there is room, so that some multiprocessors would have several blocks of one launch and others none. With
// larger grids each launch's blocks get the places that those of the launch before the last have left; and blocks that fill a
// multiprocessor leave no room.
template <int Warps> __device__ __forceinline__ bool is_small_grid()
{
    return Warps < 32 && gridDim.x + gridDim.x / 8 < places<Warps>() / 2;
}

// Which of `count` tiles the block of this number takes. `apart` blocks, about as many as run at the same time, are given tiles
// that lie a run apart, and the next ones those behind them, so that each place on the device reads a run of tiles one after
// the other: the memory serves that a little better than neighbouring tiles at once (benchmarks/NOTES.md, "Runs of tiles").
// What is left over after whole runs for all stays in order.
__device__ __forceinline__ uint32 tile_of(uint32 block, uint32 count, uint32 apart)
{
    constexpr uint32 run = 8;
    const uint32 all = apart * run, first = block / all * all, past = block % all;
    return first + all <= count ? first + past % apart * run + past / apart : block;
}

// Whether each block has a multiprocessor to itself.
__device__ __forceinline__ bool has_room() { return gridDim.x <= multiprocessors(); }

// Prefetches what a block begins with into the L2, if `wanted` and the block is one of those that start first (blocks start in
// the order of their numbers): the memory has time for it while the preceding kernel ends. Blocks that start later have nothing
// to wait for. `wanted` shares the branch on the block's number: a branch of its own took registers, and operators that just
// fitted had eight too few and spilled.
template <int Warps> __device__ __forceinline__ void prefetch_start(const char* begin, uint64 bytes, bool wanted)
{
    constexpr uint64 most = Warps * leaf_bytes;
    if (threadIdx.x == 0 && blockIdx.x < (wanted ? places<Warps>() : 0)) prefetch_l2(begin, uint32(min(bytes, most)));
}

// Touches the front of what a warp begins with, of up to a leaf, which brings it into the L2: the first half in a grid of one
// turn (one wave of blocks), three eighths in others and in whole arrays of almost a turn. All lanes of the warp call it. This is
// about what the memory has time for: more would delay the end of the preceding kernel, and prefetching instead of reading gains
// less (benchmarks/NOTES.md, "Half of a leaf before the wait"). A lane touches a word of each sector of 32 bytes or, if
// `ByVectors`, all of half a sector.
template <int Warps, bool ByVectors = false> __device__ __forceinline__ void touch_start(const char* begin, uint64 bytes)
{
    constexpr uint32 apart = ByVectors ? vector_bytes : 32;  // from lane to lane
    if (blockIdx.x >= places<Warps>()) return;
    const uint32 skipped = -uint32(reinterpret_cast<uint64>(begin)) % vector_bytes, lane = threadIdx.x % lanes;
    const uint32 there = uint32(min(bytes, uint64(leaf_bytes))), counted = ByVectors ? gridDim.x + gridDim.x / 8 : gridDim.x;
    const uint32 front = there / 8 * (counted <= places<Warps>() ? 4 : 3);
#pragma unroll
    for (uint32 t = 0; t < leaf_bytes / 2 / (lanes * apart); ++t) {
        const uint32 at = (t * lanes + lane) * apart;
        const bool wanted = at + skipped + vector_bytes <= front;
        if constexpr (ByVectors) touch_if(wanted, begin + skipped + at);
        else touch_word_if(wanted, begin + skipped + at);
    }
}

// The same for a warp's leaf of a row.
template <int Warps, bool ByVectors>
__device__ __forceinline__ void touch_leaf(const char* row, uint64 row_bytes, uint64 leaf)
{
    const uint64 first = leaf * leaf_bytes;
    if (first < row_bytes) touch_start<Warps, ByVectors>(row + first, row_bytes - first);
}

// The same for two arrays, or for the first alone: `second` is null if it is not known where the second's elements lie.
template <class Op, int Warps, bool ByVectors = false>
__device__ __forceinline__ void touch_leaves(const char* row, const char* second, uint64 length, uint64 leaf)
{
    using T = typename Op::Input;
    using Second = typename Op::Second;
    touch_leaf<Warps, ByVectors>(row, length * sizeof(T), leaf);
    constexpr bool as_wide = !is_same<Second, Unused> && sizeof(Second) == sizeof(T);
    if (as_wide && second != nullptr) touch_leaf<Warps, ByVectors>(second, length * sizeof(T), leaf);
}

// In whole arrays all this makes moments of small elements slower, though the code that folds them is the same; and with it
// NVRTC 13.5 spills in sums of complex64 by blocks that fill a multiprocessor. So the latter prefetch whole tiles, where each
// block has a multiprocessor; the former do nothing.
template <class Op, int Warps> constexpr bool prefetches_tiles = Warps >= 32 && is_same<typename Op::Pivot, Unused>;
template <class Op, int Warps>
constexpr bool starts_early = Warps < 32 && (is_same<typename Op::Pivot, Unused> || sizeof(typename Op::Input) > 2);

// Whether a whole array is touched by vectors: up to three million elements of four bytes gain two to five percent by that. With
// other elements, wider accumulators, or in rows, some operators would load what they fold into the same registers.
template <class Op>
constexpr bool touches_vectors = sizeof(typename Op::Input) == 4 && sizeof(typename Op::Accumulator) <= 8;

// Whether the next launch's blocks are let in when a tile is folded, instead of at once.
template <class Op, int Warps> __device__ __forceinline__ bool lets_in_late()
{
    return prefetches_tiles<Op, Warps> ? gridDim.x <= 12 * places<Warps>() : is_small_grid<Warps>();
}

// What a block does before it may read, for its tile of an array whose length the host knows.
template <class Op, int Warps>
__device__ __forceinline__ void start_on_tile(const Problem& problem, uint64 tile, bool is_late)
{
    if (!starts_early<Op, Warps> || problem.device_length != nullptr) return;
    const uint64 bytes = problem.length * sizeof(typename Op::Input), first = tile * Warps * leaf_bytes;
    if (!is_late)
        touch_leaves<Op, Warps, touches_vectors<Op>>(
            problem.elements, problem.second, problem.length, tile * Warps + threadIdx.x / lanes);
    else if (first < bytes) prefetch_start<Warps>(problem.elements + first, bytes - first, has_room());
}

// For blocks that do not start early: prefetches the tile once the source is known.
template <class Op, int Warps>
__device__ __forceinline__ void prefetch_tile(const Source<Op>& source, uint64 tile, bool is_late)
{
    if (!prefetches_tiles<Op, Warps>) return;
    constexpr uint64 tile_bytes = Warps * leaf_bytes;
    const uint64 bytes = source.row.length * sizeof(typename Op::Input), first = tile * tile_bytes;
    if (first < bytes) prefetch_start<Warps>(source.begin + first, min(bytes - first, tile_bytes), has_room() || !is_late);
}

// How a launch lies over the one before it in its stream and the one after it: what it brings into the L2 before it may read,
// and when it lets the next one's blocks in.
#pragma once
#include "source.cuh"

// Blocks of so many warps that the device has room for at once, about.
template <int Warps> __device__ __forceinline__ uint32 places() { return 32 / Warps * multiprocessors(); }

// Whether so few blocks leave room for those of the next two launches, and more. Would they come early, they would crowd where
// there are places, and some multiprocessors have several of one launch's blocks and others none. Of larger grids each
// launch's blocks find the places that those of the one before the last have left; and blocks that fill a multiprocessor leave
// none.
template <int Warps> __device__ __forceinline__ bool is_small_grid()
{
    return Warps < 32 && gridDim.x + gridDim.x / 8 < places<Warps>() / 2;
}

// Whether each block has a multiprocessor for itself.
__device__ __forceinline__ bool has_room() { return gridDim.x <= multiprocessors(); }

// Brings what a block begins with into the L2, if that is wanted and it is one of those that start first, as blocks do in their
// order: the memory has time for it while the kernel before this one ends. Blocks that start later find nothing to wait for.
// Who would ask in a branch of its own spilled: operators that just fit had eight registers too few then.
template <int Warps> __device__ __forceinline__ void prefetch_start(const char* begin, uint64 bytes, bool wanted)
{
    constexpr uint64 most = Warps * leaf_bytes;
    if (threadIdx.x == 0 && blockIdx.x < (wanted ? places<Warps>() : 0)) prefetch_l2(begin, uint32(min(bytes, most)));
}

// The same for the front of what a warp begins with, up to a leaf, by reading it: half of it in a grid of one turn, three eighths
// in others. That is about what the memory has time for; more of it delays the end of the kernel before, and what is
// prefetched, not read, gains less (benchmarks/NOTES.md, "Half of a leaf before the wait").
template <int Warps> __device__ __forceinline__ void touch_start(const char* begin, uint64 bytes)
{
    if (blockIdx.x >= places<Warps>()) return;
    const uint32 skipped = -uint32(reinterpret_cast<uint64>(begin)) % vector_bytes, lane = threadIdx.x % lanes;
    const uint32 there = uint32(min(bytes, uint64(leaf_bytes))), front = there / 8 * (gridDim.x <= places<Warps>() ? 4 : 3);
#pragma unroll
    for (uint32 t = 0; t < steps / 2; ++t) {
        const uint32 at = (t * lanes + lane) * vector_bytes;
        touch_if(at + skipped + vector_bytes <= front, begin + skipped + at);
    }
}

// The same of a warp's leaf of a row.
template <int Warps> __device__ __forceinline__ void touch_leaf(const char* row, uint64 row_bytes, uint64 leaf)
{
    const uint64 first = leaf * leaf_bytes;
    if (first < row_bytes) touch_start<Warps>(row + first, row_bytes - first);
}

// The same of two arrays, or the one that there is: `second` is null where nothing is known of the other's elements.
template <class Op, int Warps>
__device__ __forceinline__ void touch_leaves(const char* row, const char* second, uint64 length, uint64 leaf)
{
    using T = typename Op::Input;
    using Second = typename Op::Second;
    touch_leaf<Warps>(row, length * sizeof(T), leaf);
    constexpr bool as_wide = !is_same<Second, Unused> && sizeof(Second) == sizeof(T);
    if (as_wide && second != nullptr) touch_leaf<Warps>(second, length * sizeof(T), leaf);
}

// Sums of small integers, a byte each, and moments of small elements are slower by all this in whole arrays, though the code
// that folds them is the same: the former ask for whole tiles in long grids alone, the latter for nothing.
template <class Op>
constexpr bool are_bytes = Op::packed && sizeof(typename Op::Input) == 1 && is_integer<typename Op::Input>;
template <class Op>
constexpr bool starts_early =
    !are_bytes<Op> && (is_same<typename Op::Pivot, Unused> || sizeof(typename Op::Input) > 2);

// Whether the next kernel's blocks come when elements are loaded, not at once.
template <class Op, int Warps> __device__ __forceinline__ bool lets_in_late()
{
    return are_bytes<Op> ? gridDim.x <= 12 * places<Warps>() : is_small_grid<Warps>();
}

// What a block does before it may read, of its tile of an array whose length is known. A block that fills a multiprocessor
// starts when nothing is left to wait for.
template <class Op, int Warps>
__device__ __forceinline__ void start_on_tile(const Problem& problem, uint64 tile, bool is_late)
{
    if (!starts_early<Op> || problem.device_length != nullptr) return;
    const uint64 bytes = problem.length * sizeof(typename Op::Input), first = tile * Warps * leaf_bytes;
    if (!is_late && Warps < 32)
        touch_leaves<Op, Warps>(problem.elements, problem.second, problem.length, tile * Warps + threadIdx.x / lanes);
    else if (first < bytes) prefetch_start<Warps>(problem.elements + first, bytes - first, has_room());
}

// What it does instead, when the source is known, where it is not to start early.
template <class Op, int Warps>
__device__ __forceinline__ void prefetch_tile(const Source<Op>& source, uint64 tile, bool is_late)
{
    if (!are_bytes<Op>) return;
    constexpr uint64 tile_bytes = Warps * leaf_bytes;
    const uint64 bytes = source.row.length * sizeof(typename Op::Input), first = tile * tile_bytes;
    if (first < bytes) prefetch_start<Warps>(source.begin + first, min(bytes - first, tile_bytes), has_room() || !is_late);
}

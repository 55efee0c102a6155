// The second kernel of segments: cuts those in the queue into tiles, one a block, and folds their partials as they come.
#pragma once
#include "segments/segments.cuh"

constexpr uint32 warp_partials = 128;  // of a segment with up to so many one warp folds them, of others the block
constexpr uint32 no_item = ~0u;

// Prefetches the tile that the block begins with if all segments are long: an array of such segments makes about these tiles.
template <class Op> __device__ __forceinline__ void prefetch_likely_tile(const SegmentProblem& problem)
{
    constexpr uint64 tile_bytes = tile_warps<Op> * leaf_bytes;
    const uint64 bytes = problem.length * sizeof(typename Op::Input), first = blockIdx.x * tile_bytes;
    if (first < bytes && gridDim.x * tile_bytes >= bytes)
        prefetch_start<tile_warps<Op>>(problem.elements + first, min(bytes - first, tile_bytes));
}

// The last of `count` entries whose first tile is not after `tile`. All lanes of a warp call it; every lane holds the result.
__device__ __forceinline__ uint32 entry_of_tile(const QueueEntry* entries, uint32 count, uint32 tile, uint32 lane)
{
    uint32 entry = 0;
    for (uint32 beyond = count; beyond - entry > 1;) {
        const uint32 step = (beyond - entry + lanes - 1) / lanes, probe = entry + lane * step;
        const bool before = probe < beyond && entries[probe].first_tile <= tile;
        entry += (__popc(__ballot_sync(0xffffffffu, before)) - 1) * step;
        beyond = min(beyond, entry + step);
    }
    return entry;
}

template <class Op> __device__ __forceinline__ Source<Op> source_of(const SegmentProblem& problem, const QueueEntry& entry)
{
    return Source<Op>(problem, problem.elements + entry.begin * sizeof(typename Op::Input), nullptr, entry.length);
}

// How many tiles an entry has; none if there was no room for them.
template <class Op> __device__ __forceinline__ uint32 tiles_of(const QueueEntry& entry)
{
    constexpr uint64 tile_elements = tile_warps<Op> * leaf_elements<typename Op::Input>;
    return entry.segment == no_segment ? 0 : uint32((entry.length + tile_elements - 1) / tile_elements);
}

// The items that a block does one after the other: tiles, then groups of entries whose partials it folds. Between items it
// keeps nothing, because the elements need the registers.
template <class Op> struct LongSegments {
    using A = typename Op::Accumulator;
    static constexpr int Warps = tile_warps<Op>;
    const SegmentProblem& problem;
    const SegmentQueue queue;
    BlockSlots<Op, Warps>& shared;
    uint32* next;  // two words in shared memory
    uint32 turn = 0;

    __device__ __forceinline__ LongSegments(const SegmentProblem& p, BlockSlots<Op, Warps>& s, uint32* n)
        : problem(p), queue(p), shared(s), next(n) {}

    __device__ __forceinline__ Slot<A>* slots() const { return reinterpret_cast<Slot<A>*>(queue.partials); }

    // Claims the next item, if items are claimed; after the next barrier all threads of the block may read its number.
    __device__ __forceinline__ void claim() const
    {
        if (threadIdx.x == 0) next[turn & 1u] = QueueContents(problem).has_blocks() ? no_item : atomic_count(queue.claims, ~0u);
    }

    __device__ __forceinline__ uint32 claimed_after_barrier()
    {
        claim();
        __syncthreads();
        return next[turn++ & 1u];
    }

    // Folds and publishes a tile; returns the next item, as fold_entries does. All threads of the block call either of them.
    __device__ __forceinline__ uint32 fold_tile(uint32 tile, uint32 count)
    {
        const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;
        const QueueEntry entry = queue.entries[entry_of_tile(queue.entries, count, tile, lane)];
        const uint64 own = tile - entry.first_tile;
        if (own >= tiles_of<Op>(entry)) return claimed_after_barrier();  // of an entry beyond the queue's capacity
        A value = leaf_fold<Op, false>(source_of<Op>(problem, entry), own * Warps + warp, lane);
        claim();
        value = block_fold<Op, Warps>(value, shared, turn);
        if (threadIdx.x == 0) slots()[tile].publish(value);
        return next[turn++ & 1u];
    }

    __device__ __forceinline__ void store(const QueueEntry& entry, A value) const
    {
        store_result<Op>(problem, source_of<Op>(problem, entry).row, entry.segment, value);
    }

    // Folds the partials of entries `first` to `end` - 1 and stores their results; returns the next item.
    __device__ __forceinline__ uint32 fold_entries(uint32 first, uint32 end)
    {
        const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes, following = claimed_after_barrier();
        if (first + warp < end) {  // a block has at least as many warps as a group has entries
            const QueueEntry entry = queue.entries[first + warp];
            const uint32 parts = tiles_of<Op>(entry);
            if (parts > 0 && parts <= warp_partials) {
                A a[warp_partials / lanes];
                grid_take<Op, warp_partials / lanes>(a, slots() + entry.first_tile, lane, {parts});
                const A value = warp_fold_array<Op, warp_partials / lanes>(a, lane);
                if (lane == 0) store(entry, value);
            }
        }
#pragma unroll 1
        for (uint32 i = first; i < end; ++i) {
            const QueueEntry entry = queue.entries[i];
            const uint32 parts = tiles_of<Op>(entry);
            if (parts <= warp_partials) continue;
            const A value = grid_fold<Op, Warps>(slots() + entry.first_tile, {parts}, shared, turn++);
            if (threadIdx.x == 0) store(entry, value);
        }
        return following;
    }
};

// If the grid has a block for each item, blocks take the items in order of their numbers; otherwise they claim them in the
// items' order. Either way, items that wait for partials are begun when all tiles have been.
template <class Op, class Offset> __device__ __forceinline__ void reduce_long_segments(const SegmentProblem& problem)
{
    __shared__ BlockSlots<Op, tile_warps<Op>> shared;
    __shared__ uint32 next[2];
    launch_dependents();
    prefetch_likely_tile<Op>(problem);
    LongSegments<Op> segments(problem, shared, next);
    wait_for_prerequisites();
    QueueContents now(problem);
    if (now.items == 0) return;
    uint32 item = now.has_blocks() ? blockIdx.x : segments.claimed_after_barrier();
#pragma unroll 1
    while (item < now.tiles) {
        item = segments.fold_tile(item, now.count);
        if (item == no_item) return;
        now = QueueContents(problem);
    }
#pragma unroll 1
    while (item < now.items) {
        const uint32 first = (item - now.tiles) * now.each;
        item = segments.fold_entries(first, min(first + now.each, now.count));
        now = QueueContents(problem);
    }
    // The last block to come here empties the queue: all others have read it, or have published a tile after they read it.
    __syncthreads();
    const uint32 last = (now.has_blocks() ? gridDim.x - now.tiles : gridDim.x) - 1;
    if (threadIdx.x == 0 && atomic_count_ordered(segments.queue.done, last) == last) {
        *segments.queue.claims = 0;
        store_relaxed(segments.queue.state, 0);
    }
}

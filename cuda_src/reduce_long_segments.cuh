// The second kernel of segments: cuts the queue's into tiles, which its blocks share out.
#pragma once
#include "segments.cuh"

// Whether this block is the last of `count` to come here with this ticket, which is then as before the first. All
// threads call it, with another barrier between two calls. It orders nothing: a partial carries its own flag.
__device__ __forceinline__ bool is_last_block(uint32* ticket, uint32 count)
{
    __shared__ bool last;
    if (threadIdx.x == 0) last = atomic_count(ticket, count - 1) == count - 1;
    __syncthreads();
    return last;
}

// Brings a leaf, if there is one, into the L2: what a warp folds next, while its block meets at barriers and tickets.
template <class Op> __device__ __forceinline__ void prefetch_leaf(const SegmentSource<Op>& source, uint64 leaf)
{
    const uint64 first = leaf * leaf_bytes, bytes = source.row.length * sizeof(typename Op::Input);
    if (first < bytes) prefetch_l2(source.begin + first, uint32(min(bytes - first, uint64(leaf_bytes))));
}

template <class Op, class Offset> __device__ __forceinline__ void reduce_long_segments(const SegmentProblem& problem)
{
    __shared__ BlockSlots<Op, segment_warps> shared;
    launch_dependents();
    wait_for_prerequisites();
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    const SegmentQueue queue(problem);
    const uint64 state = *queue.state, count = min(state >> tile_bits, problem.capacity);
    const uint64 tiles = min(state & ((uint64(1) << tile_bits) - 1), problem.room);
    const uint64 each = (tiles + gridDim.x - 1) / gridDim.x, from = blockIdx.x * each, to = min(from + each, tiles);

    uint64 entry = 0;  // the one that tile `from` is of: the last whose first tile is not after it
    for (uint64 beyond = count; from < to && beyond - entry > 1;) {
        const uint64 middle = (entry + beyond) / 2;
        if (queue.entries[middle].first_tile <= from) entry = middle;
        else beyond = middle;
    }
    uint32 turn = 0;
#pragma unroll 1
    for (uint64 tile = from; tile < to; ++tile) {
        while (entry + 1 < count && queue.entries[entry + 1].first_tile <= tile) ++entry;
        const QueueEntry item = queue.entries[entry];
        if (item.segment == no_segment) continue;
        const uint64 begin = SegmentSource<Op>::template offset_at<Offset>(problem, item.segment);
        const SegmentSource<Op> source(problem, begin, SegmentSource<Op>::template offset_at<Offset>(problem, item.segment + 1));
        const uint32 parts = tile_count<Op, segment_warps>(source);
        if (tile - item.first_tile >= parts) continue;  // of an entry beyond the queue's capacity
        const uint64 leaf = (tile - item.first_tile) * segment_warps + warp;
        if (lane == 0 && tile + 1 < to) prefetch_leaf(source, leaf + segment_warps);
        auto value = row_leaf_fold<Op, SegmentRows>(source, leaf, source.is_whole(), lane);
        value = block_fold<Op, segment_warps>(value, shared, turn++);
        auto* slots = reinterpret_cast<Slot<typename Op::Accumulator>*>(queue.partials) + item.first_tile;
        if (threadIdx.x == 0) slots[tile - item.first_tile].publish(value);
        if (!is_last_block(&queue.tickets[entry], parts)) continue;
        value = grid_fold<Op, segment_warps>(slots, {parts}, shared, turn++);
        if (threadIdx.x == 0) store_result<Op>(problem, source.row, item.segment, value);
    }
    // The last block to end empties the queue: all have read its state.
    __syncthreads();
    if (threadIdx.x == 0 && atomic_count_ordered(queue.done, gridDim.x - 1) == gridDim.x - 1) *queue.state = 0;
}

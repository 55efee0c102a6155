// The first kernel of segments: folds the short ones, thirty-two by each warp, and puts the long ones into the queue.
#pragma once
#include "segments/short_segments.cuh"

// Warps in a block. Fewer than elsewhere: a warp that has ended frees its place only when its block has ended.
constexpr int short_segment_warps = 4;

// How many segments ahead a warp prefetches into the L2 while it folds them one after the other.
constexpr uint32 segments_ahead = 4;

// Prefetches into the L2 the offsets of the block that will take this one's place, approximately.
template <class Offset, int Groups> __device__ __forceinline__ void prefetch_offsets(const SegmentProblem& problem)
{
    constexpr uint64 block_segments = short_segment_warps * lanes * Groups;
    const uint64 ahead = 32 / short_segment_warps * multiprocessors(), first = (blockIdx.x + ahead) * block_segments;
    if (threadIdx.x == 0 && first < problem.rows)
        prefetch_l2(problem.second + first * sizeof(Offset),
                    uint32(min(problem.rows + 1 - first, block_segments) * sizeof(Offset)));
}

// Puts a lane's segment into the queue for the second kernel. Any lanes may call it.
template <class Op>
__device__ __forceinline__ void enqueue(const SegmentProblem& problem, uint64 segment, uint64 begin, uint64 length)
{
    const uint64 tiles = (leaves_of<typename Op::Input>(length) + tile_warps<Op> - 1) / tile_warps<Op>;
    const SegmentQueue queue(problem);
    const uint64 before = atomic_add_relaxed(queue.state, (uint64(1) << tile_bits) + tiles);
    const uint64 entry = before >> tile_bits, first_tile = before & ((uint64(1) << tile_bits) - 1);
    if (entry >= problem.capacity) return;
    queue.entries[entry] = QueueEntry{first_tile + tiles <= problem.room ? segment : no_segment, first_tile, begin, length};
}

// Where a lane's segment begins and ends, according to the offsets.
template <class Offset> struct Bounds {
    Offset begin, end;

    __device__ __forceinline__ Bounds(const SegmentProblem& problem, uint64 segment)
    {
        const auto* offsets = reinterpret_cast<const Offset*>(problem.second);
        begin = offsets[min(segment, problem.rows)];  // past the last segment: an empty one
        end = offsets[min(segment + 1, problem.rows)];
    }
};

// Folds or enqueues thirty-two segments from number `first` on, by one warp, of which all lanes call it.
template <class Op, class Offset>
__device__ __forceinline__ void
fold_or_enqueue(const SegmentProblem& problem, uint64 first, const Bounds<Offset>& bounds, uint32 lane)
{
    using T = typename Op::Input;
    constexpr uint32 step = lanes * vector_elements<T>;
    const uint64 begin = SegmentSource<Op>::inside_array(problem, bounds.begin);
    const uint64 end = max(begin, SegmentSource<Op>::inside_array(problem, bounds.end));
    const uint64 length = end - begin, origin = shuffle_from(begin, 0);
    // If offsets ascend, no short segment begins further than this from the first one. In another order they may lead anywhere,
    // which the 32 bits of ShortSegments do not hold.
    const bool near = begin - origin <= lanes * 2 * step;
    const uint32 longest = warp_max(near ? uint32(min(length, uint64(0xffffffffu))) : 0xffffffffu);

    const ShortSegments segments{first, origin, uint32(begin - origin), uint32(length)};
    const bool by_element = sizeof(T) >= 4 && reinterpret_cast<uint64>(problem.elements) % sizeof(T) == 0;
    if (longest <= 2 * step && by_element)
        return fold_short_segments<Op, sizeof(T) == 4>(problem, segments, longest, load_elements_of<Op>,
                                                       fold_filled<Op, SegmentSource<Op>>, lane);
    const bool inside = __all_sync(0xffffffffu, SegmentRows::inside(SegmentSource<Op>(problem, begin, end), 0, length));
    if (longest <= 2 * step && inside)
        return fold_short_segments<Op, false>(problem, segments, longest, load_inside,
                                              fold_vector_part<Op, SegmentSource<Op>>, lane);
    const bool is_long = leaves_of<T>(length) > long_leaves;
    if (is_long) enqueue<Op>(problem, first + lane, begin, length);
#pragma unroll 1
    for (uint32 rest = __ballot_sync(0xffffffffu, !is_long && first + lane < problem.rows); rest != 0; rest &= rest - 1) {
        const uint32 i = __ffs(rest) - 1;
        // Each lane prefetches its own segment, some turns ahead, because one warp has few loads in flight.
        const bool next = i == 0 ? lane <= segments_ahead : lane == i + segments_ahead;
        if (next && !is_long) prefetch_l2(problem.elements + begin * sizeof(T), uint32(length * sizeof(T)));
        const SegmentSource<Op> source(problem, shuffle_from(begin, i), shuffle_from(end, i));
        const auto root = fold_segment<Op>(source, by_element, lane);
        if (lane == 0) store_result<Op>(problem, source.row, first + i, root);
    }
}

// Each warp has `Groups` times thirty-two segments.
template <class Op, class Offset, int Groups>
__device__ __forceinline__ void reduce_short_segments(const SegmentProblem& problem)
{
    launch_dependents();
    prefetch_offsets<Offset, Groups>(problem);
    wait_for_prerequisites();
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    uint64 first = (uint64(blockIdx.x) * short_segment_warps + warp) * (Groups * lanes);
    if (first >= problem.rows) return;
    Bounds<Offset> bounds(problem, first + lane);
    if constexpr (Groups == 1) return fold_or_enqueue<Op, Offset>(problem, first, bounds, lane);
    const uint64 end = min(first + Groups * lanes, problem.rows);
#pragma unroll 1
    for (; first < end; first += lanes) {
        // The bounds of the next ones are loaded meanwhile.
        const Bounds<Offset> now = bounds;
        if (first + lanes < end) bounds = Bounds<Offset>(problem, first + lanes + lane);
        fold_or_enqueue<Op, Offset>(problem, first, now, lane);
    }
}

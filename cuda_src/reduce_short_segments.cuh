// The first kernel of segments: folds the short ones, a warp thirty-two of them, and puts the long ones into the queue.
#pragma once
#include "segment_leaf.cuh"

// Thirty-two short segments of a warp: each lane has one of them, as elements from the first one's beginning on.
struct ShortSegments {
    uint64 number, origin;  // the first segment's, and that of its first element
    uint32 begin, length;
};

// Fewer than elsewhere: a warp that has ended leaves its place to others only when its block has.
constexpr int short_segment_warps = 4;

// Segments by which a warp that folds them one after the other has the L2 ahead.
constexpr uint32 segments_ahead = 4;

// Vectors that a lane has in flight: half as many as elsewhere, which leaves registers for twice as many warps. There is
// much to compute between two loads, and other warps' loads fill that time.
constexpr int segment_vectors = steps / 2;

// Brings offsets into the L2 for the block that comes to this one's place, or about there.
template <class Offset, int Groups> __device__ __forceinline__ void prefetch_offsets(const SegmentProblem& problem)
{
    constexpr uint64 block_segments = short_segment_warps * lanes * Groups;
    const uint64 ahead = 32 / short_segment_warps * multiprocessors(), first = (blockIdx.x + ahead) * block_segments;
    if (threadIdx.x == 0 && first < problem.rows)
        prefetch_l2(problem.second + first * sizeof(Offset),
                    uint32(min(problem.rows + 1 - first, block_segments) * sizeof(Offset)));
}

// These from number `base` to `end`, whose longest has at most S steps: G lanes fold one, as many at once as make
// `segment_vectors` a lane or thirty-two segments. Numbers of 32 bits, for there is more to compute than to load.
template <class Op, int G, int S, class Fetch, class Fold>
__device__ __forceinline__ void
fold_segments(const SegmentProblem& problem, const ShortSegments& segments, Fetch fetch, Fold fold, uint32 lane,
              uint32 base = 0, uint32 end = lanes)
{
    using T = typename Op::Input;
    constexpr int groups = lanes / G, N = segment_vectors / S < G ? segment_vectors / S : G, size = sizeof(T);
    constexpr uint32 V = vector_elements<T>;
    const char* origin = problem.elements + segments.origin * size;
#pragma unroll 1
    for (; base < end; base += N * groups) {
        uint32 begin[N], length[N];
        uint4 v[N * S];
        const auto bytes_of = [=](uint32 count, int t) { return (int32(count) - int32((t * lanes + lane % G) * V)) * size; };
#pragma unroll
        for (int i = 0; i < N; ++i) {
            begin[i] = shuffle_from(segments.begin, base + i * groups + lane / G);
            length[i] = shuffle_from(segments.length, base + i * groups + lane / G);
            const char* mine = origin + (begin[i] + lane % G * V) * size;
#pragma unroll
            for (int t = 0; t < S; ++t) v[i * S + t] = fetch(mine + t * leaf_bytes / steps, bytes_of(length[i], t));
        }
        typename Op::Accumulator a[N];
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const SegmentSource<Op> source(problem, segments.origin + begin[i], segments.origin + begin[i] + length[i]);
            typename Op::Accumulator part[S];
#pragma unroll
            for (int t = 0; t < S; ++t)
                part[t] = fold(source, v[i * S + t], (t * lanes + lane % G) * V, bytes_of(length[i], t));
            a[i] = fold_array<Op, S>(part);
        }
        warp_fold_rows<Op, G, N>(a, lane);
        const uint32 place = base + lane % N * groups + lane / G;
        const uint64 first = segments.origin + shuffle_from(segments.begin, place);
        const SegmentSource<Op> source(problem, first, first + shuffle_from(segments.length, place));
        if (lane % G < N && segments.number + place < problem.rows)
            store_result<Op>(problem, source.row, segments.number + place, a[0]);
    }
}

// These, of elements of four bytes, none of more than two steps: by blocks where these are inside of the array.
template <class Op>
__device__ __forceinline__ void
fold_segments_of_words(const SegmentProblem& problem, const ShortSegments& segments, uint32 lane)
{
    constexpr uint32 V = vector_elements<typename Op::Input>, most = lanes * V - (V - 1);
    const auto join = [=](const SegmentSource<Op>& source, uint4 v, uint32 index, int32 bytes) {
        const uint32 shift = uint32(reinterpret_cast<uint64>(source.begin)) % vector_bytes;
        return fold_vector_part<Op>(source, join_next_block(v, shift, lane), index, bytes);
    };
    const uint64 first = segments.origin + segments.begin;
    const bool inside = SegmentRows::inside(SegmentSource<Op>(problem, first, first + segments.length), 0, segments.length);
    const uint32 others = __ballot_sync(0xffffffffu, !inside || segments.length > most);
#pragma unroll 1
    for (uint32 base = 0; base < lanes; base += segment_vectors) {
        const uint32 end = base + segment_vectors;
        if (others >> base & ((1u << segment_vectors) - 1)) {
            fold_segments<Op, 32, 2>(problem, segments, load_elements_of<Op>, fold_filled<Op, SegmentSource<Op>>, lane, base, end);
        } else {
            fold_segments<Op, 32, 1>(problem, segments, load_block_of, join, lane, base, end);
        }
    }
}

// These, of which K vectors hold the longest: each lane folds its own, without a shuffle.
template <class Op, int K, class Fetch, class Fold>
__device__ __forceinline__ void
fold_tiny_segments(const SegmentProblem& problem, const ShortSegments& segments, Fetch fetch, Fold fold, uint32 lane)
{
    using T = typename Op::Input;
    constexpr int32 V = vector_elements<T>, size = sizeof(T);
    constexpr int width = K == 3 ? 4 : K;
    const uint64 first = segments.origin + segments.begin;
    const SegmentSource<Op> source(problem, first, first + segments.length);
    const auto bytes_of = [&](int k) { return (int32(segments.length) - k * V) * size; };
    uint4 v[K];
#pragma unroll
    for (int k = 0; k < K; ++k) v[k] = fetch(source.begin + k * vector_bytes, bytes_of(k));
    typename Op::Accumulator part[width];
#pragma unroll
    for (int k = 0; k < width; ++k) part[k] = k < K ? fold(source, v[k < K ? k : 0], k * V, bytes_of(k)) : Op::identity();
    const auto root = fold_array<Op, width>(part);
    if (segments.number + lane < problem.rows) store_result<Op>(problem, source.row, segments.number + lane, root);
}

// These, of at most two steps each, each vector fetched and folded like that; elements of four bytes at multiples of four
// bytes are `words`.
template <class Op, bool Words, class Fetch, class Fold>
__device__ __forceinline__ void
fold_short_segments(const SegmentProblem& problem, const ShortSegments& segments, uint32 longest, Fetch fetch, Fold fold, uint32 lane)
{
    constexpr uint32 V = vector_elements<typename Op::Input>;
    if (longest <= V) return fold_tiny_segments<Op, 1>(problem, segments, fetch, fold, lane);
    if constexpr (V <= 4) {
        if (longest <= 2 * V) return fold_tiny_segments<Op, 2>(problem, segments, fetch, fold, lane);
        if (longest <= 3 * V) return fold_tiny_segments<Op, 3>(problem, segments, fetch, fold, lane);
        if (longest <= 4 * V) return fold_tiny_segments<Op, 4>(problem, segments, fetch, fold, lane);
    } else {  // a lane would have too many elements of less than four bytes, and code for each
        if (longest <= 4 * V) return fold_segments<Op, 4, 1>(problem, segments, fetch, fold, lane);
    }
    if constexpr (Words) {
        fold_segments_of_words<Op>(problem, segments, lane);
    } else {
        if (longest <= lanes * V) fold_segments<Op, 32, 1>(problem, segments, fetch, fold, lane);
        else fold_segments<Op, 32, 2>(problem, segments, fetch, fold, lane);
    }
}

// Puts a lane's segment into the queue for the second kernel.
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

// Where a lane's segment begins and ends, as the offsets say it.
template <class Offset> struct Bounds {
    Offset begin, end;

    __device__ __forceinline__ Bounds(const SegmentProblem& problem, uint64 segment)
    {
        const auto* offsets = reinterpret_cast<const Offset*>(problem.second);
        begin = offsets[min(segment, problem.rows)];  // past the last segment: an empty one
        end = offsets[min(segment + 1, problem.rows)];
    }
};

// Thirty-two segments from number `first` on, by one warp.
template <class Op, class Offset>
__device__ __forceinline__ void
fold_or_enqueue(const SegmentProblem& problem, uint64 first, const Bounds<Offset>& bounds, uint32 lane)
{
    using T = typename Op::Input;
    constexpr uint32 step = lanes * vector_elements<T>;
    const uint64 begin = SegmentSource<Op>::inside_array(problem, bounds.begin);
    const uint64 end = max(begin, SegmentSource<Op>::inside_array(problem, bounds.end));
    const uint64 length = end - begin, origin = shuffle_from(begin, 0);
    // Of short segments in ascending order none begins further than this from the first. Offsets in another order may
    // lead anywhere, which the 32 bits of ShortSegments do not hold.
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
        // Each lane's own segment, some turns ahead, for one warp's loads are few.
        const bool next = i == 0 ? lane <= segments_ahead : lane == i + segments_ahead;
        if (next && !is_long) prefetch_l2(problem.elements + begin * sizeof(T), uint32(length * sizeof(T)));
        const SegmentSource<Op> source(problem, shuffle_from(begin, i), shuffle_from(end, i));
        const auto root = fold_segment<Op>(source, by_element, lane);
        if (lane == 0) store_result<Op>(problem, source.row, first + i, root);
    }
}

// Each warp `Groups` times thirty-two segments.
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
        // The next ones' are under way meanwhile.
        const Bounds<Offset> now = bounds;
        if (first + lanes < end) bounds = Bounds<Offset>(problem, first + lanes + lane);
        fold_or_enqueue<Op, Offset>(problem, first, now, lane);
    }
}

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
template <class Offset> __device__ __forceinline__ void prefetch_offsets(const SegmentProblem& problem)
{
    constexpr uint64 block_segments = short_segment_warps * lanes;
    const uint64 ahead = 32 / short_segment_warps * multiprocessors(), first = (blockIdx.x + ahead) * block_segments;
    if (threadIdx.x == 0 && first < problem.rows)
        prefetch_l2(problem.second + first * sizeof(Offset),
                    uint32(min(problem.rows + 1 - first, block_segments) * sizeof(Offset)));
}

// These, whose longest has at most S steps: G lanes fold one, as many at once as make `segment_vectors` a lane or
// thirty-two segments. Numbers of 32 bits, for there is more to compute than to load.
template <class Op, int G, int S, class Fetch, class Fold>
__device__ __forceinline__ void
fold_segments(const SegmentProblem& problem, const ShortSegments& segments, Fetch fetch, Fold fold, uint32 lane)
{
    using T = typename Op::Input;
    constexpr int groups = lanes / G, N = segment_vectors / S < G ? segment_vectors / S : G, size = sizeof(T);
    constexpr uint32 V = vector_elements<T>;
    const char* origin = problem.elements + segments.origin * size;
#pragma unroll 1
    for (uint32 base = 0; base < lanes; base += N * groups) {
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

template <class Op, class Fetch, class Fold>
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
    if (longest <= lanes * V) fold_segments<Op, 32, 1>(problem, segments, fetch, fold, lane);
    else fold_segments<Op, 32, 2>(problem, segments, fetch, fold, lane);
}

template <class Op, class Offset> __device__ __forceinline__ void reduce_short_segments(const SegmentProblem& problem)
{
    using T = typename Op::Input;
    constexpr uint32 V = vector_elements<T>, step = lanes * V;
    launch_dependents();
    prefetch_offsets<Offset>(problem);
    wait_for_prerequisites();
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    const uint64 first = (uint64(blockIdx.x) * short_segment_warps + warp) * lanes;
    if (first >= problem.rows) return;
    const uint64 mine = min(first + lane, problem.rows);  // past the last segment: an empty one
    const uint64 begin = SegmentSource<Op>::template offset_at<Offset>(problem, mine);
    const uint64 end = max(begin, SegmentSource<Op>::template offset_at<Offset>(problem, min(mine + 1, problem.rows)));
    const uint64 length = end - begin, leaves = leaves_of<T>(length), origin = shuffle_from(begin, 0);
    // Of short segments in ascending order none begins further than this from the first. Offsets in another order may
    // lead anywhere, which the 32 bits of ShortSegments do not hold.
    const bool near = begin - origin <= lanes * 2 * step;
    const uint32 longest = warp_max(near ? uint32(min(length, uint64(0xffffffffu))) : 0xffffffffu);

    const ShortSegments segments{first, origin, uint32(begin - origin), uint32(length)};
    const bool by_element = sizeof(T) >= 4 && reinterpret_cast<uint64>(problem.elements) % sizeof(T) == 0;
    if (sizeof(T) >= 4 && longest <= 2 * step && by_element)
        return fold_short_segments<Op>(problem, segments, longest, load_elements_of<Op>, fold_filled<Op, SegmentSource<Op>>, lane);
    const bool inside = __all_sync(0xffffffffu, SegmentRows::inside(SegmentSource<Op>(problem, begin, end), 0, length));
    if (inside && longest <= 2 * step)
        return fold_short_segments<Op>(problem, segments, longest, load_inside, fold_vector_part<Op, SegmentSource<Op>>, lane);
    if (leaves > long_leaves) {
        const uint64 tiles = (leaves + segment_warps - 1) / segment_warps;
        const SegmentQueue queue(problem);
        const uint64 before = atomic_add_relaxed(queue.state, (uint64(1) << tile_bits) + tiles);
        const uint64 entry = before >> tile_bits, first_tile = before & ((uint64(1) << tile_bits) - 1);
        if (entry < problem.capacity) queue.entries[entry] = QueueEntry{first_tile + tiles <= problem.room ? mine : no_segment, first_tile};
    }
#pragma unroll 1
    for (uint32 i = 0; i < lanes && first + i < problem.rows; ++i) {
        // Each lane's own segment, some turns ahead, for one warp's loads are few.
        const bool next = i == 0 ? lane <= segments_ahead : lane == i + segments_ahead;
        if (next && leaves <= long_leaves) prefetch_l2(problem.elements + begin * sizeof(T), uint32(length * sizeof(T)));
        const SegmentSource<Op> source(problem, shuffle_from(begin, i), shuffle_from(end, i));
        if (source.leaf_count() > long_leaves) continue;
        const auto root = fold_segment<Op>(source, by_element, lane);
        if (lane == 0) store_result<Op>(problem, source.row, first + i, root);
    }
}

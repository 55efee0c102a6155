// The first kernel of segments: folds the short ones, a warp thirty-two of them, and puts the long ones into the queue.
#pragma once
#include "segments.cuh"

// Thirty-two short segments of a warp: each lane has one of them, as elements from the first one's beginning on.
struct ShortSegments {
    uint64 number, origin;  // the first segment's, and that of its first element
    uint32 begin, length;
};

// Vectors that a lane has in flight: half as many as elsewhere, which leaves registers for twice as many warps. There is
// much to compute between two loads, and other warps' loads fill that time.
constexpr int segment_vectors = steps / 2;

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

template <class Op, class Fetch, class Fold>
__device__ __forceinline__ void
fold_short_segments(const SegmentProblem& problem, const ShortSegments& segments, uint32 longest, Fetch fetch, Fold fold, uint32 lane)
{
    constexpr uint32 V = vector_elements<typename Op::Input>;
    if (longest <= V) fold_segments<Op, 1, 1>(problem, segments, fetch, fold, lane);
    else if (longest <= 4 * V) fold_segments<Op, 4, 1>(problem, segments, fetch, fold, lane);
    else if (longest <= lanes * V) fold_segments<Op, 32, 1>(problem, segments, fetch, fold, lane);
    else fold_segments<Op, 32, 2>(problem, segments, fetch, fold, lane);
}

template <class Op, class Offset> __device__ __forceinline__ void reduce_short_segments(const SegmentProblem& problem)
{
    using T = typename Op::Input;
    constexpr uint32 V = vector_elements<T>, step = lanes * V;
    launch_dependents();
    wait_for_prerequisites();
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    const uint64 first = (uint64(blockIdx.x) * segment_warps + warp) * lanes;
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
    if (sizeof(T) >= 4 && longest <= 2 * step && reinterpret_cast<uint64>(problem.elements) % sizeof(T) == 0) {
        const auto fetch = [](const char* address, int32 bytes) {
            return load_elements<T>(address, bytes, absent_elements<Op>());
        };
        return fold_short_segments<Op>(problem, segments, longest, fetch, fold_filled<Op, SegmentSource<Op>>, lane);
    }
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
        const SegmentSource<Op> source(problem, shuffle_from(begin, i), shuffle_from(end, i));
        const uint64 count = source.leaf_count();
        if (count > long_leaves) continue;
        WarpCounter<Op> counter;
#pragma unroll 1
        for (uint64 leaf = 0; leaf < count; ++leaf)
            counter.push(row_leaf_fold<Op, SegmentRows>(source, leaf, source.is_whole(), lane), lane);
        const auto root = counter.result();
        if (lane == 0) store_result<Op>(problem, source.row, first + i, root);
    }
}

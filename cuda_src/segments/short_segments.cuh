// How a warp folds thirty-two short segments at once: with as many lanes for each as the longest of them needs.
#pragma once
#include "segments/segment_leaf.cuh"

// Thirty-two short segments of a warp: each lane holds one of them, in elements from the beginning of the first one.
struct ShortSegments {
    uint64 number, origin;  // of the first segment, and of its first element
    uint32 begin, length;
};

// Vectors that a lane has in flight: half as many as elsewhere, which leaves registers for twice as many warps. There is much
// to compute between two loads, and the loads of other warps fill that time.
constexpr int segment_vectors = steps / 2;

// Folds and stores those of number `base` to `end`, of which none has more than S steps: G lanes fold one, and as many are
// folded at once as make `segment_vectors` a lane or thirty-two segments. All 32 lanes call it. Numbers have 32 bits, because
// there is more to compute than to load.
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

// The same for elements of four bytes and segments of at most two steps: by 16-byte blocks where they lie inside the array.
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

// The same where K vectors hold the longest segment: each lane folds its own, without a shuffle.
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

// Folds and stores all thirty-two, of at most two steps each; `fetch` loads a vector and `fold` folds it. With `Words` elements
// are of four bytes, at multiples of four bytes.
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

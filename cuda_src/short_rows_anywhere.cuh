// A warp's rows of at most one leaf, wherever they begin and however their elements lie.
#pragma once
#include "shape.cuh"

// The pivot of the row that a lane's group of G lanes folds. The row's first element is in the first vector of the group's lane
// 0, so a shuffle brings it: a load of its own would take another round trip to the L2. A pivot that is given is loaded.
template <class Op, int G, class SourceOf>
__device__ __forceinline__ typename Op::Pivot pivot_of(SourceOf source_of, int row, uint4 first_vector, uint32 lane)
{
    using T = typename Op::Input;
    if constexpr (is_same<typename Op::Pivot, Unused>) {
        return {};
    } else if constexpr (Op::pivot_is_given) {
        return source_of(row, true).row.pivot;
    } else {
        union { uint4 raw; uint32 words[vector_bytes / 4]; T first; } u;
        u.raw = first_vector;
#pragma unroll
        for (uint32 i = 0; i < (sizeof(T) + 3) / 4; ++i) u.words[i] = shuffle_from(u.words[i], lane / G * G);
        return Op::pivot(u.first);
    }
}

// Folds N rows at once, each by G lanes in S steps, `AtOnce` vectors of a lane in flight: `fetch` loads the vector at an
// element of a source, of which so many bytes exist, and `fold` folds it. a[i] becomes the lane's part of the i-th row, pivots[i]
// its pivot.
template <class Op, int G, int N, int S, int AtOnce, class SourceOf, class Fetch, class Fold>
__device__ __forceinline__ void
fold_short_rows(SourceOf source_of, Fetch fetch, Fold fold, typename Op::Accumulator* a, typename Op::Pivot* pivots, uint32 lane)
{
    const auto index_of = [=](int t) { return (t * lanes + lane % G) * vector_elements<typename Op::Input>; };
    typename Op::Accumulator part[N * S];
#pragma unroll
    for (int first = 0; first < N * S; first += AtOnce) {
        uint4 v[AtOnce];
#pragma unroll
        for (int k = 0; k < AtOnce; ++k) {
            const auto source = source_of((first + k) / S);
            const uint32 index = index_of((first + k) % S);
            v[k] = fetch(source, index, present_bytes<Op>(source, index));
        }
#pragma unroll
        for (int k = first; k < first + AtOnce; ++k)
            if (k % S == 0) pivots[k / S] = pivot_of<Op, G>(source_of, k / S, v[k - first], lane);
#pragma unroll
        for (int k = first; k < first + AtOnce; ++k) {
            auto source = source_of(k / S);
            source.row.pivot = pivots[k / S];
            const uint32 index = index_of(k % S);
            part[k] = fold(source, v[k - first], index, present_bytes<Op>(source, index));
            if (k % S == S - 1) a[k / S] = fold_array<Op, S>(part + k / S * S);
        }
        if (AtOnce < N * S) __syncwarp();  // orders nothing: it keeps the compiler from holding all vectors at once
    }
}

// One row by G lanes, in compact code: for the few at the array's edges. All 32 lanes call it, each group with a row of its
// own; every lane of the group holds the result.
template <class Op, class Rows, int G, int S, class S1>
__device__ __forceinline__ typename Op::Accumulator fold_edge_row(const S1& source, uint32 lane)
{
    constexpr uint32 V = vector_elements<typename Op::Input>;
    typename Op::Accumulator part[S];
#pragma unroll
    for (int t = 0; t < S; ++t) {
        const uint64 index = (t * lanes + lane % G) * V;
        const int32 bytes = present_bytes<Op>(source, index);
        part[t] = fold_present<Op>(source, Rows::fetch_edge(source, index, bytes), index, bytes);
    }
    return warp_fold<Op, G>(fold_array<Op, S>(part));
}

// Whether all 16-byte blocks that the warp's rows touch lie inside the array. Rows may lie in any order, so each is checked.
template <class Rows, int N, class SourceOf> __device__ __forceinline__ bool all_inside(SourceOf source_of)
{
    bool inside = true;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const auto source = source_of(i);
        inside = inside && Rows::inside(source, 0, source.row.length);
    }
    return __all_sync(0xffffffffu, inside);
}

// A warp's short rows at any address, or of strided elements, in the fastest way that is allowed: a[i] becomes the lane's part of
// the i-th row of its group, pivots[i] its pivot. Or, at the array's edges, stores the results and returns false.
template <class Op, class Rows, int G, int N, int S, class SourceOf>
__device__ __forceinline__ bool
fold_rows_anywhere(const ShapedProblem& problem, SourceOf source_of, typename Op::Accumulator* a, typename Op::Pivot* pivots,
                   uint64 first_row, uint32 last, uint32 lane)
{
    using RowSource = ShapedSource<Op, typename Rows::Kept, Rows::where>;
    constexpr int few = sizeof(typename Op::Accumulator) > 8 ? 2 : 4, at_once = N * S < few ? N * S : few;  // of several loads
    constexpr uint32 groups = lanes / G;
    const bool placed = seconds_are_placed<Op>(problem);
    if (placed && Rows::template by_element<typename Op::Input>(problem)) {
        fold_short_rows<Op, G, N, S, at_once>(
            source_of, Rows::template fetch_elements<RowSource>, fold_filled<Op, RowSource>, a, pivots, lane);
        return true;
    }
    if (!are_words<typename Op::Input> && placed && all_inside<Rows, N>(source_of)) {
        fold_short_rows<Op, G, N, S, at_once>(
            source_of, Rows::template fetch_inside<RowSource>, fold_vector_part<Op, RowSource>, a, pivots, lane);
        return true;
    }
#pragma unroll 1
    for (int i = 0; i < N; ++i) {
        const uint32 past = i * groups + lane / G;
        const auto source = with_seconds_anyhow<Op>(source_of(i, true));
        const auto value = fold_edge_row<Op, Rows, G, S>(source, lane);
        if (lane % G == 0 && past <= last) store_result<Op>(problem, source.row, first_row + past, value);
    }
    return false;
}

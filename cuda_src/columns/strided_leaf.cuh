// One lane's part of a leaf whose elements are not contiguous: vectors from runs of elements, or elements one by one.
#pragma once
#include "columns/strided_steps.cuh"

// The number of a leaf's first element, and where it and the second array's lie.
struct LeafPlace {
    uint64 first;
    const char *begin, *second;
};
template <class Op, class S> __device__ __forceinline__ LeafPlace place_of_leaf(const S& source, uint64 first)
{
    const char* begin = source.begin + source.problem.reduced.offset(first, false);
    return {first, begin, has_second<Op> ? source.second_at(first) : nullptr};
}

// The lane's part of a leaf of whole vectors, whose elements are near each other.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator lane_fold_vectors(const S& source, LeafPlace leaf, uint32 lane)
{
    constexpr uint32 V = vector_elements<typename Op::Input>, N = has_second<Op> ? steps / 2 : steps;
    const ReducedAxes& axes = source.problem.reduced;
    return lane_fold_by<Op, N>(source, leaf.first, lane, [=, &axes](uint4* v, Seconds<Op>* y, uint32 begun, uint32 count) {
        uint32 past[N];
        int32 offsets[N], seconds[N];
#pragma unroll
        for (uint32 t = 0; t < N; ++t) past[t] = min(begun + (t * lanes + lane) * V, count - V);
        axes.near_offsets<N, has_second<Op>>(leaf.first, past, offsets, seconds);
#pragma unroll
        for (uint32 t = 0; t < N; ++t)
            v[t] = load_streaming_if(begun + (t * lanes + lane) * V < count, reinterpret_cast<const uint4*>(leaf.begin + offsets[t]),
                                     absent_elements<Op>());
        if constexpr (has_second<Op>)
#pragma unroll
            for (uint32 t = 0; t < N; ++t)
                y[t].whole = __ldg(reinterpret_cast<const decltype(y[t].whole)*>(leaf.second + seconds[t]));
    });
}

// Whether elements come in runs of a vector's length or more, so that the elements of a vector are in two runs at most.
template <class Op> __device__ __forceinline__ bool are_in_long_runs(const ReducedAxes& reduced)
{
    return reduced.count <= 1 || reduced.size[0] >= vector_elements<typename Op::Input>;
}

// Loads V elements of each of N vectors, `stride` bytes apart, the first left[t] of the t-th offsets[t] bytes past `begin` and
// the others from offsets[N + t] on.
template <class E, uint32 V, uint32 N, class Vector>
__device__ __forceinline__ void
gather_from_two_runs(Vector* v, const char* begin, int64 stride, const int32* offsets, const uint32* left)
{
#pragma unroll
    for (uint32 i = 0; i < V; ++i, begin += stride)
#pragma unroll
        for (uint32 t = 0; t < N; ++t) {
            const int32 next = int32(uint32(offsets[N + t]) - left[t] * uint32(stride));
            v[t].elements[i] = load_aligned<E>(begin + (i < left[t] ? offsets[t] : next));
        }
}

// The lane's part of a whole leaf of elements of one or two bytes in such runs, near each other and each at a multiple of its
// size: for a vector two addresses are computed instead of eight or sixteen.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator lane_fold_runs(const S& source, LeafPlace leaf, uint32 lane)
{
    using T = typename Op::Input;
    constexpr uint32 V = vector_elements<T>, N = (has_second<Op> ? 16 : 32) / V;
    const ReducedAxes& axes = source.problem.reduced;
    return lane_fold_by<Op, N, true>(source, leaf.first, lane, [=, &axes](uint4* v, Seconds<Op>* y, uint32 begun, uint32) {
        uint32 past[2 * N], left[N];  // of the vectors, then of the elements that begin the next run
        int32 offsets[2 * N], seconds[2 * N];
#pragma unroll
        for (uint32 t = 0; t < N; ++t) past[t] = begun + (t * lanes + lane) * V;
        axes.left_in_runs<N>(leaf.first, past, V, left);
#pragma unroll
        for (uint32 t = 0; t < N; ++t) past[N + t] = past[t] + left[t];
        axes.near_offsets<2 * N, has_second<Op>>(leaf.first, past, offsets, seconds);
        union { T elements[V]; uint4 raw; } u[N];
        gather_from_two_runs<T, V, N>(u, leaf.begin, axes.stride[0], offsets, left);
        if constexpr (has_second<Op>)
            gather_from_two_runs<typename Op::Second, V, N>(y, leaf.second, axes.second_stride[0], seconds, left);
#pragma unroll
        for (uint32 t = 0; t < N; ++t) v[t] = u[t].raw;
    });
}

// Elements that a lane has in flight at once where each has an address of its own.
constexpr uint32 gathered_at_once = 16;

// The lane's part of a leaf of elements that are near each other, and each at a multiple of its size. In place of absent
// elements the last one is loaded: a load under a condition would wait for the one before it.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator lane_fold_gathered(const S& source, LeafPlace leaf, uint32 lane)
{
    using T = typename Op::Input;
    constexpr uint32 V = vector_elements<T>, N = V > gathered_at_once / (steps / 2) ? gathered_at_once / V : steps / 2;
    const ReducedAxes& axes = source.problem.reduced;
    return lane_fold_by<Op, N>(source, leaf.first, lane, [=, &axes](uint4* v, Seconds<Op>* y, uint32 begun, uint32 count) {
        uint32 past[N * V];
        int32 offsets[N * V], seconds[N * V];
#pragma unroll
        for (uint32 i = 0; i < N * V; ++i) past[i] = min(begun + (i / V * lanes + lane) * V + i % V, count - 1);
        axes.near_offsets<N * V, has_second<Op>>(leaf.first, past, offsets, seconds);
        VectorOf<T> u;
#pragma unroll
        for (uint32 t = 0; t < N; ++t) {
#pragma unroll
            for (uint32 i = 0; i < V; ++i) u.elements[i] = load_aligned<T>(leaf.begin + offsets[t * V + i]);
            v[t] = u.raw;
        }
        if (is_filled<Op> && begun + N * lanes * V > count)
#pragma unroll
            for (uint32 t = 0; t < N; ++t)
                v[t] = fill_absent<Op>(v[t], int32(count - begun - (t * lanes + lane) * V) * int32(sizeof(T)));
        if constexpr (has_second<Op>)
#pragma unroll
            for (uint32 i = 0; i < N * V; ++i)
                y[i / V].elements[i % V] = load_aligned<typename Op::Second>(leaf.second + seconds[i]);
    });
}

// The lane's part of a leaf of elements that are near each other, and each at a multiple of its size, in the fastest way.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator
lane_fold_strided(const S& source, uint64 first, bool in_vectors, uint32 lane)
{
    using T = typename Op::Input;
    const LeafPlace leaf = place_of_leaf<Op>(source, first);
    if (in_vectors) return lane_fold_vectors<Op>(source, leaf, lane);
    if constexpr (sizeof(T) <= 2) {
        const bool is_whole = source.row.length - first >= leaf_elements<T>;
        if (is_whole && are_in_long_runs<Op>(source.problem.reduced)) return lane_fold_runs<Op>(source, leaf, lane);
    }
    return lane_fold_gathered<Op>(source, leaf, lane);
}

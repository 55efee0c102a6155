// The step level within a lane: folds the vectors of a leaf that it holds, and the elements of a second array beside them.
#pragma once
#include "tree/leaf_loads.cuh"

// Loads the second array's elements that go with the first N vectors that a lane holds of a leaf, all in flight at once;
// element `first` is the leaf's first. load_present_seconds does so for the vectors, whole ones, that are `present(t)`.
template <class Op, uint32 N, class S>
__device__ __forceinline__ void load_seconds(Seconds<Op>* y, const S& source, uint64 first, uint32 lane)
{
#pragma unroll
    for (uint32 t = 0; t < N; ++t) y[t] = seconds_of<Op>(source, first + (t * lanes + lane) * Seconds<Op>::V);
}
template <class Op, uint32 N, class S, class Present>
__device__ __forceinline__ void
load_present_seconds(Seconds<Op>* y, const S& source, uint64 first, uint32 lane, Present present)
{
#pragma unroll
    for (uint32 t = 0; t < N; ++t)
        y[t] = seconds_if<Op>(present(t), source, first + (t * lanes + lane) * Seconds<Op>::V);
}

// Whether a lane lacks the registers to fold several vectors of a leaf at once, because they make many wide accumulators.
template <class Op>
constexpr bool folds_one_vector_at_once = sizeof(typename Op::Accumulator) > 8 &&
    vector_elements<typename Op::Input> > (is_same<typename Op::Accumulator, compensated> ? 4 : 8);

// A source whose elements cannot be folded before all vectors of a leaf are there. Else ptxas, for want of registers, moves some of
// the loads behind the folds of vectors that come before, and a warp waits for memory twice or three times. Where few warps share
// the device, that loses less than waiting for the last vector does (benchmarks/NOTES.md, "Moments of two bytes").
template <class S> struct FoldedWhenThere : S {
    static constexpr bool waits_for_all = true;
    __device__ __forceinline__ explicit FoldedWhenThere(const S& source) : S(source) {}
};

// The same source, with a pivot that the compiler must take to be made here, behind the loads of N vectors. If the source waits for
// all of these, it takes a bit of each that is 0, which the compiler must not know.
template <class Op, uint32 N, class S> __device__ __forceinline__ S with_pivot_behind(const uint4* v, S source)
{
    if constexpr (S::waits_for_all && !is_same<typename Op::Pivot, Unused> && !Op::folds_with_row) {
        uint32 bits = 0;
#pragma unroll
        for (uint32 t = 0; t < N; ++t) bits |= v[t].x;
        union { typename Op::Pivot pivot; uint32 words[(sizeof(typename Op::Pivot) + 3) / 4]; } u;
        u.pivot = source.row.pivot;
        u.words[0] |= bits & uint32(source.row.length >> 63);
        source.row.pivot = u.pivot;
        return source;
    } else {
        return with_pivot_from_here(source);
    }
}

// The step level over N vectors and their second elements.
template <class Op, uint32 N, class S>
__device__ __forceinline__ typename Op::Accumulator
fold_vectors(const S& source, const uint4* v, const Seconds<Op>* y, uint64 first, uint32 lane)
{
    constexpr uint32 V = vector_elements<typename Op::Input>;
    if constexpr (Op::folds_vectors) {
        return Op::template fold_leaf<N>(v, first + lane * V);
    } else {
        typename Op::Accumulator a[N];
#pragma unroll
        for (uint32 t = 0; t < N; ++t) {
            a[t] = fold_vector<Op>(source, v[t], y[t], first + (t * lanes + lane) * V);
            if (folds_one_vector_at_once<Op>) __syncwarp();  // orders nothing: it keeps the compiler to one at a time
        }
        return fold_array<Op, N>(a);
    }
}
template <class Op, uint32 N, class S>
__device__ __forceinline__ typename Op::Accumulator
fold_vectors(const S& source, const uint4* v, uint64 first, uint32 lane)
{
    Seconds<Op> y[N];
    load_seconds<Op, N>(y, source, first, lane);
    return fold_vectors<Op, N>(source, v, y, first, lane);
}

// The same over all steps of a leaf.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator fold_steps(const S& source, const uint4* v, uint64 first, uint32 lane)
{
    if constexpr (Op::folds_leaves) return Op::fold_leaf(v, first + lane * vector_elements<typename Op::Input>);
    else return fold_vectors<Op, steps>(source, v, first, lane);
}

// The folds of N vectors and their second elements, where those that are not `present(t)` are absent.
template <class Op, uint32 N, class S, class Present>
__device__ __forceinline__ void
fold_each_present(const S& source, const uint4* v, const Seconds<Op>* y, uint64 first, uint32 lane, Present present,
                  typename Op::Accumulator* a)
{
#pragma unroll
    for (uint32 t = 0; t < N; ++t)
        a[t] = fold_if<Op>(present(t), source, v[t], y[t], first + (t * lanes + lane) * vector_elements<typename Op::Input>);
}

// Of N times 32 vectors from `begin` on, of which the row has `bytes` bytes: the fold of the one that the row's end cuts, if
// one is cut, into its place among the lane's N. `first` is the number of the first element.
template <class Op, uint32 N, class S>
__device__ __forceinline__ void
fold_cut_vector(const S& source, const char* begin, uint64 first, int32 bytes, uint32 lane, typename Op::Accumulator* a)
{
    using T = typename Op::Input;
    const int32 whole = bytes / int32(vector_bytes), rest = bytes % int32(vector_bytes);
    if (rest <= 0 || whole >= int32(N * lanes)) return;
    const bool is_mine = lane == whole % lanes;
    const uint4 raw = load_elements<T>(begin + whole * vector_bytes, is_mine ? rest : 0, absent_elements<Op>());
    const auto part = fold_vector_part<Op>(source, raw, first + whole * vector_elements<T>, is_mine ? rest : 0);
#pragma unroll
    for (uint32 t = 0; t < N; ++t) a[t] = select(is_mine && t == whole / lanes, part, a[t]);
}

// The step level over all steps where only the first `bytes` bytes of the leaf at `begin` exist, and there is no second array.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator
fold_present_steps(const S& source, const char* begin, uint4* v, uint64 first, uint32 bytes, uint32 lane)
{
    if constexpr (Op::folds_leaves) {
        const auto present = [=](uint32 t) { return (t * lanes + lane) * vector_bytes < bytes; };
#pragma unroll
        for (uint32 t = 1; t < steps; ++t) v[t] = select(present(t), v[t], v[0]);
        return select(present(0), fold_steps<Op>(source, v, first, lane), Op::identity());
    } else {
        const Seconds<Op> y[steps] = {};
        typename Op::Accumulator a[steps];
        const auto present = [=](uint32 t) { return t * lanes + lane < bytes / vector_bytes; };
        fold_each_present<Op, steps>(source, v, y, first, lane, present, a);
        if constexpr (S::may_be_cut) fold_cut_vector<Op, steps>(source, begin, first, int32(bytes), lane, a);
        return fold_array<Op, steps>(a);
    }
}

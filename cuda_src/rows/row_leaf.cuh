// One leaf of a row, folded by one warp, wherever the row's elements lie.
#pragma once
#include "tree/leaf.cuh"
#include "columns/strided_leaf.cuh"

// How elements lie in all rows of a launch.
struct Placed {
    bool by_element;  // elements are words, and aligned; of strided rows, those of both arrays are aligned
    bool seconds;     // those of a second array lie as `seconds_are_placed` says, or there is none
    bool in_vectors;  // of strided rows: those of both arrays come in vectors
};

template <class Op, class Rows> __device__ __forceinline__ Placed placed_in(const ShapedProblem& problem)
{
    if constexpr (Rows::where == Begin::aligned) return {};
    else if constexpr (!Rows::are_contiguous) return {are_aligned<Op>(problem), false, are_in_vectors<Op>(problem)};
    else return {Rows::are_contiguous && Rows::template by_element<typename Op::Input>(problem), seconds_are_placed<Op>(problem)};
}

// The lane's part of a leaf of words. A load for each element, all in flight at once, costs less than
// shifting what neighbours loaded, and no edge needs special care (benchmarks/NOTES.md, "Rows at any address").
template <class Op, class Rows, bool IsFull, class S>
__device__ __forceinline__ typename Op::Accumulator lane_fold_elements(const S& source, uint64 first, uint32 lane)
{
    const auto index_of = [=](uint32 t) { return first + (t * lanes + lane) * vector_elements<typename Op::Input>; };
    const auto bytes_of = [&](uint32 t) { return IsFull ? int32(vector_bytes) : present_bytes<Op>(source, index_of(t)); };
    uint4 v[steps];
#pragma unroll
    for (uint32 t = 0; t < steps; ++t) v[t] = Rows::fetch_elements(source, index_of(t), bytes_of(t));
    const auto ready = with_pivot_from_here(source);
    if constexpr (IsFull || fills_absent<Op>) {
        return fold_steps<Op>(ready, v, first, lane);
    } else {
        typename Op::Accumulator a[steps];
#pragma unroll
        for (uint32 t = 0; t < steps; ++t) a[t] = fold_filled<Op>(ready, v[t], index_of(t), bytes_of(t));
        return fold_array<Op, steps>(a);
    }
}

// The lane's part of a whole leaf at any address, if the 16-byte blocks that it begins and ends in lie in the array.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator
lane_fold_shifted(const S& source, const char* leaf, uint64 first, uint32 lane)
{
    const uint32 shift = uint32(reinterpret_cast<uint64>(leaf)) % vector_bytes;
    uint4 v[steps];
    load_shifted_halves(v, leaf - shift, shift, lane);
    return fold_steps<Op>(with_pivot_from_here(source), v, first, lane);
}

// The lane's part of any leaf whose vectors can all be fetched: half of it at a time; with a second array a quarter.
template <class Op, class Rows, class S>
__device__ __forceinline__ typename Op::Accumulator lane_fold_inside(const S& source, uint64 first, uint32 lane)
{
    constexpr uint32 at_once = has_second<Op> ? steps / 4 : steps / 2;
    const auto index_of = [=](uint32 t) { return first + (t * lanes + lane) * vector_elements<typename Op::Input>; };
    LaneCounter<Op, log2_of(steps / at_once)> counter;
#pragma unroll(has_second<Op> ? 1 : steps / at_once)
    for (uint32 base = 0; base < steps; base += at_once) {
        uint4 v[at_once];
        typename Op::Accumulator a[at_once];
#pragma unroll
        for (uint32 t = 0; t < at_once; ++t)
            v[t] = Rows::fetch_inside(source, index_of(base + t), present_bytes<Op>(source, index_of(base + t)));
        const auto ready = with_pivot_from_here(source);
#pragma unroll
        for (uint32 t = 0; t < at_once; ++t) {
            const uint64 index = index_of(base + t);
            a[t] = fold_present<Op>(ready, v[t], index, present_bytes<Op>(source, index));
        }
        counter.push(fold_array<Op, at_once>(a), base / at_once);
        __syncwarp();  // orders nothing: it keeps the compiler from holding all steps in registers at once
    }
    return counter.result();
}

// The lane's part of a whole leaf of two arrays whose elements are contiguous, at any address: of both, vectors are joined from
// the 16-byte blocks that they lie in, half a leaf at a time. All these blocks lie in the arrays.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator lane_fold_both(const S& source, const char* leaf, uint64 first, uint32 lane)
{
    constexpr uint32 at_once = steps / 2;
    const auto joined = [=](const uint4 (&low)[at_once], const uint4 (&high)[at_once], uint32 t, const char* array) {
        return shift_bytes(low[t], high[t], uint32(reinterpret_cast<uint64>(array)) % vector_bytes);
    };
    const auto load = [=](uint4 (&low)[at_once], uint4 (&high)[at_once], uint32 base, const char* array) {
        const auto* block = reinterpret_cast<const uint4*>(array - uint32(reinterpret_cast<uint64>(array)) % vector_bytes) + lane;
#pragma unroll
        for (uint32 t = 0; t < at_once; ++t) {
            low[t] = __ldg(block + lanes * (base + t));
            high[t] = __ldg(block + lanes * (base + t) + 1);
        }
    };
    const char* second = source.second_at(first);
    LaneCounter<Op, log2_of(steps / at_once)> counter;
#pragma unroll 1
    for (uint32 base = 0; base < steps; base += at_once) {
        typename Op::Accumulator a[at_once];
        uint4 low[at_once], high[at_once], second_low[at_once], second_high[at_once];
        load(low, high, base, leaf);
        load(second_low, second_high, base, second);
        const auto ready = with_pivot_from_here(source);
#pragma unroll
        for (uint32 t = 0; t < at_once; ++t) {
            union { uint4 raw; Seconds<Op> seconds; } y;
            y.raw = joined(second_low, second_high, t, second);
            a[t] = fold_vector<Op>(ready, joined(low, high, t, leaf), y.seconds,
                                   first + ((base + t) * lanes + lane) * vector_elements<typename Op::Input>);
        }
        counter.push(fold_array<Op, at_once>(a), base / at_once);
    }
    return counter.result();
}

// The lane's part of any leaf at all, in compact code: of two arrays, where the second's elements are not placed, or at edges
// of the first.
template <class Op, class Rows, class S>
__device__ __forceinline__ typename Op::Accumulator lane_fold_anyhow(const S& source, uint64 first, uint32 lane)
{
    const auto anyhow = with_seconds_anyhow<Op>(source);
    LaneCounter<Op, log2_of(steps)> counter;
#pragma unroll 1
    for (uint32 t = 0; t < steps; ++t) {
        const uint64 index = first + (t * lanes + lane) * vector_elements<typename Op::Input>;
        const int32 bytes = present_bytes<Op>(source, index);
        counter.push(fold_present<Op>(anyhow, Rows::fetch_edge(anyhow, index, bytes), index, bytes), t);
    }
    return counter.result();
}

// The lane's part of the leaf of a row whose elements are contiguous, and beside which there is no second array.
template <class Op, class Rows, class S>
__device__ __forceinline__ typename Op::Accumulator
lane_fold_of_row(const S& source, uint64 first, Placed placed, uint32 lane)
{
    using T = typename Op::Input;
    const char* begin = source.begin + first * sizeof(T);
    const uint64 rest = (source.row.length - first) * sizeof(T);
    const bool is_full = rest >= leaf_bytes;
    if constexpr (are_words<T>) {
        // Words that are not aligned are rare. Code as fast for them would take registers that the others need.
        if (!placed.by_element) return lane_fold_anyhow<Op, Rows>(source, first, lane);
        return is_full ? lane_fold_elements<Op, Rows, true>(source, first, lane)
                       : lane_fold_elements<Op, Rows, false>(source, first, lane);
    } else {
        if (!Rows::inside(source, first, min(source.row.length - first, uint64(leaf_elements<T>))))
            return lane_fold_edge<Op>(source, begin, first, rest, lane);
        return is_full ? lane_fold_shifted<Op>(source, begin, first, lane) : lane_fold_inside<Op, Rows>(source, first, lane);
    }
}

// One leaf of a row by one warp; the identity for a leaf past the end. All 32 lanes call it with the same leaf, after
// wait_for_prerequisites; every lane holds the result.
template <class Op, class Rows, class S>
__device__ __forceinline__ typename Op::Accumulator
row_leaf_fold(const S& source, uint64 leaf, Placed placed, uint32 lane)
{
    using T = typename Op::Input;
    if constexpr (Rows::where == Begin::aligned) {
        return leaf_fold<Op>(source, leaf, lane);
    } else {
        const uint64 first = leaf * leaf_elements<T>;
        if (first >= source.row.length) return Op::identity();
        typename Op::Accumulator value;
        if constexpr (!Rows::are_contiguous) {
            const ShapedProblem& problem = source.problem;
            if (placed.by_element && (problem.far == 0 || problem.reduced.is_near(first, leaf_elements<T>)))
                value = lane_fold_strided<Op>(source, first, placed.in_vectors, lane);
            else value = lane_fold_anyhow<Op, Rows>(source, first, lane);
        } else if constexpr (!has_second<Op>) {
            value = lane_fold_of_row<Op, Rows>(source, first, placed, lane);
        } else {
            constexpr uint32 V = vector_elements<T>;
            const uint64 count = min(source.row.length - first, uint64(leaf_elements<T>));
            if constexpr (is_same<typename Op::Second, T> && sizeof(T) <= 2) {
                // Elements of the row before and after the leaf are in both arrays.
                if (placed.seconds && source.second_step() == sizeof(T) && first >= V && first + leaf_elements<T> + V <= source.row.length)
                    return warp_fold<Op>(lane_fold_both<Op>(source, source.begin + first * sizeof(T), first, lane));
            }
            if (placed.seconds && Rows::inside(source, first, count)) value = lane_fold_inside<Op, Rows>(source, first, lane);
            else value = lane_fold_anyhow<Op, Rows>(source, first, lane);
        }
        return warp_fold<Op>(value);
    }
}

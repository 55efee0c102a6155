// How strided elements lie, and the fold of a lane's vectors of them, so many at a time.
#pragma once
#include "tree/leaf.cuh"
#include "columns/shape.cuh"

// Whether all elements of all rows, and those of a second array, lie at multiples of their size.
template <class Op> __device__ __forceinline__ bool are_aligned(const ShapedProblem& p)
{
    const auto bits = reinterpret_cast<uint64>(p.elements) | p.apart | p.reduced.stride[0];
    if (bits % sizeof(typename Op::Input) != 0) return false;
    if constexpr (!has_second<Op>) return true;
    const auto second_bits = reinterpret_cast<uint64>(p.second) | p.second_apart | p.reduced.second_stride[0];
    return second_bits % sizeof(typename Op::Second) == 0;
}

// Whether they come in runs of whole vectors, and those of the second array beside each vector are an aligned vector too.
template <class Op> __device__ __forceinline__ bool are_in_vectors(const ShapedProblem& p)
{
    if (!StridedRows::in_vectors<typename Op::Input>(p)) return false;
    if constexpr (!has_second<Op>) return true;
    else return p.reduced.second_stride[0] == sizeof(typename Op::Second) &&
                (reinterpret_cast<uint64>(p.second) | p.second_apart) % Seconds<Op>::bytes == 0;
}

// Whether absent elements of gathered vectors are filled in.
template <class Op> constexpr bool is_filled = fills_absent<Op> && !has_second<Op>;

// A vector of which `bytes` bytes exist, with absent elements in place of the others.
template <class Op> __device__ __forceinline__ uint4 fill_absent(uint4 v, int32 bytes)
{
    const uint4 absent = absent_elements<Op>();
    if constexpr (sizeof(typename Op::Input) < 4) return join_bytes(v, absent, bytes);
    return make_uint4(bytes > 0 ? v.x : absent.x, bytes > 4 ? v.y : absent.y, bytes > 8 ? v.z : absent.z,
                      bytes > 12 ? v.w : absent.w);
}

// The fold of N of the lane's vectors and their second elements from element `first` on. Only `count` elements exist, unless
// `IsWhole`; others are absent elements if is_filled.
template <class Op, uint32 N, bool IsWhole, class S>
__device__ __forceinline__ typename Op::Accumulator
fold_counted(const S& source, uint4* v, const Seconds<Op>* y, uint64 first, uint32 count, uint32 lane)
{
    using T = typename Op::Input;
    constexpr uint32 V = vector_elements<T>;
    const auto whole = [&] {
        if constexpr (N == steps) return fold_steps<Op>(source, v, first, lane);
        else return fold_vectors<Op, N>(source, v, y, first, lane);
    };
    if constexpr (IsWhole || is_filled<Op>) {
        return whole();
    } else {
        if (count >= N * lanes * V) return whole();
        typename Op::Accumulator a[N];
#pragma unroll
        for (uint32 t = 0; t < N; ++t) {
            const uint64 index = first + (t * lanes + lane) * V;
            const int32 bytes = int32(count - (t * lanes + lane) * V) * int32(sizeof(T));
            if constexpr (has_second<Op>) {
                const VectorOf<T> u = {v[t]};
                a[t] = fold_elements<Op, 0, V, false>(source, u.elements, y[t].elements, index, bytes);
            } else {
                a[t] = fold_vector_part<Op>(source, v[t], index, bytes);
            }
        }
        return fold_array<Op, N>(a);
    }
}

// The lane's part of a leaf, N of its vectors at a time: load(v, y, past, count) brings those from `past` elements on, of `count`
// in all. Where all of them are absent nothing is loaded.
template <class Op, uint32 N, bool IsWhole = false, class S, class Load>
__device__ __forceinline__ typename Op::Accumulator lane_fold_by(const S& source, uint64 first, uint32 lane, Load load)
{
    constexpr uint32 V = vector_elements<typename Op::Input>;
    const uint32 count = uint32(min(source.row.length - first, uint64(leaf_elements<typename Op::Input>)));
    LaneCounter<Op, log2_of(steps / N)> counter;
#pragma unroll 1
    for (uint32 round = 0; round < steps / N; ++round) {
        const uint32 past = round * (N * lanes * V);
        auto value = Op::identity();
        if (IsWhole || past < count) {
            uint4 v[N];
            Seconds<Op> y[N];
            load(v, y, past, count);
            value = fold_counted<Op, N, IsWhole>(with_pivot_from_here(source), v, y, first + past, count - past, lane);
        }
        counter.push(value, round);
    }
    return counter.result();
}

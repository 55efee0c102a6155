// One 16-byte vector in registers: the slot level of the tree, and what folds the vectors of one thread.
#pragma once
#include "tree/seconds.cuh"

__host__ __device__ constexpr int log2_of(int n) { return n <= 1 ? 0 : 1 + log2_of(n / 2); }

// Balanced fold of a register array whose length is a power of two; overwrites the array.
template <class Op, uint32 N> __device__ __forceinline__ typename Op::Accumulator fold_array(typename Op::Accumulator* a)
{
#pragma unroll
    for (uint32 width = N; width > 1; width /= 2)
#pragma unroll
        for (uint32 i = 0; i < width / 2; ++i) a[i] = combine_neighbours<Op>(a[2 * i], a[2 * i + 1]);
    return a[0];
}

// A binary counter in a thread's registers, for at most 2^Levels values in order.
template <class Op, int Levels> struct LaneCounter {
    using A = typename Op::Accumulator;
    static constexpr int count = Levels > 0 ? Levels : 1;
    A digits[count];

    // Digits are written before they are used. They must also be before a loop in which counters change places: from -O1 on,
    // ptxas (12.9 to 13.5) confuses registers that go round in a loop if they were not written before it, used or not.
    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int k = 0; k < count; ++k) digits[k] = Op::identity();
    }

    // Returns the fold of all values in the largest subtree that this one completes.
    __device__ __forceinline__ A push(A value, uint32 before)
    {
        bool carry = true;
#pragma unroll
        for (int k = 0; k < Levels; ++k) {
            const bool occupied = before >> k & 1u;
            if (carry && occupied) value = combine_neighbours<Op>(digits[k], value);
            else if (carry) digits[k] = value;
            carry = carry && occupied;
        }
        if (carry) digits[0] = value;
        return value;
    }
    __device__ __forceinline__ A result() const { return digits[0]; }
};

// The slot level of elements First to First + Count - 1 of a vector, Count a power of two, of which `bytes` bytes exist. Depth
// first, so that a thread holds few accumulators at a time.
template <class Op, uint32 First, uint32 Count, bool Whole, class S>
__device__ __forceinline__ typename Op::Accumulator
fold_elements(const S& source, const typename Op::Input* x, const typename Op::Second* y, uint64 index, int32 bytes)
{
    if constexpr (Count == 1) {
        if (Whole || int32(First * sizeof(typename Op::Input)) < bytes) return source.map(x[First], y[First], index + First);
        return Op::identity();
    } else {
        const auto a = fold_elements<Op, First, Count / 2, Whole>(source, x, y, index, bytes);
        return combine_neighbours<Op>(a, fold_elements<Op, First + Count / 2, Count / 2, Whole>(source, x, y, index, bytes));
    }
}

// Whether a source is that of an aligned array. Other structs that map elements do not say so.
template <class S> __device__ constexpr auto is_of_aligned(int) -> decltype(S::is_aligned) { return S::is_aligned; }
template <class S> __device__ constexpr bool is_of_aligned(long) { return false; }

// The slot level: one whole vector, whose first element has number `index` in its row, and the second array's elements beside
// it. The source maps the elements.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator
fold_vector(const S& source, uint4 raw, const Seconds<Op>& seconds, uint64 index)
{
    using T = typename Op::Input;
    constexpr uint32 V = vector_elements<T>;
    if constexpr (Op::packed || Op::folds_whole_vectors) {
        return Op::fold_packed(raw);
    } else if constexpr (Op::folds_with_row || (Op::folds_aligned_with_row && is_of_aligned<S>(0))) {
        return Op::fold_with_row(raw, source.row);
    } else if constexpr (Op::folds_vectors && sizeof(T) <= 2) {
        return Op::template fold_leaf<1>(&raw, index);
    } else {
        const VectorOf<T> u = {raw};
        return fold_elements<Op, 0, V, true>(source, u.elements, seconds.elements, index, vector_bytes);
    }
}
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator fold_vector(const S& source, uint4 raw, uint64 index)
{
    return fold_vector<Op>(source, raw, seconds_of<Op>(source, index), index);
}

// The same for a vector of which only the first `bytes` bytes exist (all if 16 or more, none if 0 or less). Where an element
// that changes nothing can stand for each absent one, that takes a select of its words and no branch.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator
fold_vector_part(const S& source, uint4 raw, uint64 index, int32 bytes)
{
    using T = typename Op::Input;
    constexpr uint32 V = vector_elements<T>;
    VectorOf<T> u = {raw};
    if constexpr (Op::packed) {
        return Op::fold_packed(keep_bytes(raw, bytes));
    } else if constexpr (Op::has_absent) {
        const T absent = Op::absent(source.row);
        VectorOf<T> rest;
#pragma unroll
        for (uint32 i = 0; i < V; ++i) rest.elements[i] = absent;
        if constexpr (sizeof(T) < 4) {
            u.raw = join_bytes(raw, rest.raw, bytes);
        } else {
#pragma unroll
            for (uint32 i = 0; i < V; ++i)
                if (int32(i * sizeof(T)) >= bytes) u.elements[i] = absent;
        }
        return fold_vector<Op>(source, u.raw, index);
    } else if constexpr (Op::repeats_first) {
#pragma unroll
        for (uint32 i = 1; i < V; ++i) u.elements[i] = u.elements[0];
        return select(bytes > 0, fold_vector<Op>(source, join_bytes(raw, u.raw, bytes), index), Op::identity());
    } else {
        const auto seconds = seconds_of<Op>(source, index, bytes);
        return fold_elements<Op, 0, V, false>(source, u.elements, seconds.elements, index, bytes);
    }
}

// Whether elements that change nothing can stand for absent ones before anything is known of the row.
template <class Op> constexpr bool fills_absent = Op::has_absent && is_same<typename Op::Pivot, Unused>;

// What a thread holds in place of absent elements, before it loads the others: elements that change nothing if the operator
// fills_absent, else zeros.
template <class Op> __device__ __forceinline__ uint4 absent_elements()
{
    if constexpr (fills_absent<Op>) {
        using T = typename Op::Input;
        VectorOf<T> u;
#pragma unroll
        for (uint32 i = 0; i < vector_elements<T>; ++i) u.elements[i] = Op::absent(Unused{});
        return u.raw;
    } else {
        return make_uint4(0, 0, 0, 0);
    }
}

// A vector of which `bytes` bytes exist, and which was loaded over absent_elements.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator fold_filled(const S& source, uint4 raw, uint64 index, int32 bytes)
{
    if constexpr (fills_absent<Op>) return fold_vector<Op>(source, raw, index);
    else return fold_vector_part<Op>(source, raw, index, bytes);
}

// A whole vector and its second elements if `present`, else the identity. For packed operators an absent vector holds zeros.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator
fold_if(bool present, const S& source, uint4 raw, const Seconds<Op>& seconds, uint64 index)
{
    if constexpr (Op::packed) return Op::fold_packed(raw);
    else return select(present, fold_vector<Op>(source, raw, seconds, index), Op::identity());
}

// How many bytes of the vector at element `index` belong to the row; 0 past its end.
template <class Op, class S> __device__ __forceinline__ int32 present_bytes(const S& source, uint64 index)
{
    constexpr uint32 V = vector_elements<typename Op::Input>;
    if (index >= source.row.length) return 0;
    return int32(min(source.row.length - index, uint64(V))) * int32(sizeof(typename Op::Input));
}

// The slot level of a vector of which `bytes` bytes exist, most often all.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator fold_present(const S& source, uint4 raw, uint64 index, int32 bytes)
{
    if (S::seconds_lie != SecondsLie::anyhow && bytes == int32(vector_bytes)) return fold_vector<Op>(source, raw, index);
    if (bytes <= 0) return Op::identity();
    return fold_vector_part<Op>(source, raw, index, bytes);
}

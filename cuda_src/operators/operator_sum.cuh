// Sums, and operators that are sums of something: the mean, norms, products of two arrays.
#pragma once
#include "base/arithmetic.cuh"
#include "tree/leaf_float32.cuh"
#include "operators/operator.cuh"
#include "tree/vector_exact.cuh"
#include "tree/vector_integer.cuh"

// The base of all sums: how accumulators add up, and a finish that only rounds.
template <class In, class Acc, class Out> struct Additive : Operator<In, Acc, Out> {
    static __device__ __forceinline__ Acc identity()
    {
        if constexpr (is_integer<Acc>) return Acc(0);
        else if constexpr (is_complex<Acc>) return Acc(-0.0, -0.0);
        else return Acc(-0.0f);  // x + (-0.0) is x for every x; -0.0 + 0.0 would not be -0.0
    }
    // What an element that is left out adds: +0.0, so that a sum over only such elements is +0.0, as in NumPy.
    static __device__ __forceinline__ Acc skipped() { return widen<Acc>(float32(0.0f)); }
    static __device__ __forceinline__ Acc combine(Acc a, Acc b) { return add(a, b); }
    template <class R> static __device__ __forceinline__ Out finish(Acc a, const R&, int) { return narrow<Out>(a); }
    template <class R> static __device__ __forceinline__ Out empty(const R&, int) { return narrow<Out>(skipped()); }
};

// Sums that an element of zero does not change.
template <class In, class Acc, class Out> struct AdditiveOfMagnitudes : Additive<In, Acc, Out> {
    static constexpr bool has_absent = true;
    template <class R> static __device__ __forceinline__ In absent(const R&) { return element_of_bits<In>(0); }
};

template <class In, class Acc, class Out> struct Sum : Additive<In, Acc, Out> {
    template <class I, class R> static __device__ __forceinline__ Acc map(const I& item, const R&)
    {
        return widen<Acc>(item.x);
    }
    static constexpr bool has_absent = true;
    template <class R> static __device__ __forceinline__ In absent(const R&)
    {
        constexpr uint32 part_bits = 8 * sizeof(In) / (is_complex<In> ? 2 : 1);
        return element_of_bits<In>(is_integer<In> || is_same<In, boolean> ? 0 : uint64(1) << (part_bits - 1));  // or -0.0
    }
    static constexpr bool packed = is_integer<Acc> && sizeof(In) < 4;
    static constexpr bool folds_whole_vectors =
        (is_same<Acc, float32> && converts_in_pairs<In>) || (is_same<Acc, compensated> && sums_exactly<In>);
    static __device__ __forceinline__ Acc fold_packed(uint4 v)
    {
        if constexpr (is_same<Acc, compensated>) return Acc(sum_exactly<In>(v));
        else if constexpr (folds_whole_vectors) return sum_float8<In>(v);
        else return Acc(sum_packed<In, is_same<In, boolean>>(v));
    }
    static constexpr bool folds_leaves = is_same<In, float32> && is_same<Acc, float64>, folds_vectors = folds_leaves;
    template <uint32 vectors = 8> static __device__ __forceinline__ Acc fold_leaf(const uint4* v, uint64)
    {
        return sum_vectors_float32<vectors>(v);
    }
};

template <class In, class Acc, class Out> struct Mean : Sum<In, Acc, Out> {
    template <class R> static __device__ __forceinline__ Out finish(Acc a, const R& row, int)
    {
        return divide<Out>(a, row.length);
    }
    template <class R> static __device__ __forceinline__ Out empty(const R&, int) { return divide<Out>(Acc(0.0f), 0); }
};

template <class In, class Acc, class Out> struct CountNonzero : AdditiveOfMagnitudes<In, Acc, Out> {
    template <class I, class R> static __device__ __forceinline__ Acc map(const I& item, const R&)
    {
        return Acc(is_nonzero(item.x));
    }
    static constexpr bool packed = sizeof(In) == 1;
    static __device__ __forceinline__ Acc fold_packed(uint4 v) { return Acc(sum_packed<In, true>(v)); }
};

template <class In, class Acc, class Out> struct SumSquares : AdditiveOfMagnitudes<In, Acc, Out> {
    template <class I, class R> static __device__ __forceinline__ Acc map(const I& item, const R&)
    {
        return square(widen<Acc>(item.x));
    }
    static constexpr bool folds_whole_vectors = is_same<Acc, float32> && converts_in_pairs<In>;
    static __device__ __forceinline__ Acc fold_packed(uint4 v) { return sum_squares_float8<In>(v); }
};

template <class In, class Acc, class Out> struct Norm1 : AdditiveOfMagnitudes<In, Acc, Out> {
    template <class I, class R> static __device__ __forceinline__ Acc map(const I& item, const R&)
    {
        return absolute<Acc>(item.x);
    }
    static constexpr bool folds_whole_vectors = is_same<Acc, float32> && converts_in_pairs<In>;
    static constexpr bool packed = is_small_integer<In>;
    static __device__ __forceinline__ Acc fold_packed(uint4 v)
    {
        if constexpr (is_float8<In>) return sum_float8<In>(magnitudes_float8(v));
        else if constexpr (is_signed_integer<In>) return Acc(sum_of_magnitudes<In>(v));
        else return Acc(int32(sum_packed<In, false>(v)));
    }
};

template <class In, class Acc, class Out> struct Norm2 : AdditiveOfMagnitudes<In, Acc, Out> {
    template <class I, class R> static __device__ __forceinline__ Acc map(const I& item, const R&)
    {
        if constexpr (is_complex<In>) return square(Acc(item.x.re)) + square(Acc(item.x.im));
        else return square(widen<Acc>(item.x));
    }
    static constexpr bool folds_whole_vectors = is_same<Acc, float32> && converts_in_pairs<In>;
    static constexpr bool packed = is_byte_integer<In>;
    static __device__ __forceinline__ Acc fold_packed(uint4 v)
    {
        if constexpr (is_float8<In>) return sum_squares_float8<In>(v);
        else return Acc(sum_of_squares<In>(v));
    }
    template <class R> static __device__ __forceinline__ Out finish(Acc a, const R&, int)
    {
        return narrow<Out>(root(a));
    }
};

template <class In, class Acc, class Out> struct Dot : Additive<In, Acc, Out> {
    using Second = In;
    static constexpr bool has_absent_pair = sizeof(In) == 2;
    static __device__ __forceinline__ In absent_first() { return element_of_bits<In>(is_integer<In> ? 0 : 0x8000); }  // or -0.0
    static __device__ __forceinline__ In absent_second()  // one
    {
        return element_of_bits<In>(is_same<In, float16> ? 0x3c00 : is_same<In, bfloat16> ? 0x3f80 : 1);
    }
    template <class I, class R> static __device__ __forceinline__ Acc map(const I& item, const R&)
    {
        return product(widen<Acc>(item.x), widen<Acc>(item.y));
    }
};

template <class In, class Acc, class Out> struct Product : Operator<In, Acc, Out> {
    static __device__ __forceinline__ Acc identity() { return one(); }
    template <class I, class R> static __device__ __forceinline__ Acc map(const I& item, const R&)
    {
        return widen<Acc>(item.x);
    }
    static __device__ __forceinline__ Acc combine(Acc a, Acc b)
    {
        if constexpr (is_complex<Acc>) {
            // A factor of 1 - 0i would still change signs of zeros and turn infinities into NaN: it is skipped.
            if (is_identity(a)) return b;
            if (is_identity(b)) return a;
        }
        return product(a, b);
    }
    static constexpr bool folds_whole_vectors =
        (is_same<Acc, float32> && converts_in_pairs<In>) || (is_integer<Acc> && is_byte_integer<In>);
    static constexpr bool has_absent = folds_whole_vectors;
    template <class R> static __device__ __forceinline__ In absent(const R&)
    {
        return element_of_bits<In>(is_integer<In> ? 1 : is_same<In, float8_e4m3> ? 0x38 : 0x3c);  // one
    }
    static __device__ __forceinline__ Acc fold_packed(uint4 v)
    {
        if constexpr (is_float8<In>) return product_float8<In>(v);
        else return product_of_bytes<Acc, In>(v);
    }
    template <class R> static __device__ __forceinline__ Out finish(Acc a, const R&, int) { return narrow<Out>(a); }
    template <class R> static __device__ __forceinline__ Out empty(const R&, int)
    {
        return narrow<Out>(widen<Acc>(float32(1.0f)));
    }

private:
    static __device__ __forceinline__ Acc one()
    {
        if constexpr (is_complex<Acc>) return Acc(1.0, -0.0);
        else return Acc(1);
    }
    static __device__ __forceinline__ bool is_identity(Acc a)
    {
        return a.re == 1.0 && __double_as_longlong(a.im) == __double_as_longlong(-0.0);
    }
};

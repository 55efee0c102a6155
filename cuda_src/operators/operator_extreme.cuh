// The smallest and the largest element, by keys; where they are is in operator_place.cuh.
#pragma once
#include "operators/operator_place.cuh"
#include "operators/operator_sum.cuh"

// For two vectors of elements, the element that wins in each place.
template <class T, bool Largest, bool Numbers> __device__ __forceinline__ uint4 extreme_in_place(uint4 a, uint4 b)
{
    constexpr uint32 units = 16 / sizeof(Unit<T>);
    union { uint4 raw; Unit<T> units[units]; } x, y;
    x.raw = a, y.raw = b;
#pragma unroll
    for (uint32 i = 0; i < units; ++i) x.units[i] = extreme<Largest, Numbers>(x.units[i], y.units[i]);
    return x.raw;
}

template <class In, class Acc, class Out, bool Largest> struct Extreme : Operator<In, Acc, Out> {
    static constexpr bool has_absent = true;
    template <class R> static __device__ __forceinline__ In absent(const R&) { return losing_element<In, Largest>(); }
    static __device__ __forceinline__ Acc identity() { return Largest ? lowest<Acc> : highest<Acc>; }
    template <class I, class R> static __device__ __forceinline__ Acc map(const I& item, const R&)
    {
        return key_of<Acc>(item.x, Largest ? highest<Acc> : lowest<Acc>);
    }
    static __device__ __forceinline__ Acc combine(Acc a, Acc b) { return (Largest ? a > b : a < b) ? a : b; }
    // Folds the elements themselves, at few instructions each; only the one that is left is turned into a key.
    static constexpr bool folds_numbers = orders_zeros<In> || (is_float8<In> && widens_to_pairs<In>);
    static constexpr bool folds_leaves = folds_numbers || is_same<In, float64> || compares_pairs<In> || widens_to_pairs<In>;
    static constexpr bool folds_vectors = folds_leaves;
    template <uint32 vectors = 8> static __device__ __forceinline__ Acc fold_leaf(const uint4* v, uint64 index)
    {
        return Extreme::map(Item<In, Unused>{extreme_element<In, Largest, false, vectors>(v), {}, index}, Unused{});
    }
    template <uint32 vectors = 8> static __device__ __forceinline__ In fold_numbers(const uint4* v)
    {
        return extreme_element<In, Largest, true, vectors>(v);
    }
    static constexpr bool folds_elements = orders_zeros<In> || compares_pairs<In> || (is_integer<In> && sizeof(In) == 4);
    template <bool Numbers = false> static __device__ __forceinline__ uint4 combine_elements(uint4 a, uint4 b)
    {
        return extreme_in_place<In, Largest, Numbers>(a, b);
    }
    template <class R> static __device__ __forceinline__ Out finish(Acc a, const R&, int) { return finish_key<Out, In>(a); }
    template <class R> static __device__ __forceinline__ Out empty(const R&, int)
    {
        // Infinity, or the extreme number of a type without one; the identity would decode to NaN.
        if constexpr (is_float<In>) return finish_key<Out, In>(Largest ? Acc(~largest_bits<In>) : Acc(largest_bits<In>));
        else if constexpr (is_integer<In>) return finish_key<Out, In>(Acc(Largest ? lowest<In> : highest<In>));
        else return finish_key<Out, In>(Acc(!Largest));
    }
};
template <class In, class Acc, class Out> using Min = Extreme<In, Acc, Out, false>;
template <class In, class Acc, class Out> using Max = Extreme<In, Acc, Out, true>;

template <class Key> struct Range { Key low, high; };

template <class In, class Key, class Out> struct MinMax : Operator<In, Range<Key>, Out> {
    using Low = Min<In, Key, Out>;
    using High = Max<In, Key, Out>;
    static constexpr int results = 2;

    static __device__ __forceinline__ Range<Key> identity() { return {Low::identity(), High::identity()}; }
    template <class I, class R> static __device__ __forceinline__ Range<Key> map(const I& item, const R& row)
    {
        return {Low::map(item, row), High::map(item, row)};
    }
    static __device__ __forceinline__ Range<Key> combine(Range<Key> a, Range<Key> b)
    {
        return {Low::combine(a.low, b.low), High::combine(a.high, b.high)};
    }
    static constexpr bool folds_leaves = Low::folds_leaves, folds_vectors = Low::folds_vectors;
    static constexpr bool repeats_first = widens_to_pairs<In> || compares_integer_pairs<In>;
    template <uint32 vectors = 8> static __device__ __forceinline__ Range<Key> fold_leaf(const uint4* v, uint64 index)
    {
        if constexpr (widens_to_pairs<In>) {
            const auto both = extreme_elements<In, vectors>(v);
            return {Low::map(Item<In, Unused>{both.low, {}, index}, Unused{}),
                    High::map(Item<In, Unused>{both.high, {}, index}, Unused{})};
        } else {
            return {Low::template fold_leaf<vectors>(v, index), High::template fold_leaf<vectors>(v, index)};
        }
    }
    template <class R> static __device__ __forceinline__ Out finish(Range<Key> a, const R& row, int k)
    {
        return k == 0 ? Low::finish(a.low, row, 0) : High::finish(a.high, row, 0);
    }
    template <class R> static __device__ __forceinline__ Out empty(const R& row, int k)
    {
        return k == 0 ? Low::empty(row, 0) : High::empty(row, 0);
    }
};

// The largest magnitude; of complex numbers and integers taken as float64. The bits of a magnitude are its key.
template <class In, class Acc, class Out> struct NormInf : Operator<In, Acc, Out> {
    static constexpr bool has_absent = true;
    template <class R> static __device__ __forceinline__ In absent(const R&) { return element_of_bits<In>(0); }
    static __device__ __forceinline__ Acc identity() { return 0; }
    template <class I, class R> static __device__ __forceinline__ Acc map(const I& item, const R&)
    {
        if constexpr (is_float<In>) return signed_bits(item.x) & Acc(magnitude_bits<In>);
        else return key_of_magnitude(absolute<float64>(item.x));
    }
    static __device__ __forceinline__ Acc combine(Acc a, Acc b) { return a > b ? a : b; }
    // The largest magnitude of bytes that are floats is the largest byte apart from signs; that of integers is the magnitude of
    // the smallest or of the largest, so that only one key is made.
    static constexpr bool folds_leaves = (is_float8<In> && widens_to_pairs<uint8>) ||
        (is_integer<In> && (sizeof(In) == 4 || compares_pairs<In> || widens_to_pairs<In>)) || is_same<In, complex64>;
    static constexpr bool folds_vectors = folds_leaves;
    template <uint32 vectors = 8> static __device__ __forceinline__ Acc fold_leaf(const uint4* v, uint64)
    {
        if constexpr (is_float8<In>) {
            uint4 magnitudes[vectors];
#pragma unroll
            for (uint32 t = 0; t < vectors; ++t) magnitudes[t] = magnitudes_float8(v[t]);
            return extreme_element<uint8, true, false, vectors>(magnitudes);
        } else if constexpr (is_same<In, complex64>) {
            return root_of_largest<vectors>(v);
        } else if constexpr (is_unsigned_integer<In>) {
            return signed_bits(float64(extreme_element<In, true, false, vectors>(v)));
        } else {
            const auto both = extreme_elements<In, vectors>(v);
            return signed_bits(float64(max(int64(both.high), -int64(both.low))));
        }
    }
    template <class R> static __device__ __forceinline__ Out finish(Acc a, const R&, int)
    {
        if constexpr (is_float<In>) return finish_key<Out, In>(a);
        else return finish_key<Out, float64>(a);
    }
    template <class R> static __device__ __forceinline__ Out empty(const R& row, int) { return finish(identity(), row, 0); }

private:
    // The largest magnitude of complex elements: the root of the largest square, because rounding keeps the order.
    template <uint32 vectors> static __device__ __forceinline__ Acc root_of_largest(const uint4* v)
    {
        Acc most = 0;
#pragma unroll
        for (uint32 t = 0; t < vectors; ++t) {
            const VectorOf<In> u = {v[t]};
#pragma unroll
            for (uint32 i = 0; i < 2; ++i) {
                const In x = u.elements[i];
                most = combine(most, key_of_magnitude(is_infinite(x) ? 1.0 / 0.0 : squared_magnitude(x)));
            }
        }
        return key_of_magnitude(__dsqrt_rn(__longlong_as_double(most)));
    }
    static __device__ __forceinline__ Acc key_of_magnitude(float64 x) { return signed_bits(x) & Acc(magnitude_bits<float64>); }
};

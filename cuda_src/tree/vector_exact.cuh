// Vectors of small floats whose sums in the tree's order are exact, whatever the elements: a compensated accumulator would
// carry a low part of zero through all of them, so it takes their result at once.
//
// The elements are multiples of 2^-9 up to 448 (float8_e4m3), of 2^-16 up to 57344 (float8_e5m2) and of 2^-24 up to 65504
// (float16). So sixteen of the first add up within 22 bits, which float32 holds, sixteen of the second within 36 and eight of
// the third within 43.
#pragma once
#include "tree/vector_float8.cuh"

template <class T> constexpr bool sums_exactly = is_same<T, float16> || is_float8<T>;

// The sum of Count elements, a power of two, computed in Sum.
template <class Sum, uint32 Count, class T> __device__ __forceinline__ Sum sum_elements(const T* x)
{
    if constexpr (Count == 1) return widen<Sum>(*x);
    else return sum_elements<Sum, Count / 2>(x) + sum_elements<Sum, Count / 2>(x + Count / 2);
}

// The sum of a vector's elements.
template <class T> __device__ __forceinline__ float64 sum_exactly(uint4 v)
{
    constexpr uint32 V = sizeof(v) / sizeof(T);
    const VectorOf<T> u = {v};
    if constexpr (is_same<T, float8_e4m3> && converts_in_pairs<T>) return sum_float8<T>(v);
    else if constexpr (is_same<T, float8_e4m3>) return sum_elements<float32, V>(u.elements);
    else return sum_elements<float64, V>(u.elements);
}

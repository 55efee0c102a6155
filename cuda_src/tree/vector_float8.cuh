// Vectors of 8-bit floats, converted two at a time by way of float16, which holds each of them exactly.
#pragma once
#include "base/types.cuh"

template <class T> constexpr bool is_float8 = is_same<T, float8_e4m3> || is_same<T, float8_e5m2>;

// Whether one instruction converts two elements to two float16.
#if __CUDA_ARCH__ >= 890
template <class T> constexpr bool converts_in_pairs = is_float8<T>;
#else
template <class T> constexpr bool converts_in_pairs = is_same<T, float8_e5m2>;
#endif

// Four elements as two pairs of float16.
template <class T> __device__ __forceinline__ uint2 float16_pairs(uint32 word)
{
    if constexpr (is_same<T, float8_e5m2>) {
        return make_uint2(__byte_perm(word, 0, 0x1404), __byte_perm(word, 0, 0x3424));
    } else {
        uint16 front, back;  // by a move in PTX, which costs nothing, where C++ would shift
        asm("mov.b32 {%0, %1}, %2;" : "=h"(front), "=h"(back) : "r"(word));
        return make_uint2(float16_pair_of_e4m3(front), float16_pair_of_e4m3(back));
    }
}

// The element that has the value of a float16, given by its bits; for a NaN any NaN.
template <class T> __device__ __forceinline__ T float8_of(uint16 bits)
{
    if constexpr (is_same<T, float8_e5m2>) {
        return T{uint8(bits >> 8)};
    } else {
        // 2^-120 times the value is a float32 with the element's exponent and fraction, subnormal where the element is.
        const float32 scaled = number(float16{bits}) * 0x1p-120f;
        const uint32 whole = __float_as_uint(scaled);
        return T{uint8(scaled != scaled ? 0x7f : (whole >> 24 & 0x80) | (whole >> 20 & 0x7f))};
    }
}

// Folds the sixteen elements of a vector as float32, in the tree's order: join(a, b) for two elements, rest(a, b) above that.
template <class T, class Join, class Rest>
__device__ __forceinline__ float32 fold_float8(uint4 v, Join join, Rest rest)
{
    const auto four = [=](uint32 word) {
        const uint2 pairs = float16_pairs<T>(word);
        const auto two = [=](uint32 pair) {
            return join(number(float16{uint16(pair)}), number(float16{uint16(pair >> 16)}));
        };
        return rest(two(pairs.x), two(pairs.y));
    };
    return rest(rest(four(v.x), four(v.y)), rest(four(v.z), four(v.w)));
}

template <class T> __device__ __forceinline__ float32 sum_float8(uint4 v)
{
    const auto sum = [](float32 a, float32 b) { return a + b; };
    return fold_float8<T>(v, sum, sum);
}

// The sum of their squares. These are exact, so adding one by a fused operation rounds as adding it separately does.
template <class T> __device__ __forceinline__ float32 sum_squares_float8(uint4 v)
{
    const auto sum = [](float32 a, float32 b) { return a + b; };
    return fold_float8<T>(v, [](float32 a, float32 b) { return __fmaf_rn(a, a, b * b); }, sum);
}

template <class T> __device__ __forceinline__ float32 product_float8(uint4 v)
{
    const auto product = [](float32 a, float32 b) { return a * b; };
    return fold_float8<T>(v, product, product);
}

// The magnitudes of sixteen elements, which are elements themselves.
__device__ __forceinline__ uint4 magnitudes_float8(uint4 v)
{
    constexpr uint32 all_but_signs = 0x7f7f7f7fu;
    return make_uint4(v.x & all_but_signs, v.y & all_but_signs, v.z & all_but_signs, v.w & all_but_signs);
}

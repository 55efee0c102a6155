// What the expressions of row operations may call besides arithmetic, and how their values become elements.
#pragma once
#include "operators.cuh"

// Correctly rounded, in float32 and float64 alike.
__device__ __forceinline__ float32 square_root(float32 x) { return __fsqrt_rn(x); }
__device__ __forceinline__ float64 square_root(float64 x) { return __dsqrt_rn(x); }
__device__ __forceinline__ float32 nearest_integer(float32 x) { return rintf(x); }
__device__ __forceinline__ float64 nearest_integer(float64 x) { return rint(x); }
__device__ __forceinline__ float32 at_most(float32 x, float32 limit) { return x > limit ? limit : x; }  // NaN stays
__device__ __forceinline__ float64 at_most(float64 x, float64 limit) { return x > limit ? limit : x; }
// Within 2 ulp.
__device__ __forceinline__ float32 exponential(float32 x) { return expf(x); }
__device__ __forceinline__ float64 exponential(float64 x) { return exp(x); }
__device__ __forceinline__ float32 logarithm(float32 x) { return logf(x); }
__device__ __forceinline__ float64 logarithm(float64 x) { return log(x); }
template <class T> __device__ __forceinline__ T not_a_number() { return quiet_nan<T>(); }
template <class T> __device__ __forceinline__ T infinity() { return T(1.0 / 0.0); }

// To nearest, ties to even; beyond 448 the largest number, NaN the positive one.
__device__ __forceinline__ float8_e4m3 round_to_e4m3(float32 x)
{
#if __CUDA_ARCH__ >= 890
    uint16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    return float8_e4m3{uint8(x != x ? 0x7f : pair)};
#else
    const uint32 bits = __float_as_uint(x), sign = bits >> 24 & 0x80u;
    const float32 size = fminf(fabsf(x), 448.0f);
    if (x != x) return float8_e4m3{0x7f};
    // Below 2^-6 elements are multiples of 2^-9: adding 2^14 rounds to those. Above, three bits of the fraction stay.
    if (size < 0x1p-6f) return float8_e4m3{uint8(sign | (__float_as_uint(size + 0x1p14f) & 0xfu))};
    const uint32 whole = __float_as_uint(size), kept = whole + 0x7ffffu + (whole >> 20 & 1u);
    return float8_e4m3{uint8(sign | ((kept >> 20) - (120u << 3)))};
#endif
}

// The value of an expression as an element of an output: floats rounded once, integers as for operators of users.
template <class Out, class T> __device__ __forceinline__ Out output_of(T x)
{
    if constexpr (is_same<Out, float8_e4m3> && is_same<T, float64>) return round_to_e4m3(rounded_to_odd(x));
    else if constexpr (is_same<Out, float8_e4m3>) return round_to_e4m3(float32(x));
    else return result_of<Out>(x);
}

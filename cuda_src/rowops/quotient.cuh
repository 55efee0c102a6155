// Exponentials over their sum, rounded once or little more.
#pragma once
#include "operators.cuh"

// What the difference a - b, rounded, lacks: exact (Knuth, The Art of Computer Programming 2, 4.2.2, theorem B).
template <class T> __device__ __forceinline__ T lost_in_difference(T a, T b, T difference)
{
    const T back = difference - a;
    return (a - (difference - back)) - (b + back);
}

// exp(x - largest) times the sum of `inverse` and `lacks`, what its rounding lost; x is not larger, and may be -inf.
//
// With d = n log(2) + r, |r| <= 0.3466, exp(r) is 1 + p, where p = r + r^2 q(r), and q interpolates at Chebyshev's points with an
// error of 2^-26.5 of exp(r). 1 is not added: inverse + p inverse is rounded once, and p has less than 24 bits to lose. In units
// in the last place of the result, which may be 2^-24 of it: 0.2 for q, 0.7 for the roundings of r and p, 0.7 for those of the
// products and the sum: 1.6 at most. Under 2^-126 it is rounded once more. From 104 below the largest on it is zero.
__device__ __forceinline__ float32 exponential_times(float32 x, float32 largest, float32 inverse, float32 lacks)
{
    constexpr float32 shift = 0x1.8p23f;  // a sum with it is rounded to a whole number, in its low bits
    constexpr float32 q[5] = {0x1.6d1278p-10f, 0x1.120cdep-7f, 0x1.555518p-5f, 0x1.5554dcp-3f, 0.5f};  // highest power first
    const float32 difference = x - largest, d = fmaxf(difference, -104.0f);
    const float32 rest = difference > -104.0f ? lost_in_difference(x, largest, difference) : 0.0f;
    const float32 shifted = fused(d, 0x1.715476p0f, shift), n = shifted - shift;
    const float32 r = fused(n, -0x1.7f7d1cp-20f, fused(n, -0x1.62e4p-1f, d)) + rest;
    float32 p = q[0];
#pragma unroll
    for (int i = 1; i < 5; ++i) p = fused(p, r, q[i]);
    p = fused(p * r, r, r);
    const float32 scaled = inverse + fused(p, inverse, fused(p, lacks, lacks));
    const int32 power = __float_as_int(shifted) - __float_as_int(shift), half = power >> 1;
    return scaled * __int_as_float(half + 127 << 23) * __int_as_float(power - half + 127 << 23);
}

// In float64 within 1 ulp of the exponential, and the roundings of the product.
__device__ __forceinline__ float64 exponential_times(float64 x, float64 largest, float64 inverse, float64 lacks)
{
    const float64 d = x - largest, e = exp(d);
    return fused(e, inverse, e > 0 ? e * fused(inverse, lost_in_difference(x, largest, d), lacks) : 0.0);
}

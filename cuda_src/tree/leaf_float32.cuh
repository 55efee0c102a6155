// A lane's part of a leaf of float32, summed in float64 with half of the conversions: on devices whose float64 additions are
// fast a sum of float32 is limited by its conversions, which run at 16 lanes a clock.
//
// Moved to where a float64 has its own, a float32's sign, exponent and fraction make the value times 2^-896, exactly: a
// subnormal float32 becomes a subnormal float64. So of a pair a + b only a is converted; with b' = b * 2^-896 made in this way,
// one fused operation a * 2^-896 + b' adds them and rounds once. The sums of the next levels stay scaled, and the last is
// scaled back.
//
// The bits are those of the unscaled sums. Each unscaled sum is a multiple of 2^-149, below 2^(128 + 5) in magnitude for 32
// elements, rounded to 53 bits; the scaled one, by induction the same times 2^-896, is a multiple of 2^-1045. Where its
// magnitude is 2^-1022 or more, it is a normal number and rounds as the unscaled one does; below that, the unscaled sum has at
// most 23 bits and is exact, and the scaled one is exact as a subnormal too. Signs of zeros do not depend on the scale. Nothing
// overflows, for all magnitudes are far below 2^1024, and scaling back gives a number that float64 has.
//
// Only an infinity or a NaN in b's place goes wrong: it becomes a finite number. These elements are therefore summed in float32
// too, times 2^-10: at most 16 numbers below 2^118 do not overflow, so that sum is finite exactly if all of them are, and is
// otherwise the infinity or NaN that they make. Infinities and NaN in a's place are converted in the ordinary way.
#pragma once
#include "base/types.cuh"

__device__ __forceinline__ float64 scaled_float64(float32 x)
{
    const uint32 bits = __float_as_uint(x);
    return __hiloint2double((int32(bits) >> 3) & 0x8fffffff, int32(bits << 29));
}

// The scaled sum of Count vectors (a power of two) of four neighbouring elements each; `specials` sums the b's.
template <uint32 Count> __device__ __forceinline__ float64 sum_scaled(const uint4* v, float32& specials)
{
    if constexpr (Count == 1) {
        const float32 b = __uint_as_float(v->y), d = __uint_as_float(v->w);
        specials = __fmaf_rn(d, 0x1p-10f, __fmaf_rn(b, 0x1p-10f, specials));
        const float64 front = __fma_rn(float64(__uint_as_float(v->x)), 0x1p-896, scaled_float64(b));
        return front + __fma_rn(float64(__uint_as_float(v->z)), 0x1p-896, scaled_float64(d));
    } else {
        const float64 front = sum_scaled<Count / 2>(v, specials);
        // Orders nothing: it keeps the compiler from converting more at once than there are registers for.
        if constexpr (Count > 2) __syncwarp();
        return front + sum_scaled<Count / 2>(v + Count / 2, specials);
    }
}

// What `specials` adds to the unscaled sum: itself if it is an infinity or NaN, else -0.0, which changes nothing.
__device__ __forceinline__ float64 special_summand(float32 specials)
{
    const int32 bits = __float_as_int(specials);
    const bool finite = fabsf(specials) <= 0x1.fffffep127f;
    return __hiloint2double(finite ? 0x80000000 : (bits >> 3) | 0x70000000, 0);
}

// The sum of N of a lane's vectors of a leaf, N a power of two up to 8.
template <uint32 N> __device__ __forceinline__ float64 sum_vectors_float32(const uint4* v)
{
    if constexpr (N == 1) {
        const auto at = [](uint32 bits) { return float64(__uint_as_float(bits)); };
        return (at(v->x) + at(v->y)) + (at(v->z) + at(v->w));
    }
    float32 specials = 0.0f;
    const float64 sum = sum_scaled<N>(v, specials);
    return __fma_rn(sum, 0x1p896, special_summand(specials));
}

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

// 2^x by the special function unit, within 2 ulp; results under 2^-126 are zero.
__device__ __forceinline__ float32 power_of_two(float32 x)
{
    float32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Whether one of V numbers is NaN, an even number of them, by an instruction for each two.
template <uint32 V> __device__ __forceinline__ bool has_nan(const float32* x)
{
    uint32 found;
    if constexpr (V == 2) {
        asm("{ .reg .pred p; setp.nan.f32 p, %1, %2; selp.u32 %0, 1, 0, p; }" : "=r"(found) : "f"(x[0]), "f"(x[1]));
    } else if constexpr (V == 4) {
        asm("{ .reg .pred p; setp.nan.f32 p, %1, %2; setp.nan.or.f32 p, %3, %4, p; selp.u32 %0, 1, 0, p; }"
            : "=r"(found) : "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]));
    } else if constexpr (V == 8) {
        asm("{ .reg .pred p; setp.nan.f32 p, %1, %2; setp.nan.or.f32 p, %3, %4, p; setp.nan.or.f32 p, %5, %6, p;"
            "setp.nan.or.f32 p, %7, %8, p; selp.u32 %0, 1, 0, p; }"
            : "=r"(found) : "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "f"(x[4]), "f"(x[5]), "f"(x[6]), "f"(x[7]));
    } else {
        return has_nan<V / 2>(x) | has_nan<V / 2>(x + V / 2);
    }
    return found;
}

// Two float8_e4m3, to nearest, ties to even; beyond 448 the largest number, NaN the positive one.
__device__ __forceinline__ uint16 pair_of_e4m3(float32 low, float32 high)
{
#if __CUDA_ARCH__ >= 890
    uint16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
#else
    const auto rounded = [](float32 x) -> uint32 {
        const uint32 bits = __float_as_uint(x), sign = bits >> 24 & 0x80u;
        const float32 size = fminf(fabsf(x), 448.0f);
        if (x != x) return 0x7f;
        // Below 2^-6 elements are multiples of 2^-9: adding 2^14 rounds to those. Above, three bits of the fraction stay.
        if (size < 0x1p-6f) return sign | (__float_as_uint(size + 0x1p14f) & 0xfu);
        const uint32 whole = __float_as_uint(size), kept = whole + 0x7ffffu + (whole >> 20 & 1u);
        return sign | ((kept >> 20) - (120u << 3));
    };
    return uint16(rounded(low) | rounded(high) << 8);
#endif
}

// Two float16 or bfloat16 in a word, to nearest, by one instruction; a NaN has other bits than quiet_nan's.
template <class Out> __device__ __forceinline__ uint32 pair_of(float32 low, float32 high)
{
    uint32 pair = 0;
#if __CUDA_ARCH__ >= 800
    if constexpr (is_same<Out, bfloat16>) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#endif
    return pair;
}

// The value of an expression as an element of an output: floats rounded once, integers as for operators of users.
template <class Out, class T> __device__ __forceinline__ Out output_of(T x)
{
    if constexpr (is_same<Out, float8_e4m3> && is_same<T, float64>)
        return float8_e4m3{uint8(pair_of_e4m3(rounded_to_odd(x), 0.0f))};
    else if constexpr (is_same<Out, float8_e4m3>) return float8_e4m3{uint8(pair_of_e4m3(float32(x), 0.0f))};
    else return result_of<Out>(x);
}

#if __CUDA_ARCH__ >= 800
template <class Out, class T> constexpr bool rounds_in_pairs =
    is_same<T, float32> && (is_same<Out, float16> || is_same<Out, bfloat16> || is_same<Out, float8_e4m3>);
#else
template <class Out, class T> constexpr bool rounds_in_pairs = is_same<T, float32> && is_same<Out, float8_e4m3>;
#endif

// The values of a vector's elements as elements of an output, two at a time where there are instructions for that. What is
// rare, a NaN of 16 bits, takes a branch of its own.
template <class Out, uint32 V, class T> __device__ __forceinline__ void put_outputs(Out* elements, const T* values)
{
    if constexpr (V == 1 || !rounds_in_pairs<Out, T>) {
#pragma unroll
        for (uint32 k = 0; k < V; ++k) elements[k] = output_of<Out>(values[k]);
    } else if constexpr (sizeof(Out) == 1) {
#pragma unroll
        for (uint32 k = 0; k < V; k += 2) reinterpret_cast<uint16*>(elements)[k / 2] = pair_of_e4m3(values[k], values[k + 1]);
    } else {
#pragma unroll
        for (uint32 k = 0; k < V; k += 2)
            reinterpret_cast<uint32*>(elements)[k / 2] = pair_of<Out>(values[k], values[k + 1]);
        if (__builtin_expect(has_nan<V>(values), false)) {
            asm volatile("");
#pragma unroll
            for (uint32 k = 0; k < V; ++k) elements[k] = output_of<Out>(values[k]);
        }
    }
}

// Accumulator -> result: each is rounded once, to nearest with ties to even, however many types lie between.
//
// Rounding to odd makes that possible: of the two numbers around a value that is none of them it takes the one whose last bit
// is set. What is rounded to odd in a type with two bits more than the result's, or with more, and then to nearest, is what
// rounding to nearest at once gives (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008).
#pragma once
#include "base/types.cuh"

// The only NaN that a result of each type has, numpy.nan's bits: which operand's payload survives differs between processors.
template <class T> __device__ __forceinline__ T quiet_nan()
{
    if constexpr (is_same<T, float8_e4m3>) return float8_e4m3{0x7f};
    else if constexpr (is_same<T, float8_e5m2>) return float8_e5m2{0x7e};
    else if constexpr (is_same<T, float16>) return float16{0x7e00};
    else if constexpr (is_same<T, bfloat16>) return bfloat16{0x7fc0};
    else if constexpr (is_same<T, float32>) return __uint_as_float(0x7fc00000u);
    else return __longlong_as_double(0x7ff8000000000000ll);
}

// x + rest rounded to odd, where x is that sum to nearest: of `rest` only the sign counts. What is not finite stays.
__device__ __forceinline__ float64 rounded_to_odd(float64 x, float64 rest)
{
    const uint64 bits = __double_as_longlong(x);
    if (!is_finite(x) || !(rest < 0.0 || rest > 0.0) || (bits & 1u)) return x;
    return __longlong_as_double((bits ^ __double_as_longlong(rest)) >> 63 ? bits - 1 : bits + 1);
}

// A float64 rounded to odd in float32: towards zero, and then the last bit is set unless that is exact. A finite one beyond
// float32's range becomes its largest number, whose last bit is set. NaN stays one.
__device__ __forceinline__ float32 rounded_to_odd(float64 x)
{
    const float32 y = __double2float_rz(x);
    return __uint_as_float(__float_as_uint(y) | (float64(y) != x ? 1u : 0u));
}

__device__ __forceinline__ bfloat16 round_to_bfloat16(float32 x)
{
    // To nearest, ties to even. The caller deals with NaN.
#if __CUDA_ARCH__ >= 800
    bfloat16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
#else
    const uint32 bits = __float_as_uint(x);
    return bfloat16{uint16((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
#endif
}

// Floating-point accumulator -> result.
template <class To, class From> __device__ __forceinline__ To round_to(From x)
{
    if (x != x) return quiet_nan<To>();
    if constexpr (is_same<To, float16>) {
        float16 y;
        if constexpr (is_same<From, float32>) asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
        else asm("cvt.rn.f16.f64 %0, %1;" : "=h"(y.bits) : "d"(x));
        return y;
    } else if constexpr (is_same<To, bfloat16> && is_same<From, float64>) {
        return round_to_bfloat16(rounded_to_odd(x));
    } else if constexpr (is_same<To, bfloat16>) {
        return round_to_bfloat16(float32(x));
    } else {
        return To(x);
    }
}

// A number as two float64 whose sum it is: all bits of 64-bit integers, the low eleven apart.
template <class T> __device__ __forceinline__ compensated in_two_parts(T x)
{
    compensated r(static_cast<float64>(x));
    if constexpr (is_integer<T> && sizeof(T) == 8) {
        const T end = x & T(0x7ff);
        const float64 start = float64(T(x - end));  // exact, and zero or larger than what is added
        r.high = start + float64(end);
        r.low = float64(end) - (r.high - start);
    }
    return r;
}
__device__ __forceinline__ compensated in_two_parts(compensated x) { return x; }

// Accumulator -> result. Integers wrap in a narrower result, as with NumPy's astype; booleans are true where nonzero.
template <class To, class From> __device__ __forceinline__ To narrow(From x)
{
    if constexpr (is_same<From, compensated> && sizeof(To) == 8) return round_to<To>(x.high);
    else if constexpr (is_same<From, compensated>) return round_to<To>(rounded_to_odd(x.high, x.low));
    else if constexpr (is_same<To, boolean>) return boolean{uint8(x != From(0))};
    else if constexpr (is_complex<From>) return To{round_to<decltype(To::re)>(x.re), round_to<decltype(To::re)>(x.im)};
    else if constexpr (is_integer<From> && (is_integer<To> || sizeof(To) >= 4)) return To(x);
    else if constexpr (is_integer<From>) return narrow<To>(in_two_parts(x));
    else return round_to<To>(x);
}

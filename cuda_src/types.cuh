// The types of elements, accumulators and results under NumPy's names, and the conversions between them.
// Header-free: NVRTC offers neither <cstdint> nor __half.
#pragma once

typedef signed char int8;
typedef unsigned char uint8;
typedef short int16;
typedef unsigned short uint16;
typedef int int32;
typedef unsigned int uint32;
typedef long long int64;
typedef unsigned long long uint64;
typedef float float32;
typedef double float64;

struct float16 { uint16 bits; };
struct bfloat16 { uint16 bits; };
struct boolean { uint8 bits; };  // any nonzero byte is true

// An unevaluated sum high + low of two float64, |low| at most half an ulp of high: the `compensated` accumulator.
struct compensated {
    float64 high, low;
    compensated() = default;
    __device__ explicit compensated(float64 x) : high(x), low(0.0) {}
};

template <class A, class B> constexpr bool is_same = false;
template <class A> constexpr bool is_same<A, A> = true;

template <class T> constexpr bool is_signed_integer =
    is_same<T, int8> || is_same<T, int16> || is_same<T, int32> || is_same<T, int64>;
template <class T> constexpr bool is_unsigned_integer =
    is_same<T, uint8> || is_same<T, uint16> || is_same<T, uint32> || is_same<T, uint64>;
template <class T> constexpr bool is_integer = is_signed_integer<T> || is_unsigned_integer<T>;

// Element -> accumulator. Exact for every pair that the Python side's type table allows.
template <class To, class From> __device__ __forceinline__ To widen(From x)
{
    if constexpr (is_same<From, float16>) {
        float32 y;
        asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
        return To(y);
    } else if constexpr (is_same<From, bfloat16>) {
        return To(__uint_as_float(uint32(x.bits) << 16));
    } else if constexpr (is_same<From, boolean>) {
        return To(x.bits != 0);
    } else {
        return To(x);
    }
}

// The one NaN of each type, numpy.nan's bits: which operand's payload survives differs between processors.
template <class T> __device__ __forceinline__ T quiet_nan()
{
    if constexpr (is_same<T, float16>) return float16{0x7e00};
    else if constexpr (is_same<T, bfloat16>) return bfloat16{0x7fc0};
    else if constexpr (is_same<T, float32>) return __uint_as_float(0x7fc00000u);
    else return __longlong_as_double(0x7ff8000000000000ll);
}

__device__ __forceinline__ bfloat16 round_to_bfloat16(float32 x)
{
    // To nearest, ties to even, in integers: cvt.rn.bf16.f32 needs sm_80. NaN is dealt with by the caller.
    const uint32 bits = __float_as_uint(x);
    return bfloat16{uint16((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// Floating-point accumulator -> result, rounded to nearest; float64 reaches bfloat16 by way of float32, as ml_dtypes does.
template <class To, class From> __device__ __forceinline__ To round_to(From x)
{
    if (x != x) return quiet_nan<To>();
    if constexpr (is_same<To, float16>) {
        float16 y;
        if constexpr (is_same<From, float32>) asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
        else asm("cvt.rn.f16.f64 %0, %1;" : "=h"(y.bits) : "d"(x));
        return y;
    } else if constexpr (is_same<To, bfloat16>) {
        return round_to_bfloat16(float32(x));
    } else {
        return To(x);
    }
}

// Accumulator -> result. Integers wrap to a narrower result, as NumPy's astype does.
template <class To, class From> __device__ __forceinline__ To narrow(From x)
{
    if constexpr (is_same<From, compensated>) return round_to<To>(x.high);
    else if constexpr (is_integer<From>) return To(x);
    else return round_to<To>(x);
}

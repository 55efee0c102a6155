// The types of elements, accumulators and results under NumPy's names, and what becomes of an element in an accumulator.
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
struct float8_e4m3 { uint8 bits; };  // no infinity; one NaN of each sign, whose other bits are all set
struct float8_e5m2 { uint8 bits; };  // the upper half of a float16
struct boolean { uint8 bits; };      // any nonzero byte is true

struct complex64 { float32 re, im; };
struct complex128 {
    float64 re, im;
    complex128() = default;
    __device__ explicit complex128(float64 re, float64 im = 0.0) : re(re), im(im) {}
};

// An unevaluated sum high + low of two float64, |low| at most half an ulp of high: the `compensated` accumulator.
struct compensated {
    float64 high, low;
    compensated() = default;
    __device__ explicit compensated(float64 x) : high(x), low(0.0) {}
};

// 64 bits as two words, for structs of 32-bit members that must not be padded.
struct Split64 {
    uint32 low, high;
    Split64() = default;
    __device__ explicit Split64(uint64 x) : low(uint32(x)), high(uint32(x >> 32)) {}
    __device__ __forceinline__ uint64 whole() const { return uint64(high) << 32 | low; }
};

// 16 bytes as they are loaded, and the elements that they are.
template <class T> union VectorOf {
    uint4 raw;
    T elements[16 / sizeof(T)];
};

template <class A, class B> constexpr bool is_same = false;
template <class A> constexpr bool is_same<A, A> = true;

template <class T> constexpr bool is_signed_integer =
    is_same<T, int8> || is_same<T, int16> || is_same<T, int32> || is_same<T, int64>;
template <class T> constexpr bool is_unsigned_integer =
    is_same<T, uint8> || is_same<T, uint16> || is_same<T, uint32> || is_same<T, uint64>;
template <class T> constexpr bool is_integer = is_signed_integer<T> || is_unsigned_integer<T>;
template <class T> constexpr bool is_complex = is_same<T, complex64> || is_same<T, complex128>;
template <class T> constexpr bool is_float = !is_integer<T> && !is_complex<T> && !is_same<T, boolean>;

// The element with these bits; in a complex number both parts have them.
template <class T> __device__ __forceinline__ T element_of_bits(uint64 bits)
{
    union { uint64 whole[2]; T element; } u;
    u.whole[0] = is_same<T, complex64> ? bits << 32 | bits : bits;
    u.whole[1] = bits;
    return u.element;
}

// NVRTC has no isfinite.
__device__ __forceinline__ bool is_finite(float64 x) { return fabs(x) <= 0x1.fffffffffffffp1023; }

// The value of a floating-point or integer element, exactly, as a number that C++ can compute with.
__device__ __forceinline__ float32 number(float16 x)
{
    float32 y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
__device__ __forceinline__ float32 number(bfloat16 x) { return __uint_as_float(uint32(x.bits) << 16); }
__device__ __forceinline__ float32 number(float8_e5m2 x) { return number(float16{uint16(x.bits << 8)}); }

// Converts two float8_e4m3 to two float16 by the one instruction that newer devices have; not to be used on others.
__device__ __forceinline__ uint32 float16_pair_of_e4m3(uint16 pair)
{
    uint32 halves = 0;
#if __CUDA_ARCH__ >= 890
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
#endif
    return halves;
}
__device__ __forceinline__ float32 number(float8_e4m3 x)
{
#if __CUDA_ARCH__ >= 890
    return number(float16{uint16(float16_pair_of_e4m3(x.bits))});
#else
    // Moved to where float32 has its own, exponent and fraction make the value times 2^-120, exactly, subnormal where the
    // element is. What would be 480 is NaN.
    const float32 y = __uint_as_float(uint32(int32(int8(x.bits))) << 20 & 0x87f00000u) * 0x1p120f;
    return fabsf(y) == 480.0f ? __uint_as_float(0x7fc00000u) : y;
#endif
}
__device__ __forceinline__ int32 number(boolean x) { return x.bits != 0; }
template <class T> __device__ __forceinline__ T number(T x) { return x; }

// Element i of a vector, i known to the compiler. Halves of words that it takes out and moves up are two instructions each.
template <class T> __device__ __forceinline__ auto number_in(const VectorOf<T>& u, uint32 i)
{
    if constexpr (is_same<T, bfloat16>) {
        const uint32 word = i / 2 == 0 ? u.raw.x : i / 2 == 1 ? u.raw.y : i / 2 == 2 ? u.raw.z : u.raw.w;
        return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
    } else {
        return number(u.elements[i]);
    }
}

// Element -> accumulator. Exact for every pair that the Python side's type table allows, except for 64-bit integers.
template <class To, class From> __device__ __forceinline__ To widen(From x)
{
    if constexpr (is_complex<From>) return To(x.re, x.im);
    else return To(number(x));
}

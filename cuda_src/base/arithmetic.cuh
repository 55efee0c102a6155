// The arithmetic of accumulators of which sums and products are made, double-double and complex ones included.
#pragma once
#include "base/rounding.cuh"

// The exact sum of two doubles as a rounded value and its error (Dekker's FastTwoSum, the larger one first). Knuth's TwoSum,
// which needs no order, can overflow in an intermediate result where the sum does not: beside the largest double, for one of
// the two orders.
__device__ __forceinline__ compensated two_sum(float64 a, float64 b)
{
    const bool is_first = fabs(a) >= fabs(b);
    const float64 large = is_first ? a : b, small = is_first ? b : a;
    compensated r;
    r.high = large + small;
    r.low = small - (r.high - large);
    return r;
}

// Double-double addition, AccurateDWPlusDW of Joldes, Muller and Popescu (2017): relative error under 3 * 2^-106.
// Amended in two ways: an overflow, infinity or NaN stays what float64 makes of it, and so does the sign of a zero.
__device__ __forceinline__ compensated add(compensated x, compensated y)
{
    const compensated s = two_sum(x.high, y.high);
    const compensated t = two_sum(x.low, y.low);
    const float64 c = s.low + t.high;
    const float64 v = s.high + c;
    const float64 w = t.low + (c - (v - s.high));
    compensated r;
    r.high = v + w;
    r.low = w - (r.high - v);
    if (r.high == 0.0) r.high = s.high;
    if (!is_finite(v)) { r.high = is_finite(s.high) ? v : s.high; r.low = 0.0; }
    return r;
}
__device__ __forceinline__ complex128 add(complex128 x, complex128 y) { return complex128(x.re + y.re, x.im + y.im); }
template <class T> __device__ __forceinline__ T add(T x, T y) { return x + y; }

template <class Acc> __device__ __forceinline__ Acc square(Acc x) { return x * x; }

// The exact product of two doubles as a rounded value and its error. Where the error might be less than the smallest double, or
// the product is not finite, the error is given as zero, so that NumPy, which has no fma, gives the same.
__device__ __forceinline__ compensated two_product(float64 x, float64 y)
{
    compensated r;
    r.high = x * y;
    r.low = fabs(r.high) >= 0x1p-900 && is_finite(r.high) ? __fma_rn(x, y, -r.high) : 0.0;
    return r;
}

template <class Acc> __device__ __forceinline__ Acc product(Acc x, Acc y) { return x * y; }
__device__ __forceinline__ compensated product(compensated x, compensated y) { return two_product(x.high, y.high); }
__device__ __forceinline__ complex128 product(complex128 x, complex128 y)
{
    return complex128(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re);
}

// |z| squared, rounded once: float64 holds the squares of float32 exactly and without overflow. NaN if a part is.
__device__ __forceinline__ float64 squared_magnitude(complex64 z)
{
    const float64 re = z.re, im = z.im;
    return __fma_rn(re, re, im * im);
}

// Whether a part is infinite: |z| is so too then, whatever the other part is.
__device__ __forceinline__ bool is_infinite(complex64 z) { return fmaxf(fabsf(z.re), fabsf(z.im)) == float32(1.0 / 0.0); }

// |x|; of a complex number without intermediate overflow.
template <class Acc, class In> __device__ __forceinline__ Acc absolute(In x)
{
    if constexpr (is_same<In, complex64>) {
        return __dsqrt_rn(is_infinite(x) ? 1.0 / 0.0 : squared_magnitude(x));
    } else if constexpr (is_complex<In>) {
        const float64 re = fabs(float64(x.re)), im = fabs(float64(x.im));
        const float64 large = re > im ? re : im, small = re > im ? im : re;
        if (!is_finite(large) || !is_finite(small)) return large == 1.0 / 0.0 || small == 1.0 / 0.0 ? 1.0 / 0.0 : large + small;
        if (large == 0.0) return 0.0;
        return large * __dsqrt_rn(1.0 + square(small / large));
    } else {
        const Acc y = widen<Acc>(x);
        return y < Acc(0) ? -y : y + Acc(0);  // -0.0 + 0.0 is +0.0
    }
}

template <class In> __device__ __forceinline__ bool is_nonzero(In x)
{
    if constexpr (is_complex<In>) return x.re != 0 || x.im != 0;
    else return number(x) != 0;
}

// Whether what is left of a float64 may count where `narrow` rounds both to a result. One of up to 24 bits is the same whatever
// is left, unless all bits after those and the next are zero: so few of them are asked for here that it holds of all results.
__device__ __forceinline__ bool rest_may_count(float64 x) { return (__double2loint(x) & 0xfffff) == 0; }

// a / n, and what is left of the quotient, which `narrow` rounds once to a result of less than eight bytes: of `low` only the
// sign counts, and it is zero where it does not.
__device__ __forceinline__ compensated quotient(compensated a, float64 n)
{
    compensated r(a.high / n);
    if (a.low == 0.0) {  // not divided, because a quotient of zero, the most frequent one, takes a call
        if (rest_may_count(r.high)) {
            const compensated back = two_product(r.high, n);
            const float64 left = (a.high - back.high) - back.low;
            if (is_finite(left)) r.low = left;
        }
        return r;
    }
    const compensated back = two_product(r.high, n);
    const float64 left = (a.high - back.high) - back.low;
    const float64 rest = (left + a.low) / n;
    if (!is_finite(rest)) return r;
    const float64 high = r.high + rest;
    r.low = rest - (high - r.high);
    r.high = high;
    return r;
}

// The root of x, and the sign of what is left of it, for `narrow`.
__device__ __forceinline__ compensated root(float64 x)
{
    compensated r(__dsqrt_rn(x));
    if (rest_may_count(r.high)) {
        const compensated back = two_product(r.high, r.high);
        const float64 rest = (x - back.high) - back.low;
        if (is_finite(rest)) r.low = rest;
    }
    return r;
}

// Divides in float64, whatever type the sum was accumulated in.
template <class Out, class Acc> __device__ __forceinline__ Out divide(Acc a, uint64 n)
{
    if constexpr (is_complex<Acc>) {
        using Part = decltype(Out::re);
        return Out{narrow<Part>(quotient(in_two_parts(a.re), n)), narrow<Part>(quotient(in_two_parts(a.im), n))};
    } else {
        return narrow<Out>(quotient(in_two_parts(a), n));
    }
}

// Sums of exponentials relative to the largest element, in one pass: no element overflows, and none is read twice (Milakov and
// Gimelshein, Online normalizer calculation for softmax, 2018, but with both sides of a combination treated alike).
#pragma once
#include "operators/operator_keys.cuh"
#include "operators/operator_sum.cuh"

// The elements' maximum, and the sum of exp(x - max) over all others. The maximum's own term, 1, stays out of the sum, so that
// what is far smaller than 1 is not lost in it. A NaN among the elements makes one of the two NaN.
template <class T> struct Exponentials { T max, rest; };

// exp(-|d|), and 1 where d is NaN. In float32 by the special function unit: 2 ulp of 2^t, and t = x log2(e) is rounded, which
// adds a relative error of |x| 2^-24: at most 0.4 * 2^-24 of the maximum's own term. Results under 2^-126 are zero.
__device__ __forceinline__ float32 decay(float32 d)
{
    float32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(fminf(-fabsf(d), 0.0f) * 1.4426950408889634f));
    return y;
}

// In float64 within 1 ulp: 2^n exp(r) with |r| <= log(2) / 2, and exp(r) = 1 + r + r^2 q(r), where the polynomial q
// interpolates at Chebyshev's points, with an error of 0.15 * 2^-53 relative to exp(r). From 708.25 on, where it would be under
// 2^-1021, it is zero. It is not inlined: the compiler would compute many at once and run out of registers, and keep all
// constants in more of them.
static __device__ __noinline__ float64 decay(float64 d)
{
    constexpr float64 shift = 0x1.8p52;  // a sum with it is rounded to a whole number, in its low bits
    constexpr uint32 infinite = 0x7ff00000u, high_of_708 = 0x40862000u;
    const uint32 high = uint32(__double2hiint(d)) & 0x7fffffffu;
    const float64 y = __hiloint2double(high > infinite ? 0 : min(high, high_of_708), __double2loint(d));
    const float64 shifted = __fma_rn(y, -0x1.71547652b82fep0, shift), n = shifted - shift;
    const float64 r = __fma_rn(n, -0x1.abc9e3b39803fp-56, __fma_rn(n, -0x1.62e42fefa39efp-1, -y));
    constexpr float64 q[10] = {  // highest power first
        0x1.af389ed28db09p-26, 0x1.28917c8be7ad6p-22, 0x1.71de0db2f585ep-19, 0x1.a019b914985a9p-16, 0x1.a01a01a7c2f03p-13,
        0x1.6c16c17889ef9p-10, 0x1.11111111109b5p-7, 0x1.5555555553d68p-5, 0x1.5555555555556p-3, 0x1.0000000000001p-1,
    };
    float64 e = q[0];
#pragma unroll
    for (int i = 1; i < 10; ++i) e = __fma_rn(e, r, q[i]);
    e = __fma_rn(__fma_rn(e, r, 1.0), r, 1.0);
    const bool is_far = high > high_of_708 && high <= infinite;
    return is_far ? 0.0 : __hiloint2double(__double2hiint(e) + (__double2loint(shifted) << 20), __double2loint(e));
}
// log(1 + x), and x y + z rounded once.
__device__ __forceinline__ float32 logarithm_of_one_and(float32 x) { return log1pf(x); }
__device__ __forceinline__ float64 logarithm_of_one_and(float64 x) { return log1p(x); }
__device__ __forceinline__ float32 fused(float32 x, float32 y, float32 z) { return __fmaf_rn(x, y, z); }
__device__ __forceinline__ float64 fused(float64 x, float64 y, float64 z) { return __fma_rn(x, y, z); }

template <class In, class T, class Out> struct ExponentialsOf : Operator<In, Exponentials<T>, Out> {
    using E = Exponentials<T>;

    static __device__ __forceinline__ E identity() { return {T(-1.0 / 0.0), T(-1)}; }  // no element, so no term of 1 either
    template <class I, class R> static __device__ __forceinline__ E map(const I& item, const R&)
    {
        return {widen<T>(item.x), T(0)};
    }
    // The sum that goes with the larger maximum is relative to it already; only the other one is scaled by an exponential. The
    // difference of two equal infinities is NaN, for which decay gives 1. A NaN is kept by the maximum.
    static __device__ __forceinline__ E combine(E a, E b)
    {
        const T ratio = decay(a.max - b.max);
        const bool swap = a.max > b.max;
        const T high = swap ? a.rest : b.rest, low = swap ? b.rest : a.rest;
        return {extreme<true>(a.max, b.max), high + fused(low, ratio, ratio)};
    }
};

template <class In, class Acc, class Out> struct LogSumExp : ExponentialsOf<In, Acc, Out> {
    template <class R> static __device__ __forceinline__ Out finish(Exponentials<Acc> a, const R&, int)
    {
        return narrow<Out>(a.max + logarithm_of_one_and(a.rest));
    }
    template <class R> static __device__ __forceinline__ Out empty(const R& row, int)
    {
        return finish(LogSumExp::identity(), row, 0);
    }
};

template <class In, class Acc, class Out> struct SoftmaxStats : ExponentialsOf<In, Acc, Out> {
    static constexpr int results = 2;
    template <class R> static __device__ __forceinline__ Out finish(Exponentials<Acc> a, const R&, int k)
    {
        if (a.max != a.max || a.rest != a.rest) return quiet_nan<Out>();
        return narrow<Out>(k == 0 ? a.max + Acc(0) : Acc(1) + a.rest);  // +0.0: which of two zeros the maximum is depends on the order
    }
    template <class R> static __device__ __forceinline__ Out empty(const R& row, int k)
    {
        return finish(SoftmaxStats::identity(), row, k);
    }
};

// The same with the sum of the others' exponentials alone, of which the logarithm of one and it keeps all digits.
template <class In, class Acc, class Out> struct SoftmaxRest : ExponentialsOf<In, Acc, Out> {
    static constexpr int results = 2;
    template <class R> static __device__ __forceinline__ Out finish(Exponentials<Acc> a, const R&, int k)
    {
        if (a.max != a.max || a.rest != a.rest) return quiet_nan<Out>();
        return narrow<Out>(k == 0 ? a.max + Acc(0) : a.rest);
    }
    template <class R> static __device__ __forceinline__ Out empty(const R& row, int k)
    {
        return finish(SoftmaxRest::identity(), row, k);
    }
};

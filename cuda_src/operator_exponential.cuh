// Sums of exponentials relative to the largest element, in one pass: no element overflows, and none is read twice
// (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018, with both sides of a combination equal).
#pragma once
#include "operator_keys.cuh"
#include "operator_sum.cuh"

// The elements' maximum, and the sum of exp(x - max) over them. A NaN among them makes one of the two NaN.
template <class T> struct Exponentials { T max, sum; };

// exp(x) for x <= 0. In float32 by the special function unit: 2 ulp of 2^t, and t = x log2(e) is rounded, which adds
// |x| 2^-24 relative, at most 0.4 * 2^-24 of the 1 that the result is added to. Results under 2^-126 are zero.
__device__ __forceinline__ float32 exponential(float32 x)
{
    float32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
    return y;
}
__device__ __forceinline__ float64 exponential(float64 x) { return exp(x); }
__device__ __forceinline__ float32 logarithm(float32 x) { return logf(x); }
__device__ __forceinline__ float64 logarithm(float64 x) { return log(x); }

template <class In, class T, class Out> struct ExponentialsOf : Operator<In, Exponentials<T>, Out> {
    using E = Exponentials<T>;

    static __device__ __forceinline__ E identity() { return {T(-1.0 / 0.0), T(0)}; }
    template <class I, class R> static __device__ __forceinline__ E map(const I& item, const R&)
    {
        return {widen<T>(item.x), T(1)};
    }
    // The sum of the larger maximum is relative to it already, and only the other one takes an exponential. Two equal
    // infinities have no difference: the minimum then is its other operand. A NaN is kept by the maximum.
    static __device__ __forceinline__ E combine(E a, E b)
    {
        const T ratio = exponential(smaller(-fabs(a.max - b.max), T(0)));
        const bool swap = a.max > b.max;
        const T high = swap ? a.sum : b.sum, low = swap ? b.sum : a.sum;
        return {extreme_or_nan<true>(a.max, b.max), high + low * ratio};
    }

private:
    static __device__ __forceinline__ float32 smaller(float32 a, float32 b) { return fminf(a, b); }
    static __device__ __forceinline__ float64 smaller(float64 a, float64 b) { return fmin(a, b); }
};

template <class In, class Acc, class Out> struct LogSumExp : ExponentialsOf<In, Acc, Out> {
    template <class R> static __device__ __forceinline__ Out finish(Exponentials<Acc> a, const R&, int)
    {
        return narrow<Out>(a.max + logarithm(a.sum));
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
        if (a.max != a.max || a.sum != a.sum) return quiet_nan<Out>();
        return narrow<Out>(k == 0 ? a.max : a.sum);
    }
    template <class R> static __device__ __forceinline__ Out empty(const R& row, int k)
    {
        return finish(SoftmaxStats::identity(), row, k);
    }
};

// Mean and variance of the elements that a mask leaves. Their first one, which could be a pivot, is not known, and another
// element may lie anywhere: so each accumulator has the sum of its elements and the squares of their deviations from their own
// mean, and two of them add (Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm, 1979)
//     (mean a - mean b)^2 m n / (m + n)
// for the m elements of a and the n of b. Nothing cancels there but the difference of the means.
#pragma once
#include "operators/operator_moments.cuh"

template <int Parts> struct MaskedMoments { float64 sums[Parts], squares, count; };

// What two accumulators add to the squares; nothing if one is of no element. Not inlined: three divisions for each element
// would be more code than all else.
static __device__ __noinline__ float64 squares_between(float64 a, float64 m, float64 b, float64 n)
{
    const float64 d = a / m - b / n;
    return m == 0.0 || n == 0.0 ? 0.0 : d * d * (m * n / (m + n));
}

template <class In, class Out> struct MaskedMomentsOf : Operator<In, MaskedMoments<is_complex<In> ? 2 : 1>, Out> {
    static constexpr int parts = is_complex<In> ? 2 : 1;
    using M = MaskedMoments<parts>;

    static __device__ __forceinline__ M identity() { return nothing(-0.0); }
    static __device__ __forceinline__ M skipped() { return nothing(0.0); }  // as of a mean with a mask
    template <class I, class R> static __device__ __forceinline__ M map(const I& item, const R&)
    {
        M a;
        a.squares = 0.0;
        a.count = 1.0;
#pragma unroll
        for (int k = 0; k < parts; ++k) {
            a.sums[k] = float64(part_of(item.x, k));
            a.squares += a.sums[k] - a.sums[k];  // NaN if it is not finite
        }
        return a;
    }
    static __device__ __forceinline__ M combine(M a, M b)
    {
        float64 between = squares_between(a.sums[0], a.count, b.sums[0], b.count);
        if constexpr (parts == 2) between += squares_between(a.sums[1], a.count, b.sums[1], b.count);
        a.squares = (a.squares + b.squares) + between;
        a.count += b.count;
#pragma unroll
        for (int k = 0; k < parts; ++k) a.sums[k] += b.sums[k];
        return a;
    }

protected:
    template <class R> static __device__ __forceinline__ compensated variance(M a, const R& row)
    {
        const float64 degrees = a.count - __longlong_as_double(row.initial[0]);
        return quotient(compensated(a.squares), degrees > 0.0 ? degrees : 0.0);
    }
    static __device__ __forceinline__ M nothing(float64 zero)
    {
        if constexpr (parts == 2) return {{zero, zero}, 0.0, 0.0};
        else return {{zero}, 0.0, 0.0};
    }
};

template <class In, class Acc, class Out> struct MaskedVariance : MaskedMomentsOf<In, Out> {
    template <class A, class R> static __device__ __forceinline__ Out finish(A a, const R& row, int)
    {
        return narrow<Out>(MaskedVariance::variance(a, row));
    }
    template <class R> static __device__ __forceinline__ Out empty(const R&, int) { return quiet_nan<Out>(); }
};

template <class In, class Acc, class Out> struct MaskedDeviation : MaskedVariance<In, Acc, Out> {
    template <class A, class R> static __device__ __forceinline__ Out finish(A a, const R& row, int)
    {
        return narrow<Out>(root(MaskedDeviation::variance(a, row).high));
    }
};

template <class In, class Acc, class Out> struct MaskedMeanVariance : MaskedVariance<In, Acc, Out> {
    static constexpr int results = 2;
    template <class A, class R> static __device__ __forceinline__ Out finish(A a, const R& row, int k)
    {
        return narrow<Out>(k == 0 ? quotient(compensated(a.sums[0]), a.count) : MaskedMeanVariance::variance(a, row));
    }
};

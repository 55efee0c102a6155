// Mean and variance in one pass, about the row's first element.
//
// With d = x - pivot, n var = sum d^2 - (sum d)^2 / n. The difference cancels by a factor of
//     sum d^2 / (n var) = 1 + n (mean - pivot)^2 / (n var) <= 1 + n,
// since the pivot is itself one of the n elements: (mean - pivot)^2 is a term of n var. If the pivot is within k standard
// deviations of the mean the factor is at most 1 + k^2, whatever the mean is. So float64 keeps at least 53 - log2(1 + n) bits,
// and 50 for nearly every row, where the sum of squares about zero keeps none once the mean is 2^26 times the deviation.
#pragma once
#include "operator_sum.cuh"

struct Moments { float64 sum, squares; };

// What deviations are counted from: zero if the pivot is not finite, since infinity - infinity would hide what the mean is.
template <class T> __device__ __forceinline__ float64 finite_or_zero(T x) { return x - x == 0 ? float64(x) : 0.0; }

// The variance of n elements whose squared deviations add up to `rest`.
template <uint64 Ddof> __device__ __forceinline__ float64 divided(float64 rest, uint64 n)
{
    return (rest < 0.0 ? 0.0 : rest) / (n > Ddof ? float64(n - Ddof) : 0.0);
}

template <class In, class Out> struct MomentsOf : Operator<In, Moments, Out> {
    using Pivot = In;  // as it was loaded: converting it at once would wait for it before the other loads

    static __device__ __forceinline__ In pivot(In first) { return first; }
    static __device__ __forceinline__ Moments identity() { return {-0.0, -0.0}; }
    // One more element equal to the pivot adds +0.0 to both sums, as the row's first element does already.
    static constexpr bool has_absent = true;
    template <class R> static __device__ __forceinline__ In absent(const R& row) { return row.pivot; }

    template <class I, class R> static __device__ __forceinline__ Moments map(const I& item, const R& row)
    {
        const float64 d = widen<float64>(item.x) - origin(row.pivot);
        return {d, d * d};
    }
    // For bytes, from the sums of elements and of squares, in integers: exactly what the tree's sums within a vector are.
    static constexpr bool folds_with_row = is_byte_integer<In>;
    template <class R> static __device__ __forceinline__ Moments fold_with_row(uint4 v, const R& row)
    {
        constexpr int32 n = 16;
        const int32 from = int32(number(row.pivot)), sum = int32(sum_packed<In, false>(v));
        return {float64(sum - n * from), float64(sum_of_squares<In>(v) - from * (2 * sum - n * from))};
    }
    static __device__ __forceinline__ Moments combine(Moments a, Moments b)
    {
        return {a.sum + b.sum, a.squares + b.squares};
    }

protected:
    static __device__ __forceinline__ float64 origin(In pivot) { return finite_or_zero(number(pivot)); }
    template <class R> static __device__ __forceinline__ float64 mean(Moments a, const R& row)
    {
        return MomentsOf::origin(row.pivot) + a.sum / float64(row.length);
    }
    template <uint64 Ddof, class R> static __device__ __forceinline__ float64 variance(Moments a, const R& row)
    {
        return divided<Ddof>(a.squares - a.sum * (a.sum / float64(row.length)), row.length);
    }
};

template <class In, class Acc, class Out, uint64 Ddof> struct Variance : MomentsOf<In, Out> {
    template <class R> static __device__ __forceinline__ Out finish(Moments a, const R& row, int)
    {
        return narrow<Out>(Variance::template variance<Ddof>(a, row));
    }
    template <class R> static __device__ __forceinline__ Out empty(const R&, int) { return quiet_nan<Out>(); }
};

template <class In, class Acc, class Out, uint64 Ddof> struct Deviation : Variance<In, Acc, Out, Ddof> {
    template <class R> static __device__ __forceinline__ Out finish(Moments a, const R& row, int)
    {
        return narrow<Out>(square_root(Deviation::template variance<Ddof>(a, row)));
    }
};

// The variance of complex elements is that of both parts together: it is real, and each part is taken about the pivot's.
struct ComplexMoments { float64 re, im, squares; };

template <class In, class Acc, class Out, uint64 Ddof> struct ComplexVariance : Operator<In, ComplexMoments, Out> {
    using Pivot = In;

    static __device__ __forceinline__ In pivot(In first) { return first; }
    static __device__ __forceinline__ ComplexMoments identity() { return {-0.0, -0.0, -0.0}; }
    template <class I, class R> static __device__ __forceinline__ ComplexMoments map(const I& item, const R& row)
    {
        const auto x = widen<complex128>(item.x), from = widen<complex128>(row.pivot);
        const float64 re = x.re - finite_or_zero(from.re), im = x.im - finite_or_zero(from.im);
        return {re, im, re * re + im * im};
    }
    static __device__ __forceinline__ ComplexMoments combine(ComplexMoments a, ComplexMoments b)
    {
        return {a.re + b.re, a.im + b.im, a.squares + b.squares};
    }
    template <class R> static __device__ __forceinline__ Out finish(ComplexMoments a, const R& row, int)
    {
        return narrow<Out>(ComplexVariance::variance(a, row));
    }
    template <class R> static __device__ __forceinline__ Out empty(const R&, int) { return quiet_nan<Out>(); }

protected:
    template <class R> static __device__ __forceinline__ float64 variance(ComplexMoments a, const R& row)
    {
        const float64 n = float64(row.length);
        return divided<Ddof>(a.squares - (a.re * (a.re / n) + a.im * (a.im / n)), row.length);
    }
};

template <class In, class Acc, class Out, uint64 Ddof>
struct ComplexDeviation : ComplexVariance<In, Acc, Out, Ddof> {
    template <class R> static __device__ __forceinline__ Out finish(ComplexMoments a, const R& row, int)
    {
        return narrow<Out>(square_root(ComplexDeviation::variance(a, row)));
    }
};

template <class In, class Acc, class Out, uint64 Ddof> struct MeanVariance : Variance<In, Acc, Out, Ddof> {
    static constexpr int results = 2;
    template <class R> static __device__ __forceinline__ Out finish(Moments a, const R& row, int k)
    {
        return narrow<Out>(k == 0 ? MeanVariance::mean(a, row) : MeanVariance::template variance<Ddof>(a, row));
    }
};

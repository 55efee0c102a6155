// The mean beside the variance, in one pass: by the sum of deviations where that is as good, else by the elements' own sum.
#pragma once
#include "operators/operator_moments.cuh"

// Of integers of one or two bytes and of floats whose results have fewer bits than float64.
//
// The sum of deviations of such integers is exact for 2^36 elements and more, and so is the elements' sum that is made of it.
// For the floats pivot + sum d / n is off by (h + 3) 2^-53 (|pivot| + mean |d|) at most, where h is the height of the tree: of
// mean |x|, since the pivot is one of the elements, that is less than (h + 3) n 2^-51.
template <class In, class Acc, class Out> struct MeanByPivot : Variance<In, Acc, Out> {
    static constexpr int results = 2;
    template <class A, class R> static __device__ __forceinline__ Out finish(A a, const R& row, int k)
    {
        if (k == 1) return narrow<Out>(MeanByPivot::variance(a, row));
        if constexpr (is_float<In>) return narrow<Out>(MeanByPivot::origin(row.pivot) + a.sums[0] / float64(row.length));
        else return divide<Out>(int64(a.sums[0]) + int64(number(row.pivot)) * int64(row.length), row.length);
    }
};

// The same of other types: by the elements' own sum, in the type in which `Mean` sums them, and so with its bits. Where arrays
// are in parts, floats of all types have that sum, since the type of the results is not known yet.
template <class In> struct TotalOf { using type = float64; };
template <> struct TotalOf<int32> { using type = int64; };
template <> struct TotalOf<uint32> { using type = uint64; };
template <class In, class Out> constexpr bool has_total =
    sizeof(In) == 8 || (sizeof(In) == 4 && !is_float<In>) || (is_float<In> && is_same<Out, float64>);

template <class T> struct MomentsAndTotal {
    Moments<1> moments;
    T total;
};

template <class In, class Acc, class Out>
struct MeanByTotal : Operator<In, MomentsAndTotal<typename TotalOf<In>::type>, Out> {
    using About = Variance<In, Acc, Out>;
    using Total = typename TotalOf<In>::type;
    using A = MomentsAndTotal<Total>;
    using Adding = Additive<In, Total, Out>;
    using Pivot = In;
    static constexpr int results = 2;

    static __device__ __forceinline__ In pivot(In first) { return first; }
    static __device__ __forceinline__ A identity() { return {About::identity(), Adding::identity()}; }
    template <class I, class R> static __device__ __forceinline__ A map(const I& item, const R& row)
    {
        return {About::map(item, row), widen<Total>(item.x)};
    }
    static constexpr bool folds_with_row = is_same<In, float64>;
    template <class R> static __device__ __forceinline__ A fold_with_row(uint4 v, const R& row)
    {
        const VectorOf<In> u = {v};
        return {About::fold_with_row(v, row), widen<Total>(u.elements[0]) + widen<Total>(u.elements[1])};
    }
    static __device__ __forceinline__ A combine(A a, A b)
    {
        return {About::combine(a.moments, b.moments), a.total + b.total};
    }
    template <class R> static __device__ __forceinline__ Out finish(A a, const R& row, int k)
    {
        if constexpr (has_total<In, Out>)
            if (k == 0) return divide<Out>(a.total, row.length);
        return MeanByPivot<In, Acc, Out>::finish(a.moments, row, k);
    }
    template <class R> static __device__ __forceinline__ Out empty(const R&, int) { return quiet_nan<Out>(); }
};

template <class In, class Acc, class Out, bool HasTotal = has_total<In, Out>>
struct MeanVariance : MeanByPivot<In, Acc, Out> {};
template <class In, class Acc, class Out>
struct MeanVariance<In, Acc, Out, true> : MeanByTotal<In, Acc, Out> {};

// Operators as row operations fold them: to the bits of the tree, cheaper.
#pragma once
#include "operators/operator_exponential.cuh"
#include "operators/operator_mean_variance.cuh"
#include "tree/leaf_steps.cuh"

// A reduction as row operations fold it: with a fold of whole vectors, to the same bits, where that is cheaper.
template <class Op> struct InRows : Op {};
// Whether what a row without elements comes to is what their fold comes to: asked for several results, it is found once.
template <class Op> constexpr bool finishes_empty = false;
// Of two elements the sum beside the larger is the exponential itself.
template <class Op> struct InPairs : Op {
    using In = typename Op::Input;
    using E = Exponentials<float32>;
    static constexpr bool folds_whole_vectors = true;
    static __device__ __forceinline__ E fold_packed(uint4 v)
    {
        constexpr uint32 V = vector_elements<In>;
        const VectorOf<In> u = {v};
        E pairs[V / 2];
#pragma unroll
        for (uint32 i = 0; i < V / 2; ++i) {
            const float32 x = number_in(u, 2 * i), y = number_in(u, 2 * i + 1);
            pairs[i] = {extreme<true>(x, y), decay(x - y)};
        }
        return fold_array<InPairs, V / 2>(pairs);
    }
};
template <class In, class Out> struct InRows<SoftmaxStats<In, float32, Out>> : InPairs<SoftmaxStats<In, float32, Out>> {};
template <class In, class Out> struct InRows<SoftmaxRest<In, float32, Out>> : InPairs<SoftmaxRest<In, float32, Out>> {};

template <class In, class Acc, class Out>
struct InRows<MeanVariance<In, Acc, Out, false>> : MeanVariance<In, Acc, Out, false> {
    static constexpr bool folds_with_row = InRows::is_half;
    // With one division less for the variance: of what its quotient lacks the sign counts, since it is rounded to fewer bits.
    template <class A, class R> static __device__ __forceinline__ Out finish(A a, const R& row, int k)
    {
        const float64 n = float64(row.length), mean = a.sums[0] / n;
        if (k == 0) return narrow<Out>(InRows::origin(row.pivot) + mean);
        const float64 ones = n - __longlong_as_double(row.initial[0]), degrees = ones > 0.0 ? ones : 0.0;
        const float64 left = a.squares - a.sums[0] * mean, squares = left < 0.0 ? 0.0 : left;
        compensated found(squares / degrees);
        const compensated back = two_product(found.high, degrees);
        const float64 rest = (squares - back.high) - back.low;
        if (is_finite(rest)) found.low = rest;
        return narrow<Out>(found);
    }
};
template <class In, class Acc, class Out> constexpr bool finishes_empty<InRows<MeanVariance<In, Acc, Out, false>>> = true;

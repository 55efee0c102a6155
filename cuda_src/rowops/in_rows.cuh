// Operators as row operations fold them: to the bits of the tree, cheaper.
#pragma once
#include "operators/operator_exponential.cuh"
#include "rowops/numbers.cuh"
#include "tree/leaf_steps.cuh"

// A reduction as row operations fold it: with a fold of whole vectors, to the same bits, where that is cheaper.
template <class Op> struct InRows : Op {};
// Of two elements the sum beside the larger is the exponential itself. And -inf stands for absent elements: beside others its
// exponential is zero. In a row of nothing but -inf each has an exponential of 1, so that absent ones would be counted.
template <class Op> struct InPairs : Op {
    using In = typename Op::Input;
    using E = Exponentials<float32>;
    static constexpr bool folds_whole_vectors = true, has_absent = true;
    template <class R> static __device__ __forceinline__ In absent(const R&) { return narrow<In>(-infinity<float32>()); }
    template <class R> static __device__ __forceinline__ auto finish(E a, const R& row, int k)
    {
        if (a.max == -infinity<float32>()) a.rest = float32(row.length - 1);
        return Op::finish(a, row, k);
    }
    static __device__ __forceinline__ E fold_packed(uint4 v)
    {
        constexpr uint32 V = vector_elements<In>;
        union { uint4 raw; In elements[V]; } u;
        u.raw = v;
        E pairs[V / 2];
#pragma unroll
        for (uint32 i = 0; i < V / 2; ++i) {
            const float32 x = widen<float32>(u.elements[2 * i]), y = widen<float32>(u.elements[2 * i + 1]);
            pairs[i] = {extreme<true>(x, y), decay(x - y)};
        }
        return fold_array<InPairs, V / 2>(pairs);
    }
};
template <class In, class Out> struct InRows<SoftmaxStats<In, float32, Out>> : InPairs<SoftmaxStats<In, float32, Out>> {};
template <class In, class Out> struct InRows<SoftmaxRest<In, float32, Out>> : InPairs<SoftmaxRest<In, float32, Out>> {};

// Operators as row operations fold them: to the bits of the tree, cheaper.
#pragma once
#include "operators/operator_exponential.cuh"
#include "tree/leaf_steps.cuh"

// A reduction as row operations fold it: with a fold of whole vectors, to the same bits, where that is cheaper.
template <class Op> struct InRows : Op {};
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
            const float32 x = widen<float32>(u.elements[2 * i]), y = widen<float32>(u.elements[2 * i + 1]);
            pairs[i] = {extreme<true>(x, y), decay(x - y)};
        }
        return fold_array<InPairs, V / 2>(pairs);
    }
};
template <class In, class Out> struct InRows<SoftmaxStats<In, float32, Out>> : InPairs<SoftmaxStats<In, float32, Out>> {};
template <class In, class Out> struct InRows<SoftmaxRest<In, float32, Out>> : InPairs<SoftmaxRest<In, float32, Out>> {};

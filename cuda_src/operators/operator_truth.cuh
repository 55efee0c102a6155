// Whether any element is true, and whether all are.
#pragma once
#include "base/arithmetic.cuh"
#include "operators/operator.cuh"
#include "tree/vector_integer.cuh"

template <class In, class Acc, class Out> struct Any : Operator<In, Acc, Out> {
    static constexpr bool has_absent = true;
    template <class R> static __device__ __forceinline__ In absent(const R&) { return element_of_bits<In>(0); }
    static __device__ __forceinline__ Acc identity() { return 0; }
    template <class I, class R> static __device__ __forceinline__ Acc map(const I& item, const R&)
    {
        return Acc(is_nonzero(item.x));
    }
    static __device__ __forceinline__ Acc combine(Acc a, Acc b) { return a | b; }
    static constexpr bool packed = sizeof(In) == 1;
    static __device__ __forceinline__ Acc fold_packed(uint4 v)
    {
        return ((v.x | v.y | v.z | v.w) & (is_float<In> ? 0x7f7f7f7fu : ~0u)) != 0;
    }
    static constexpr bool folds_elements = true;  // a zero has no bit set, except perhaps its sign
    static __device__ __forceinline__ uint4 combine_elements(uint4 a, uint4 b)
    {
        return make_uint4(a.x | b.x, a.y | b.y, a.z | b.z, a.w | b.w);
    }
    template <class R> static __device__ __forceinline__ Out finish(Acc a, const R&, int) { return narrow<Out>(a); }
    template <class R> static __device__ __forceinline__ Out empty(const R&, int) { return narrow<Out>(identity()); }
};

template <class In, class Acc, class Out> struct All : Any<In, Acc, Out> {
    template <class R> static __device__ __forceinline__ In absent(const R&) { return element_of_bits<In>(~uint64(0)); }
    static __device__ __forceinline__ Acc identity() { return 1; }
    static __device__ __forceinline__ Acc combine(Acc a, Acc b) { return a & b; }
    static constexpr bool packed = false, folds_elements = false, folds_whole_vectors = sizeof(In) == 1;
    static __device__ __forceinline__ Acc fold_packed(uint4 v)
    {
        const uint32 front = nonzero_bytes<In>(v.x) & nonzero_bytes<In>(v.y);
        const uint32 all = front & nonzero_bytes<In>(v.z) & nonzero_bytes<In>(v.w);
        return (all & 0x80808080u) == 0x80808080u;
    }
    template <class R> static __device__ __forceinline__ Out empty(const R&, int) { return narrow<Out>(identity()); }
};

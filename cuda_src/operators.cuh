// The operators: what an element becomes, how two accumulators combine, what the last one becomes.
//
// Each has the types Input, Accumulator and Result, and
//   identity()     combining with it returns the other operand bit for bit: it stands for what is absent;
//   absent()       an element whose map is the identity: it pads a vector that is not whole;
//   map(x)         one element -> accumulator;
//   combine(a, b)  associative in the tree's sense only, commutative bit for bit;
//   finish(a)      accumulator -> result;
//   empty()        the result over no elements;
//   packed         whether fold_packed(vector) folds the elements of 16 bytes at once, to the same bits.
#pragma once
#include "types.cuh"

// The exact sum of two doubles as a rounded value and its error (Knuth's TwoSum).
__device__ __forceinline__ compensated two_sum(float64 a, float64 b)
{
    compensated r;
    r.high = a + b;
    const float64 t = r.high - a;
    r.low = (a - (r.high - t)) + (b - t);
    return r;
}

// Double-double addition, AccurateDWPlusDW of Joldes, Muller and Popescu (2017): relative error under 3 * 2^-106.
// Two additions to it: an overflow, infinity or NaN stays what float64 makes of it, and so does the sign of a zero.
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
    if (!(fabs(s.high) <= 0x1.fffffffffffffp1023)) { r.high = s.high; r.low = 0.0; }
    return r;
}
template <class T> __device__ __forceinline__ T add(T x, T y) { return x + y; }

template <class In, class Acc, class Out> struct Sum {
    using Input = In;
    using Accumulator = Acc;
    using Result = Out;

    static __device__ __forceinline__ Acc identity()
    {
        if constexpr (is_integer<Acc>) return Acc(0);
        else return Acc(-0.0f);  // x + (-0.0) is x for every x; -0.0 + 0.0 would not be -0.0
    }
    static __device__ __forceinline__ In absent()
    {
        if constexpr (is_same<In, float16>) return float16{0x8000};
        else if constexpr (is_same<In, bfloat16>) return bfloat16{0x8000};
        else if constexpr (is_same<In, boolean>) return boolean{0};
        else if constexpr (is_integer<In>) return In(0);
        else return In(-0.0f);
    }
    static __device__ __forceinline__ Acc map(In x) { return widen<Acc>(x); }
    static __device__ __forceinline__ Acc combine(Acc a, Acc b) { return add(a, b); }
    static __device__ __forceinline__ Out finish(Acc a) { return narrow<Out>(a); }
    static __device__ __forceinline__ Out empty() { return narrow<Out>(Acc(0.0f)); }

    // Integers narrower than a word: dot products with ones. Exact, so the order inside the vector does not show.
    static constexpr bool packed = is_integer<Acc> && sizeof(In) < 4;
    static __device__ __forceinline__ Acc fold_packed(uint4 v)
    {
        const uint32 words[4] = {v.x, v.y, v.z, v.w};
        if constexpr (is_signed_integer<In>) {
            int32 sum = 0;
#pragma unroll
            for (int i = 0; i < 4; ++i)
                sum = sizeof(In) == 1 ? __dp4a(int32(words[i]), 0x01010101, sum) : __dp2a_lo(int32(words[i]), 0x0101, sum);
            return Acc(sum);
        } else {
            uint32 sum = 0;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                uint32 word = words[i];
                if constexpr (is_same<In, boolean>)  // each nonzero byte becomes 1
                    word = ((((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word) & 0x80808080u) >> 7;
                sum = sizeof(In) == 1 ? __dp4a(word, 0x01010101u, sum) : __dp2a_lo(word, 0x0101u, sum);
            }
            return Acc(sum);
        }
    }
};

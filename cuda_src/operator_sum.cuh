// Sums, and what is a sum of something: the mean, norms, products of two arrays.
#pragma once
#include "operator.cuh"

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
    if (!is_finite(s.high)) { r.high = s.high; r.low = 0.0; }
    return r;
}
__device__ __forceinline__ complex128 add(complex128 x, complex128 y) { return complex128(x.re + y.re, x.im + y.im); }
template <class T> __device__ __forceinline__ T add(T x, T y) { return x + y; }

// Sums are built on this: how accumulators add up, and a finish that only rounds.
template <class In, class Acc, class Out> struct Additive : Operator<In, Acc, Out> {
    static __device__ __forceinline__ Acc identity()
    {
        if constexpr (is_integer<Acc>) return Acc(0);
        else if constexpr (is_complex<Acc>) return Acc(-0.0, -0.0);
        else return Acc(-0.0f);  // x + (-0.0) is x for every x; -0.0 + 0.0 would not be -0.0
    }
    // What an element that is left out adds: +0.0, so that a sum over nothing but such is +0.0, as in NumPy.
    static __device__ __forceinline__ Acc skipped() { return widen<Acc>(float32(0.0f)); }
    static __device__ __forceinline__ Acc combine(Acc a, Acc b) { return add(a, b); }
    template <class R> static __device__ __forceinline__ Out finish(Acc a, const R&, int) { return narrow<Out>(a); }
    template <class R> static __device__ __forceinline__ Out empty(const R&, int) { return narrow<Out>(skipped()); }
};

// Integers narrower than a word, 16 bytes of them at once, as dot products with ones; in bytes, `Truth` makes each
// nonzero one 1 first. Exact, so the order inside the vector does not show.
template <class In, bool Truth> __device__ __forceinline__ int64 sum_packed(uint4 v)
{
    const uint32 words[4] = {v.x, v.y, v.z, v.w};
    if constexpr (is_signed_integer<In> && !Truth) {
        int32 sum = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            sum = sizeof(In) == 1 ? __dp4a(int32(words[i]), 0x01010101, sum) : __dp2a_lo(int32(words[i]), 0x0101, sum);
        return sum;
    } else {
        uint32 sum = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            uint32 word = words[i];
            if constexpr (Truth) word = ((((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word) & 0x80808080u) >> 7;
            sum = sizeof(In) == 1 ? __dp4a(word, 0x01010101u, sum) : __dp2a_lo(word, 0x0101u, sum);
        }
        return sum;
    }
}

template <class In, class Acc, class Out> struct Sum : Additive<In, Acc, Out> {
    template <class I, class R> static __device__ __forceinline__ Acc map(const I& item, const R&)
    {
        return widen<Acc>(item.x);
    }
    static constexpr bool packed = is_integer<Acc> && sizeof(In) < 4;
    static __device__ __forceinline__ Acc fold_packed(uint4 v) { return Acc(sum_packed<In, is_same<In, boolean>>(v)); }
};

template <class Acc> __device__ __forceinline__ Acc square(Acc x) { return x * x; }

// The exact product of two doubles as a rounded value and its error. Where the error might be less than the smallest
// double, or the product is not finite, the error is given as zero: NumPy, which has no fma, then says the same.
__device__ __forceinline__ compensated two_product(float64 x, float64 y)
{
    compensated r;
    r.high = x * y;
    r.low = fabs(r.high) >= 0x1p-900 && is_finite(r.high) ? __fma_rn(x, y, -r.high) : 0.0;
    return r;
}

template <class Acc> __device__ __forceinline__ Acc product(Acc x, Acc y) { return x * y; }
__device__ __forceinline__ compensated product(compensated x, compensated y) { return two_product(x.high, y.high); }
__device__ __forceinline__ complex128 product(complex128 x, complex128 y)
{
    return complex128(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re);
}

// |x|, of a complex number without overflow on the way.
template <class Acc, class In> __device__ __forceinline__ Acc absolute(In x)
{
    if constexpr (is_complex<In>) {
        const float64 re = fabs(float64(x.re)), im = fabs(float64(x.im));
        const float64 large = re > im ? re : im, small = re > im ? im : re;
        if (!is_finite(large) || !is_finite(small)) return large == 1.0 / 0.0 || small == 1.0 / 0.0 ? 1.0 / 0.0 : large + small;
        if (large == 0.0) return 0.0;
        return large * __dsqrt_rn(1.0 + square(small / large));
    } else {
        const Acc y = widen<Acc>(x);
        return y < Acc(0) ? -y : y + Acc(0);  // -0.0 + 0.0 is +0.0
    }
}

__device__ __forceinline__ float32 square_root(float32 x) { return __fsqrt_rn(x); }
__device__ __forceinline__ float64 square_root(float64 x) { return __dsqrt_rn(x); }

template <class In> __device__ __forceinline__ bool is_nonzero(In x)
{
    if constexpr (is_complex<In>) return x.re != 0 || x.im != 0;
    else return number(x) != 0;
}

// Divides in float64, whatever the sum was made in.
template <class Out, class Acc> __device__ __forceinline__ Out divide(Acc a, uint64 n)
{
    if constexpr (is_complex<Acc>) return narrow<Out>(complex128(a.re / float64(n), a.im / float64(n)));
    else if constexpr (is_same<Acc, compensated>) return narrow<Out>(a.high / float64(n));
    else return narrow<Out>(float64(a) / float64(n));
}

template <class In, class Acc, class Out> struct Mean : Sum<In, Acc, Out> {
    template <class R> static __device__ __forceinline__ Out finish(Acc a, const R& row, int)
    {
        return divide<Out>(a, row.length);
    }
    template <class R> static __device__ __forceinline__ Out empty(const R&, int) { return divide<Out>(Acc(0.0f), 0); }
};

template <class In, class Acc, class Out> struct CountNonzero : Additive<In, Acc, Out> {
    template <class I, class R> static __device__ __forceinline__ Acc map(const I& item, const R&)
    {
        return Acc(is_nonzero(item.x));
    }
    static constexpr bool packed = sizeof(In) == 1 && (is_integer<In> || is_same<In, boolean>);
    static __device__ __forceinline__ Acc fold_packed(uint4 v) { return Acc(sum_packed<In, true>(v)); }
};

template <class In, class Acc, class Out> struct SumSquares : Additive<In, Acc, Out> {
    template <class I, class R> static __device__ __forceinline__ Acc map(const I& item, const R&)
    {
        return square(widen<Acc>(item.x));
    }
};

template <class In, class Acc, class Out> struct Norm1 : Additive<In, Acc, Out> {
    template <class I, class R> static __device__ __forceinline__ Acc map(const I& item, const R&)
    {
        return absolute<Acc>(item.x);
    }
};

template <class In, class Acc, class Out> struct Norm2 : Additive<In, Acc, Out> {
    template <class I, class R> static __device__ __forceinline__ Acc map(const I& item, const R&)
    {
        if constexpr (is_complex<In>) return square(Acc(item.x.re)) + square(Acc(item.x.im));
        else return square(widen<Acc>(item.x));
    }
    template <class R> static __device__ __forceinline__ Out finish(Acc a, const R&, int)
    {
        return narrow<Out>(square_root(a));
    }
};

template <class In, class Acc, class Out> struct Dot : Additive<In, Acc, Out> {
    using Second = In;
    template <class I, class R> static __device__ __forceinline__ Acc map(const I& item, const R&)
    {
        return product(widen<Acc>(item.x), widen<Acc>(item.y));
    }
};

template <class In, class Acc, class Out> struct Product : Operator<In, Acc, Out> {
    static __device__ __forceinline__ Acc identity() { return one(); }
    template <class I, class R> static __device__ __forceinline__ Acc map(const I& item, const R&)
    {
        return widen<Acc>(item.x);
    }
    static __device__ __forceinline__ Acc combine(Acc a, Acc b)
    {
        if constexpr (is_complex<Acc>) {
            // Times 1 - 0i would still change signs of zeros and make NaN of infinities: it is left out.
            if (is_identity(a)) return b;
            if (is_identity(b)) return a;
        }
        return product(a, b);
    }
    template <class R> static __device__ __forceinline__ Out finish(Acc a, const R&, int) { return narrow<Out>(a); }
    template <class R> static __device__ __forceinline__ Out empty(const R&, int)
    {
        return narrow<Out>(widen<Acc>(float32(1.0f)));
    }

private:
    static __device__ __forceinline__ Acc one()
    {
        if constexpr (is_complex<Acc>) return Acc(1.0, -0.0);
        else return Acc(1);
    }
    static __device__ __forceinline__ bool is_identity(Acc a)
    {
        return a.re == 1.0 && __double_as_longlong(a.im) == __double_as_longlong(-0.0);
    }
};

template <class In, class Acc, class Out> struct Any : Operator<In, Acc, Out> {
    static __device__ __forceinline__ Acc identity() { return 0; }
    template <class I, class R> static __device__ __forceinline__ Acc map(const I& item, const R&)
    {
        return Acc(is_nonzero(item.x));
    }
    static __device__ __forceinline__ Acc combine(Acc a, Acc b) { return a | b; }
    template <class R> static __device__ __forceinline__ Out finish(Acc a, const R&, int) { return narrow<Out>(a); }
    template <class R> static __device__ __forceinline__ Out empty(const R&, int) { return narrow<Out>(identity()); }
};

template <class In, class Acc, class Out> struct All : Any<In, Acc, Out> {
    static __device__ __forceinline__ Acc identity() { return 1; }
    static __device__ __forceinline__ Acc combine(Acc a, Acc b) { return a & b; }
    template <class R> static __device__ __forceinline__ Out empty(const R&, int) { return narrow<Out>(identity()); }
};

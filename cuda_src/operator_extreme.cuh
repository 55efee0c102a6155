// The smallest, the largest, and where they are.
//
// Elements are compared as integer keys of the same order: for floats the bits, with all but the sign flipped where the
// sign is set. So -0.0 is below +0.0, whichever comes first, and a NaN gets the key that wins: one NaN in a row is its
// result, as in NumPy. Keys that no number has decode to NaN: that is what remains where every NaN was left out.
#pragma once
#include "operator_sum.cuh"

template <class T> constexpr T lowest = is_unsigned_integer<T> ? T(0) : T(uint64(1) << (8 * sizeof(T) - 1));
template <class T> constexpr T highest = T(~lowest<T>);

// All bits but the sign's, and those of the largest magnitude that is not NaN.
template <class T> constexpr int64 magnitude_bits = int64(~uint64(0) >> (65 - 8 * sizeof(T)));
template <class T> constexpr int64 largest_bits = 0;
template <> constexpr int64 largest_bits<float8_e4m3> = 0x7e;
template <> constexpr int64 largest_bits<float8_e5m2> = 0x7c;
template <> constexpr int64 largest_bits<float16> = 0x7c00;
template <> constexpr int64 largest_bits<bfloat16> = 0x7f80;
template <> constexpr int64 largest_bits<float32> = 0x7f800000;
template <> constexpr int64 largest_bits<float64> = 0x7ff0000000000000ll;

__device__ __forceinline__ int32 signed_bits(float8_e4m3 x) { return int8(x.bits); }
__device__ __forceinline__ int32 signed_bits(float8_e5m2 x) { return int8(x.bits); }
__device__ __forceinline__ int32 signed_bits(float16 x) { return int16(x.bits); }
__device__ __forceinline__ int32 signed_bits(bfloat16 x) { return int16(x.bits); }
__device__ __forceinline__ int32 signed_bits(float32 x) { return __float_as_int(x); }
__device__ __forceinline__ int64 signed_bits(float64 x) { return __double_as_longlong(x); }

// Flips all bits but the sign's where that is set; its own inverse.
template <class T, class Key> __device__ __forceinline__ Key flip(Key bits)
{
    return bits ^ ((bits >> (8 * sizeof(Key) - 1)) & Key(magnitude_bits<T>));
}

template <class Key, class T> __device__ __forceinline__ Key key_of(T x, Key of_nan)
{
    if constexpr (is_float<T>) {
        const Key bits = signed_bits(x);
        return (bits & Key(magnitude_bits<T>)) > Key(largest_bits<T>) ? of_nan : flip<T>(bits);
    } else {
        return Key(number(x));
    }
}

template <class T, class Key> __device__ __forceinline__ T from_key(Key key)
{
    if constexpr (is_float<T>) {
        const Key bits = flip<T>(key);
        if ((bits & Key(magnitude_bits<T>)) > Key(largest_bits<T>)) return quiet_nan<T>();
        if constexpr (is_same<T, float32>) return __int_as_float(bits);
        else if constexpr (is_same<T, float64>) return __longlong_as_double(bits);
        else return T{decltype(T::bits)(bits)};
    } else if constexpr (is_same<T, boolean>) {
        return T{uint8(key)};
    } else {
        return T(key);
    }
}

template <class Out, class In, class Key> __device__ __forceinline__ Out finish_key(Key key)
{
    if constexpr (is_same<In, Out>) return from_key<In>(key);
    else return narrow<Out>(number(from_key<In>(key)));
}

template <class In, class Acc, class Out, bool Largest> struct Extreme : Operator<In, Acc, Out> {
    static __device__ __forceinline__ Acc identity() { return Largest ? lowest<Acc> : highest<Acc>; }
    template <class I, class R> static __device__ __forceinline__ Acc map(const I& item, const R&)
    {
        return key_of<Acc>(item.x, Largest ? highest<Acc> : lowest<Acc>);
    }
    static __device__ __forceinline__ Acc combine(Acc a, Acc b) { return (Largest ? a > b : a < b) ? a : b; }
    template <class R> static __device__ __forceinline__ Out finish(Acc a, const R&, int) { return finish_key<Out, In>(a); }
    template <class R> static __device__ __forceinline__ Out empty(const R&, int)
    {
        // Infinity, as far as the type has one; the identity would decode to NaN.
        if constexpr (is_float<In>) return finish_key<Out, In>(Largest ? Acc(~largest_bits<In>) : Acc(largest_bits<In>));
        else if constexpr (is_integer<In>) return finish_key<Out, In>(Acc(Largest ? lowest<In> : highest<In>));
        else return finish_key<Out, In>(Acc(!Largest));
    }
};
template <class In, class Acc, class Out> using Min = Extreme<In, Acc, Out, false>;
template <class In, class Acc, class Out> using Max = Extreme<In, Acc, Out, true>;

template <class Key> struct Range { Key low, high; };

template <class In, class Key, class Out> struct MinMax : Operator<In, Range<Key>, Out> {
    using Low = Min<In, Key, Out>;
    using High = Max<In, Key, Out>;
    static constexpr int results = 2;

    static __device__ __forceinline__ Range<Key> identity() { return {Low::identity(), High::identity()}; }
    template <class I, class R> static __device__ __forceinline__ Range<Key> map(const I& item, const R& row)
    {
        return {Low::map(item, row), High::map(item, row)};
    }
    static __device__ __forceinline__ Range<Key> combine(Range<Key> a, Range<Key> b)
    {
        return {Low::combine(a.low, b.low), High::combine(a.high, b.high)};
    }
    template <class R> static __device__ __forceinline__ Out finish(Range<Key> a, const R& row, int k)
    {
        return k == 0 ? Low::finish(a.low, row, 0) : High::finish(a.high, row, 0);
    }
    template <class R> static __device__ __forceinline__ Out empty(const R& row, int k)
    {
        return k == 0 ? Low::empty(row, 0) : High::empty(row, 0);
    }
};

// The largest magnitude, that of a complex number or an integer taken as float64. Magnitudes' bits are keys as they are.
template <class In, class Acc, class Out> struct NormInf : Operator<In, Acc, Out> {
    static __device__ __forceinline__ Acc identity() { return 0; }
    template <class I, class R> static __device__ __forceinline__ Acc map(const I& item, const R&)
    {
        if constexpr (is_float<In>) return signed_bits(item.x) & Acc(magnitude_bits<In>);
        else return signed_bits(absolute<float64>(item.x)) & Acc(magnitude_bits<float64>);
    }
    static __device__ __forceinline__ Acc combine(Acc a, Acc b) { return a > b ? a : b; }
    template <class R> static __device__ __forceinline__ Out finish(Acc a, const R&, int)
    {
        if constexpr (is_float<In>) return finish_key<Out, In>(a);
        else return finish_key<Out, float64>(a);
    }
    template <class R> static __device__ __forceinline__ Out empty(const R& row, int) { return finish(identity(), row, 0); }
};

// A key and the index that goes with it, in words, for a 64-bit member would pad a 32-bit key.
template <class Key> struct Place {
    Key key;
    Split64 index;
};

// Of several elements of the same key, zeros of both signs among them, the first counts, or with `Last` the last. What
// is absent has index -1.
template <class In, class Key, class Out, bool Largest, bool Last> struct ArgExtreme : Operator<In, Place<Key>, Out> {
    static __device__ __forceinline__ Place<Key> identity()
    {
        return {Largest ? lowest<Key> : highest<Key>, Split64(~uint64(0))};
    }
    template <class I, class R> static __device__ __forceinline__ Place<Key> map(const I& item, const R&)
    {
        Key key = key_of<Key>(item.x, Largest ? highest<Key> : lowest<Key>);
        if (is_float<In> && key == Key(-1)) key = 0;  // -0.0 is no less than +0.0 here
        return {key, Split64(item.index)};
    }
    static __device__ __forceinline__ Place<Key> combine(Place<Key> a, Place<Key> b)
    {
        const uint64 i = a.index.whole(), j = b.index.whole();
        const bool later = Last ? int64(j) > int64(i) : j < i;
        return beats(b.key, a.key) || (b.key == a.key && later) ? b : a;
    }
    template <class R> static __device__ __forceinline__ Out finish(Place<Key> a, const R&, int)
    {
        return Out(a.index.whole());
    }
    template <class R> static __device__ __forceinline__ Out empty(const R& row, int) { return finish(identity(), row, 0); }

protected:
    static __device__ __forceinline__ bool beats(Key a, Key b) { return Largest ? a > b : a < b; }
};

// Where everything in a comes before everything in b (what is absent comes last) the index need not be compared.
template <class In, class Key, class Out, bool Largest> struct ArgFirst : ArgExtreme<In, Key, Out, Largest, false> {
#if __CUDA_ARCH__ >= 800
    // A leaf of float32 by its values first, one instruction an element; then the first vector, and in it the first
    // element, that has the winning value. Zeros of both signs are equal, and a NaN wins, as for the keys.
    static constexpr bool folds_leaves = is_same<In, float32>;
    static __device__ __forceinline__ Place<Key> fold_leaf(const uint4* v, uint64 index)
    {
        constexpr int N = 8, apart = 128;
        float32 best[N];
#pragma unroll
        for (int t = 0; t < N; ++t)
            best[t] = winner(winner(__uint_as_float(v[t].x), __uint_as_float(v[t].y)),
                             winner(__uint_as_float(v[t].z), __uint_as_float(v[t].w)));
        const float32 won = winner(winner(winner(best[0], best[1]), winner(best[2], best[3])),
                                   winner(winner(best[4], best[5]), winner(best[6], best[7])));
        uint4 found = v[N - 1];
        uint32 place = (N - 1) * apart;
#pragma unroll
        for (int t = N - 2; t >= 0; --t) {
            const bool hit = has(best[t], won);
            place = hit ? t * apart : place;
            found.x = hit ? v[t].x : found.x;
            found.y = hit ? v[t].y : found.y;
            found.z = hit ? v[t].z : found.z;
            found.w = hit ? v[t].w : found.w;
        }
        const float32 x = __uint_as_float(found.x), y = __uint_as_float(found.y), z = __uint_as_float(found.z);
        const uint32 slot = has(x, won) ? 0 : has(y, won) ? 1 : has(z, won) ? 2 : 3;
        const float32 element = slot == 0 ? x : slot == 1 ? y : slot == 2 ? z : __uint_as_float(found.w);
        return ArgFirst::map(Item<float32, Unused>{element, {}, index + place + slot}, Unused{});
    }

private:
    static __device__ __forceinline__ float32 winner(float32 a, float32 b)
    {
        float32 c;
        if constexpr (Largest) asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
        else asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
        return c;
    }
    // Whether `a`, which does not beat `won`, is as good: where `won` is a NaN, only a NaN is.
    static __device__ __forceinline__ bool has(float32 a, float32 won) { return a == won || a != a; }

public:
#endif
    static __device__ __forceinline__ Place<Key> ordered(Place<Key> a, Place<Key> b)
    {
        return ArgFirst::beats(b.key, a.key) ? b : a;
    }
};
template <class In, class Acc, class Out> using ArgMin = ArgFirst<In, Acc, Out, false>;
template <class In, class Acc, class Out> using ArgMax = ArgFirst<In, Acc, Out, true>;
template <class In, class Acc, class Out> using LastArgMin = ArgExtreme<In, Acc, Out, false, true>;
template <class In, class Acc, class Out> using LastArgMax = ArgExtreme<In, Acc, Out, true, true>;

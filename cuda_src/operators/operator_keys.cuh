// Elements as integer keys of the same order, by which the smallest and the largest are found.
//
// A float's key is its bits, with all but the sign flipped if the sign is set. So -0.0 is below +0.0, whichever comes first,
// and a NaN gets the key that wins: one NaN in a row is its result, as in NumPy. Keys that no number has decode to NaN: such a
// key remains where every element was a NaN and was left out.
#pragma once
#include "operators/extreme_values.cuh"
#include "operators/operator.cuh"

template <class T> constexpr T lowest = is_unsigned_integer<T> ? T(0) : T(uint64(1) << (8 * sizeof(T) - 1));
template <class T> constexpr T highest = T(~lowest<T>);

// All bits but the sign's; and the bits of the largest magnitude that is not NaN.
template <class T> constexpr int64 magnitude_bits = int64(~uint64(0) >> (65 - 8 * sizeof(T)));
template <class T> constexpr int64 largest_bits = 0;
template <> constexpr int64 largest_bits<float8_e4m3> = 0x7e;
template <> constexpr int64 largest_bits<float8_e5m2> = 0x7c;
template <> constexpr int64 largest_bits<float16> = 0x7c00;
template <> constexpr int64 largest_bits<bfloat16> = 0x7f80;
template <> constexpr int64 largest_bits<float32> = 0x7f800000;
template <> constexpr int64 largest_bits<float64> = 0x7ff0000000000000ll;

// The element that loses to every other one.
template <class T, bool Largest> __device__ __forceinline__ T losing_element()
{
    constexpr uint64 sign = uint64(Largest) << (8 * sizeof(T) - 1);
    if constexpr (is_float<T>) return element_of_bits<T>(uint64(largest_bits<T>) | sign);
    else if constexpr (is_same<T, boolean>) return element_of_bits<T>(!Largest);
    else return Largest ? lowest<T> : highest<T>;
}

__device__ __forceinline__ int32 signed_bits(float8_e4m3 x) { return int8(x.bits); }
__device__ __forceinline__ int32 signed_bits(float8_e5m2 x) { return int8(x.bits); }
__device__ __forceinline__ int32 signed_bits(float16 x) { return int16(x.bits); }
__device__ __forceinline__ int32 signed_bits(bfloat16 x) { return int16(x.bits); }
__device__ __forceinline__ int32 signed_bits(float32 x) { return __float_as_int(x); }
__device__ __forceinline__ int64 signed_bits(float64 x) { return __double_as_longlong(x); }

// Flips all bits but the sign's if the sign is set; its own inverse.
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

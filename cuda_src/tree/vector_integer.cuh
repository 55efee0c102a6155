// Vectors of small integers, folded in integers that hold the exact value. So the order within the vector makes no difference;
// nor does it to a float64 made of the result, for each of the tree's sums within the vector is exact too.
#pragma once
#include "base/types.cuh"

template <class T> constexpr bool is_byte_integer = is_integer<T> && sizeof(T) == 1;
template <class T> constexpr bool is_small_integer = is_integer<T> && sizeof(T) <= 2;

// Sets the top bit of each byte whose element is nonzero, and clears it for the others; the lower bits are arbitrary. A byte
// that is a float is nonzero if its magnitude is, as a NaN's is.
template <class In> __device__ __forceinline__ uint32 nonzero_bytes(uint32 word)
{
    const uint32 magnitudes = (word & 0x7f7f7f7fu) + 0x7f7f7f7fu;
    return is_float<In> ? magnitudes : magnitudes | word;
}

// Sums 16 bytes of elements narrower than a word, by dot products with ones. With `Truth`, for bytes only, each nonzero element
// counts as 1. Exact, so the order within the vector makes no difference.
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
            if constexpr (Truth) word = (nonzero_bytes<In>(word) & 0x80808080u) >> 7;
            sum = sizeof(In) == 1 ? __dp4a(word, 0x01010101u, sum) : __dp2a_lo(word, 0x0101u, sum);
        }
        return sum;
    }
}

// The sum of the magnitudes of signed elements: dot products with their signs; one instruction makes -1 of sign bits.
template <class In> __device__ __forceinline__ int32 sum_of_magnitudes(uint4 v)
{
    const uint32 words[4] = {v.x, v.y, v.z, v.w};
    int32 sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        uint32 negative;  // 0xff for each negative element; of 16-bit elements in the two lower bytes
        if constexpr (sizeof(In) == 1) {
            asm("prmt.b32 %0, %1, 0, 0xba98;" : "=r"(negative) : "r"(words[i]));
            sum = __dp4a(int32(words[i]), int32(negative | 0x01010101u), sum);
        } else {
            asm("prmt.b32 %0, %1, 0, 0x00b9;" : "=r"(negative) : "r"(words[i]));
            sum = __dp2a_lo(int32(words[i]), int32(negative | 0x0101u), sum);
        }
    }
    return sum;
}

// The sum of the squares of bytes.
template <class In> __device__ __forceinline__ int32 sum_of_squares(uint4 v)
{
    const uint32 words[4] = {v.x, v.y, v.z, v.w};
    int32 sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if constexpr (is_signed_integer<In>) sum = __dp4a(int32(words[i]), int32(words[i]), sum);
        else sum = int32(__dp4a(words[i], words[i], uint32(sum)));
    }
    return sum;
}

// The product of bytes, modulo what Acc wraps at; products of four need no more than 32 bits.
template <class Acc, class In> __device__ __forceinline__ Acc product_of_bytes(uint4 v)
{
    const auto four = [](uint32 word) {
        union { uint32 word; In elements[4]; } u;
        u.word = word;
        if constexpr (is_signed_integer<In>)
            return Acc((int32(u.elements[0]) * u.elements[1]) * (int32(u.elements[2]) * u.elements[3]));
        else return Acc((uint32(u.elements[0]) * u.elements[1]) * (uint32(u.elements[2]) * u.elements[3]));
    };
    return (four(v.x) * four(v.y)) * (four(v.z) * four(v.w));
}

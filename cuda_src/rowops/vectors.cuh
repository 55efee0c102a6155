// Vectors of a row as they are read: at multiples of their size, of elements that lie apart, and of what lies beside the columns.
//
// Elements are read by plain loads, never by those of the read-only path: an operation may write in place. Every byte is read
// before it is written, by the thread that writes it or before a barrier.
#pragma once
#include "tree/fetch.cuh"
#include "rowops/problem.cuh"

// V elements of any type, as they are loaded and stored: in words of up to 16 bytes.
template <class T, uint32 V> union Elements {
    static constexpr uint32 bytes = V * sizeof(T), word_bytes = bytes < vector_bytes ? bytes : vector_bytes;
    using W = typename Word<word_bytes>::type;
    T elements[V];
    W words[bytes / word_bytes];
    uint32 pairs[at_least_one(bytes / 4)];  // of elements of two bytes
    __device__ __forceinline__ Elements() {}
    // Element k, as number_in of a vector.
    __device__ __forceinline__ auto number_of(uint32 k) const
    {
        if constexpr (is_same<T, bfloat16> && V > 1) return __uint_as_float(k % 2 == 0 ? pairs[k / 2] << 16 : pairs[k / 2] & 0xffff0000u);
        else return number(elements[k]);
    }
};

// The first V elements of a vector.
template <class T, uint32 V> __device__ __forceinline__ Elements<T, V> first_elements(uint4 raw)
{
    union { uint4 raw; typename Elements<T, V>::W word; } from;
    from.raw = raw;
    Elements<T, V> u;
    u.words[0] = from.word;
    return u;
}

template <class T> __device__ __forceinline__ T load_row_element(const char* address)
{
    using W = typename Word<sizeof(T)>::type;
    union { W word; T element; } u;
    u.word = *reinterpret_cast<const W*>(address);
    return u.element;
}

// 16 aligned bytes that are read once, if `wanted`, else zeros; without a branch.
__device__ __forceinline__ uint4 load_row_vector_if(bool wanted, const char* address)
{
    uint4 v = make_uint4(0, 0, 0, 0);
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0;"
                 "@p ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                 : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w) : "l"(address), "r"(uint32(wanted)));
    return v;
}

// The first `count` elements of the vector that begins with element `index` of a row (all if V or more, none if 0 or less),
// and zeros in place of the others, where elements lie `step` bytes apart. Nothing but the row is read.
template <class T> __device__ __forceinline__ uint4 load_strided_vector(const char* row, int64 step, uint32 index, int32 count)
{
    constexpr int32 V = vector_elements<T>;
    const char* address = row + int64(index) * step;
    union { uint4 raw; T elements[V]; } u;
    u.raw = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int32 i = 0; i < V; ++i)
        if (i < count) u.elements[i] = load_row_element<T>(address + i * step);
    return u.raw;
}

// All elements of such a vector: without conditions, which take more registers than there are, the loads of several vectors are in
// flight at once.
template <class T> struct StridedVector {
    static constexpr int32 V = vector_elements<T>;
    using W = typename Word<sizeof(T)>::type;
    W words[V];

    __device__ __forceinline__ void load(const char* row, int64 step, uint32 index)
    {
        const char* address = row + int64(index) * step;
#pragma unroll
        for (int32 i = 0; i < V; ++i) {
            if constexpr (sizeof(T) == 2) asm volatile("ld.global.u16 %0, [%1];" : "=h"(words[i]) : "l"(address));
            else if constexpr (sizeof(T) == 4) asm volatile("ld.global.u32 %0, [%1];" : "=r"(words[i]) : "l"(address));
            else asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(words[i].x), "=r"(words[i].y) : "l"(address));
            address += step;
        }
    }
    __device__ __forceinline__ uint4 joined() const
    {
        union { uint4 raw; W words[V]; } u;
#pragma unroll
        for (int32 i = 0; i < V; ++i) u.words[i] = words[i];
        return u.raw;
    }
};

// The elements of an array beside the columns, such as weights, that go with those of one vector. All rows read them.
template <class T, uint32 V, Begin Where>
__device__ __forceinline__ Elements<T, V> load_columns(const char* array, uint32 index, int32 count)
{
    using E = Elements<T, V>;
    E u;
    const char* address = array + uint64(index) * sizeof(T);
    if (Where == Begin::aligned && count <= 0) {
#pragma unroll
        for (uint32 i = 0; i < V; ++i) u.elements[i] = element_of_bits<T>(0);
    } else if (Where == Begin::aligned || (count >= int32(V) && reinterpret_cast<uint64>(address) % E::word_bytes == 0)) {
#pragma unroll
        for (uint32 i = 0; i < E::bytes / E::word_bytes; ++i)
            u.words[i] = __ldg(reinterpret_cast<const typename E::W*>(address) + i);
    } else {
#pragma unroll
        for (int32 i = 0; i < int32(V); ++i)
            u.elements[i] = i < count ? *reinterpret_cast<const T*>(address + i * sizeof(T)) : element_of_bits<T>(0);
    }
    return u;
}

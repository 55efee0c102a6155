// Vectors of a row: read, merged and written, at any address or at multiples of their size.
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
    __device__ __forceinline__ Elements() {}
};

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

// 16 bytes at any address from the one or two aligned blocks that they lie in, which neighbours read too.
__device__ __forceinline__ uint4 load_shifted_row(const char* address, uint32 shift)
{
    const auto* block = reinterpret_cast<const uint4*>(address - shift);
    return shift_bytes(block[0], block[1], shift);
}

// The first `count` elements of the vector that begins with element `index` of a row (all if V or more, none if 0 or less),
// and zeros in place of the others. Nothing but the row is read.
template <class T, Begin Where> __device__ __forceinline__ uint4 load_row_vector(const char* row, uint32 index, int32 count)
{
    constexpr int32 V = vector_elements<T>;
    const char* address = row + uint64(index) * sizeof(T);
    if constexpr (Where == Begin::aligned) {
        return load_row_vector_if(count > 0, address);
    } else {
        const uint32 shift = uint32(reinterpret_cast<uint64>(address)) % vector_bytes;
        if (shift == 0 && count >= V) return load_row_vector_if(true, address);
        // Elements that are cut by a block's end are rare: they are loaded one by one.
        if (index > 0 && count >= 2 * V && shift % sizeof(T) == 0) return load_shifted_row(address, shift);
        union { uint4 raw; T elements[V]; } u;
        u.raw = make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int32 i = 0; i < V; ++i)
            if (i < count) u.elements[i] = load_row_element<T>(address + i * sizeof(T));
        return u.raw;
    }
}

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

__device__ __forceinline__ void store_word(uint4* address, uint4 v)
{
    asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};"
                 :: "l"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
template <class W> __device__ __forceinline__ void store_word(W* address, W v) { *address = v; }

// Writes the first `count` elements, at least one, of a vector from element `index` of a row on.
template <class T, uint32 V, Begin Where>
__device__ __forceinline__ void store_elements(char* row, uint32 index, int32 count, const Elements<T, V>& u)
{
    using E = Elements<T, V>;
    char* address = row + uint64(index) * sizeof(T);
    if (Where == Begin::aligned || (count >= int32(V) && reinterpret_cast<uint64>(address) % E::word_bytes == 0)) {
#pragma unroll
        for (uint32 i = 0; i < E::bytes / E::word_bytes; ++i)
            store_word(reinterpret_cast<typename E::W*>(address) + i, u.words[i]);
    } else if (E::bytes >= 8 && sizeof(T) < 4 && count >= int32(V) && reinterpret_cast<uint64>(address) % 4 == 0) {
        const auto* words = reinterpret_cast<const uint32*>(u.words);
#pragma unroll
        for (uint32 i = 0; i < E::bytes / 4; ++i) reinterpret_cast<uint32*>(address)[i] = words[i];
    } else {
#pragma unroll
        for (int32 i = 0; i < int32(V); ++i)
            if (i < count) reinterpret_cast<T*>(address)[i] = u.elements[i];
    }
}

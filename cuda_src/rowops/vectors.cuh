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
        // Elements that are cut by a block's end are rare: they are loaded one by one. Both blocks end inside the row.
        const bool ends_inside = min(count, 2 * V) * int32(sizeof(T)) >= 2 * int32(vector_bytes) - int32(shift);
        if (index > 0 && ends_inside && shift % sizeof(T) == 0) return load_shifted_row(address, shift);
        union { uint4 raw; T elements[V]; } u;
        u.raw = make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int32 i = 0; i < V; ++i)
            if (i < count) u.elements[i] = load_row_element<T>(address + i * sizeof(T));
        return u.raw;
    }
}

// The same where elements lie `step` bytes apart.
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

// The block of a word's size that ends inside `own`: the last `shift` bytes of `before`, then the first ones of `own`.
__device__ __forceinline__ uint4 block_across(uint4 before, uint4 own, uint32 shift)
{
    return shift_bytes(before, own, vector_bytes - shift);
}
__device__ __forceinline__ uint2 block_across(uint2 before, uint2 own, uint32 shift)
{
    const uint64 low = uint64(before.y) << 32 | before.x, high = uint64(own.y) << 32 | own.x;
    const uint64 both = low >> (64 - 8 * shift) | high << 8 * shift;
    return make_uint2(uint32(both), uint32(both >> 32));
}

// Writes the first `count` elements of a vector to an address that is a multiple of an element's size, where each `run` lanes
// in turn have vectors that follow each other: in whole blocks, each put together from two lanes. Element by element a store
// would touch as many sectors as a whole vector's, for each of the vector's elements. All 32 lanes call it.
template <class T, uint32 V>
__device__ __forceinline__ void store_across(char* address, int32 count, const Elements<T, V>& u, uint32 run)
{
    using W = typename Elements<T, V>::W;
    constexpr int32 size = sizeof(T);
    const uint32 place = threadIdx.x & run - 1, shift = uint32(reinterpret_cast<uint64>(address)) % sizeof(W);
    const W before = shuffle_from(u.words[0], int32(threadIdx.x - 1) & 31);
    // Of its own bytes those before `head` go into the block with the lane's before, the others with the lane's behind.
    const int32 head = int32(sizeof(W) - shift), bytes = min(count, 2 * int32(V)) * size;
    const bool first_whole = (shift == 0 || place > 0) && bytes >= head;
    const bool next_whole = place + 1 < run && bytes - int32(sizeof(W)) >= head;
    if (first_whole) store_word(reinterpret_cast<W*>(address - shift), shift == 0 ? u.words[0] : block_across(before, u.words[0], shift));
    if (bytes <= 0 || (first_whole && (shift == 0 || next_whole))) return;
#pragma unroll
    for (int32 i = 0; i < int32(V); ++i)
        if (i < count && !(i * size < head ? first_whole : next_whole)) reinterpret_cast<T*>(address)[i] = u.elements[i];
}

// Writes the first `count` elements of a vector from element `index` of a row on. Elements of a strided row lie `step` bytes
// apart. Anywhere, all 32 lanes call it, as for store_across, and `count` may be none; else it is one at least.
template <class T, uint32 V, Begin Where>
__device__ __forceinline__ void
store_elements(char* row, int64 step, uint32 index, int32 count, const Elements<T, V>& u, uint32 run)
{
    using E = Elements<T, V>;
    constexpr bool is_wide = E::bytes > E::word_bytes;
    if constexpr (Where == Begin::strided) {
        char* address = row + int64(index) * step;
#pragma unroll
        for (int32 i = 0; i < int32(V); ++i)
            if (i < count) *reinterpret_cast<T*>(address + i * step) = u.elements[i];
        return;
    }
    char* address = row + uint64(index) * sizeof(T);
    if constexpr (Where == Begin::anywhere && !is_wide && E::bytes >= 8 && V > 1) return store_across(address, count, u, run);
    if (Where == Begin::aligned || (count >= int32(V) && reinterpret_cast<uint64>(address) % E::word_bytes == 0)) {
#pragma unroll
        for (uint32 i = 0; i < E::bytes / E::word_bytes; ++i)
            store_word(reinterpret_cast<typename E::W*>(address) + i, u.words[i]);
    } else {
#pragma unroll
        for (int32 i = 0; i < int32(V); ++i)
            if (i < count) reinterpret_cast<T*>(address)[i] = u.elements[i];
    }
}

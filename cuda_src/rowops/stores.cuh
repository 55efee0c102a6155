// Vectors of a row as they are written: at multiples of their size, at any address in whole blocks across lanes, and of elements
// that lie apart.
#pragma once
#include "rowops/vectors.cuh"

__device__ __forceinline__ void store_word(uint4* address, uint4 v)
{
    asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};"
                 :: "l"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
template <class W> __device__ __forceinline__ void store_word(W* address, W v) { *address = v; }

// One element, if `wanted` is not 0, without a branch.
template <class T> __device__ __forceinline__ void store_element_if(uint32 wanted, char* address, T value)
{
    union { T element; typename Word<sizeof(T)>::type word; } u;
    u.element = value;
    if constexpr (sizeof(T) == 8)
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %3, 0; @p st.global.v2.u32 [%0], {%1, %2}; }"
                     :: "l"(address), "r"(u.word.x), "r"(u.word.y), "r"(wanted) : "memory");
    else if constexpr (sizeof(T) == 4)
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p st.global.u32 [%0], %1; }"
                     :: "l"(address), "r"(u.word), "r"(wanted) : "memory");
    else if constexpr (sizeof(T) == 2)
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p st.global.u16 [%0], %1; }"
                     :: "l"(address), "h"(u.word), "r"(wanted) : "memory");
    else
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p st.global.u8 [%0], %1; }"
                     :: "l"(address), "r"(uint32(u.word)), "r"(wanted) : "memory");
}

// How the vectors that lanes write follow each other: those of `run` lanes in turn; and where that is a whole warp, whether those
// of its last call went before these, of its next one come behind them, and what its last lane had then.
template <uint32 Arrays> struct Across {
    uint32 run = lanes;
    bool follows = false, continues = false;
    uint4 carried[at_least_one(Arrays)];
};

// The block of a word's size that ends inside `own`: the last `shift` bytes of `before`, then the first ones of `own`.
__device__ __forceinline__ uint4 block_across(uint4 before, uint4 own, uint32 shift)
{
    uint32 w[8] = {before.x, before.y, before.z, before.w, own.x, own.y, own.z, own.w};
    const bool by_two = shift & 8u, by_one = shift & 4u;
#pragma unroll
    for (int i = 7; i > 1; --i) w[i] = by_two ? w[i - 2] : w[i];
#pragma unroll
    for (int i = 7; i > 2; --i) w[i] = by_one ? w[i - 1] : w[i];
    const uint32 bits = (shift & 3u) * 8u;
    return make_uint4(__funnelshift_l(w[3], w[4], bits), __funnelshift_l(w[4], w[5], bits),
                      __funnelshift_l(w[5], w[6], bits), __funnelshift_l(w[6], w[7], bits));
}
__device__ __forceinline__ uint2 block_across(uint2 before, uint2 own, uint32 shift)
{
    uint32 w[4] = {before.x, before.y, own.x, own.y};
#pragma unroll
    for (int i = 3; i > 0; --i) w[i] = shift & 4u ? w[i - 1] : w[i];
    const uint32 bits = (shift & 3u) * 8u;
    return make_uint2(__funnelshift_l(w[1], w[2], bits), __funnelshift_l(w[2], w[3], bits));
}
__device__ __forceinline__ uint4 as_carried(uint4 v) { return v; }
__device__ __forceinline__ uint4 as_carried(uint2 v) { return make_uint4(v.x, v.y, 0, 0); }
__device__ __forceinline__ void take_carried(uint4& v, uint4 carried) { v = carried; }
__device__ __forceinline__ void take_carried(uint2& v, uint4 carried) { v = make_uint2(carried.x, carried.y); }

// Writes the first `count` elements of a vector to an address that is a multiple of an element's size: in whole blocks, each put
// together from two lanes. Element by element a store would touch as many sectors as a whole vector's, for each of the vector's
// elements. All 32 lanes call it.
template <class T, uint32 V, uint32 N>
__device__ __forceinline__ void
store_across(char* address, int32 count, const Elements<T, V>& u, const Across<N>& across, uint4& carried)
{
    using W = typename Elements<T, V>::W;
    constexpr int32 size = sizeof(T);
    const uint32 place = threadIdx.x & across.run - 1, shift = uint32(reinterpret_cast<uint64>(address)) % sizeof(W);
    const W given = shuffle_from(u.words[0], int32(threadIdx.x - 1) & 31);
    W before = given;
    if (across.follows && place == 0) take_carried(before, carried);
    carried = as_carried(given);
    // Of its own bytes those before `head` go into the block with the lane's before, the others with the lane's behind.
    const int32 head = int32(sizeof(W) - shift), bytes = min(count, 2 * int32(V)) * size;
    const bool first_whole = (shift == 0 || place > 0 || across.follows) && bytes >= head;
    const bool next_whole = (place + 1 < across.run || across.continues) && bytes - int32(sizeof(W)) >= head;
    if (first_whole) store_word(reinterpret_cast<W*>(address - shift), block_across(before, u.words[0], shift));
    const int32 begin = first_whole ? head : 0, end = next_whole ? head : bytes;
    if (begin < min(end, int32(sizeof(W)))) {
        const uint32 there = (1u << min(end, int32(sizeof(W))) / size) - (1u << begin / size);  // a bit for each element
#pragma unroll
        for (int32 i = 0; i < int32(V); ++i) store_element_if(there & 1u << i, address + i * size, u.elements[i]);
    }
}

// Writes the first `count` elements of a vector from element `index` of a row on. Elements of a strided row lie `step` bytes
// apart. Anywhere, all 32 lanes call it, as for store_across, and `count` may be none; else it is one at least.
template <class T, uint32 V, Begin Where, uint32 N>
__device__ __forceinline__ void
store_elements(char* row, int64 step, uint32 index, int32 count, const Elements<T, V>& u, const Across<N>& across, uint4& carried)
{
    using E = Elements<T, V>;
    constexpr bool is_wide = E::bytes > E::word_bytes;
    if constexpr (Where == Begin::kept) {
        carried = u.words[0];
        return;
    }
    if constexpr (Where == Begin::strided) {
        char* address = row + int64(index) * step;
        const int32 present = min(count, int32(V));
#pragma unroll
        for (int32 i = 0; i < int32(V); ++i, address += step) store_element_if(i < present, address, u.elements[i]);
        return;
    }
    char* address = row + uint64(index) * sizeof(T);
    if constexpr (Where == Begin::anywhere && !is_wide && E::bytes >= 8 && V > 1)
        return store_across(address, count, u, across, carried);
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

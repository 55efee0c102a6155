// One 16-byte vector: the slot level of the tree, the vectors at the edges of the source, and those out of alignment.
#pragma once
#include "ptx.cuh"
#include "warp.cuh"

constexpr uint32 lanes = 32;
constexpr uint32 vector_bytes = 16;
template <class T> constexpr uint32 vector_elements = vector_bytes / sizeof(T);

// Balanced fold of a register array whose length is a power of two.
template <class Op, uint32 N> __device__ __forceinline__ typename Op::Accumulator fold_array(typename Op::Accumulator* a)
{
#pragma unroll
    for (uint32 width = N; width > 1; width /= 2)
#pragma unroll
        for (uint32 i = 0; i < width / 2; ++i) a[i] = Op::combine(a[2 * i], a[2 * i + 1]);
    return a[0];
}

// The slot level: the elements of one whole vector.
template <class Op> __device__ __forceinline__ typename Op::Accumulator fold_vector(uint4 raw)
{
    using T = typename Op::Input;
    constexpr uint32 V = vector_elements<T>;
    if constexpr (Op::packed) {
        return Op::fold_packed(raw);
    } else {
        union { uint4 raw; T elements[V]; } u;
        u.raw = raw;
        typename Op::Accumulator a[V];
#pragma unroll
        for (uint32 i = 0; i < V; ++i) a[i] = Op::map(u.elements[i]);
        return fold_array<Op, V>(a);
    }
}

// The vector that stands for absent elements.
template <class Op> __device__ __forceinline__ uint4 absent_vector()
{
    using T = typename Op::Input;
    union { T elements[vector_elements<T>]; uint4 raw; } u;
#pragma unroll
    for (uint32 i = 0; i < vector_elements<T>; ++i) u.elements[i] = Op::absent();
    return u.raw;
}

// The 16 bytes that start `shift` bytes (1 to 15) into the 32 bytes low, high. Two selects of whole words, one of bits.
__device__ __forceinline__ uint4 shift_bytes(uint4 low, uint4 high, uint32 shift)
{
    uint32 w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    const bool by_two = shift & 8u, by_one = shift & 4u;
#pragma unroll
    for (int i = 0; i < 6; ++i) w[i] = by_two ? w[i + 2] : w[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) w[i] = by_one ? w[i + 1] : w[i];
    const uint32 bits = (shift & 3u) * 8u;
    return make_uint4(__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
                      __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits));
}

// The first `bytes` bytes of `raw` (all of them from 16 on, none from 0 down), then those of `absent`.
__device__ __forceinline__ uint4 keep_bytes(uint4 raw, uint4 absent, int32 bytes)
{
    const auto keep = [=](uint32 word, uint32 other, int32 n) {
        const uint32 mask = n <= 0 ? 0u : 0xffffffffu >> (8 * (4 - min(n, 4)));
        return (word & mask) | (other & ~mask);
    };
    return make_uint4(keep(raw.x, absent.x, bytes), keep(raw.y, absent.y, bytes - 4),
                      keep(raw.z, absent.z, bytes - 8), keep(raw.w, absent.w, bytes - 12));
}

// A 16-byte block that the source fills only in part, so that no byte outside is ever read: one byte a lane, joined by
// shuffles. All 32 lanes call it and hold the block at `block`.
__device__ __forceinline__ uint4 load_edge_block(const char* block, const char* begin, const char* end, uint32 lane)
{
    const char* address = block + lane % vector_bytes;
    uint32 word = begin <= address && address < end ? uint32(uint8(*address)) << (8 * (lane % 4)) : 0u;
    word |= shuffle_xor(word, 1);
    word |= shuffle_xor(word, 2);
    return make_uint4(shuffle_from(word, 0), shuffle_from(word, 4), shuffle_from(word, 8), shuffle_from(word, 12));
}

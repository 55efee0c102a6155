// One 16-byte vector: the slot level of the tree, the vectors at the edges of the source, and those out of alignment.
#pragma once
#include "source.cuh"
#include "warp.cuh"

__host__ __device__ constexpr int log2_of(int n) { return n <= 1 ? 0 : 1 + log2_of(n / 2); }

// The type that is loaded for so many bytes.
template <int Bytes> struct Word;
template <> struct Word<1> { using type = unsigned char; };
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<4> { using type = unsigned int; };
template <> struct Word<8> { using type = uint2; };
template <> struct Word<16> { using type = uint4; };

// Balanced fold of a register array whose length is a power of two.
template <class Op, uint32 N> __device__ __forceinline__ typename Op::Accumulator fold_array(typename Op::Accumulator* a)
{
#pragma unroll
    for (uint32 width = N; width > 1; width /= 2)
#pragma unroll
        for (uint32 i = 0; i < width / 2; ++i) a[i] = combine_neighbours<Op>(a[2 * i], a[2 * i + 1]);
    return a[0];
}

// A binary counter in a thread's registers over values that come in order; their number is at most 2^Levels. When they
// are 2^Levels, digits[Levels] is their fold.
template <class Op, int Levels> struct LaneCounter {
    typename Op::Accumulator digits[Levels + 1];

    __device__ __forceinline__ void push(typename Op::Accumulator value, uint32 before)
    {
        bool carry = true;
#pragma unroll
        for (int k = 0; k <= Levels; ++k) {
            const bool occupied = before >> k & 1u;
            if (carry && occupied) value = combine_neighbours<Op>(digits[k], value);
            else if (carry) digits[k] = value;
            carry = carry && occupied;
        }
    }
};

// The first `bytes` bytes of `raw` (all of them from 16 on, none from 0 down), then zeros.
__device__ __forceinline__ uint4 keep_bytes(uint4 raw, int32 bytes)
{
    const auto keep = [](uint32 word, int32 n) { return n <= 0 ? 0u : word & (0xffffffffu >> (8 * (4 - min(n, 4)))); };
    return make_uint4(keep(raw.x, bytes), keep(raw.y, bytes - 4), keep(raw.z, bytes - 8), keep(raw.w, bytes - 12));
}

// The slot level of elements First to First + Count - 1 of a vector, Count a power of two, of which `bytes` bytes exist.
// Depth first, for a thread then holds few accumulators at a time.
template <class Op, uint32 First, uint32 Count, bool Whole, class S>
__device__ __forceinline__ typename Op::Accumulator
fold_elements(const S& source, const typename Op::Input* elements, uint64 index, int32 bytes)
{
    if constexpr (Count == 1) {
        if (Whole || int32(First * sizeof(typename Op::Input)) < bytes) return source.map(elements[First], index + First);
        return Op::identity();
    } else {
        const auto a = fold_elements<Op, First, Count / 2, Whole>(source, elements, index, bytes);
        return combine_neighbours<Op>(a, fold_elements<Op, First + Count / 2, Count / 2, Whole>(source, elements, index, bytes));
    }
}

// The slot level: one whole vector, whose first element has number `index` in its row; the source maps.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator fold_vector(const S& source, uint4 raw, uint64 index)
{
    using T = typename Op::Input;
    constexpr uint32 V = vector_elements<T>;
    if constexpr (Op::packed) {
        return Op::fold_packed(raw);
    } else {
        union { uint4 raw; T elements[V]; } u;
        u.raw = raw;
        return fold_elements<Op, 0, V, true>(source, u.elements, index, vector_bytes);
    }
}

// The same for a vector of which only the first `bytes` bytes exist: all from 16 on, none from 0 down.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator
fold_vector_part(const S& source, uint4 raw, uint64 index, int32 bytes)
{
    using T = typename Op::Input;
    constexpr uint32 V = vector_elements<T>;
    if constexpr (Op::packed) {
        return Op::fold_packed(keep_bytes(raw, bytes));
    } else {
        union { uint4 raw; T elements[V]; } u;
        u.raw = raw;
        return fold_elements<Op, 0, V, false>(source, u.elements, index, bytes);
    }
}

// A whole vector that is present, or an absent one of zeros. Without a branch, unless a second array would be read.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator fold_if(bool present, const S& source, uint4 raw, uint64 index)
{
    if constexpr (Op::packed) {
        return Op::fold_packed(raw);
    } else if constexpr (is_same<typename Op::Second, Unused>) {
        return select(present, fold_vector<Op>(source, raw, index), Op::identity());
    } else {
        if (!present) return Op::identity();
        return fold_vector<Op>(source, raw, index);
    }
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

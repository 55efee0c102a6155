// Folds across the 32 lanes of a warp.
#pragma once
#include "base/types.cuh"

constexpr uint32 lanes = 32;

template <class T, class F> __device__ __forceinline__ T shuffle_words(T value, F shuffle)
{
    static_assert(sizeof(T) % 4 == 0, "shuffled in words");
    union { T whole; uint32 words[sizeof(T) / 4]; } u;
    u.whole = value;
#pragma unroll
    for (uint32 i = 0; i < sizeof(T) / 4; ++i) u.words[i] = shuffle(u.words[i]);
    return u.whole;
}

// One of two values, chosen word by word: choosing between structs would choose between addresses, in local memory.
template <class T> __device__ __forceinline__ T select(bool first, T a, T b)
{
    constexpr uint32 words = (sizeof(T) + 3) / 4;
    union { T whole; uint32 words[words]; } u, v;
    u.whole = a;
    v.whole = b;
#pragma unroll
    for (uint32 i = 0; i < words; ++i) u.words[i] = first ? u.words[i] : v.words[i];
    return u.whole;
}

// The value of lane `own ^ mask`, or of lane `lane`. All 32 lanes of the warp call these.
template <class T> __device__ __forceinline__ T shuffle_xor(T value, int mask)
{
    return shuffle_words(value, [=](uint32 w) { return __shfl_xor_sync(0xffffffffu, w, mask); });
}

template <class T> __device__ __forceinline__ T shuffle_from(T value, int lane)
{
    return shuffle_words(value, [=](uint32 w) { return __shfl_sync(0xffffffffu, w, lane); });
}

// What all lanes of a warp have alike, as all know but the compiler, in a form that tells it: a value, and whether something
// holds. It computes once for the warp what depends on these alone. And behind branches that depend on something else, it adds
// to each shuffle code for lanes that have come apart, up to a third of a kernel's code (benchmarks/NOTES.md, "Code for lanes
// that have come apart"). All 32 lanes call them.
template <class T> __device__ __forceinline__ T same_in_warp(T value) { return shuffle_from(value, 0); }
__device__ __forceinline__ bool all_agree(bool holds) { return __any_sync(0xffffffffu, holds); }

// The number of the thread's warp in its block. All 32 lanes call it.
__device__ __forceinline__ uint32 warp_of_block() { return same_in_warp(threadIdx.x / lanes); }

__device__ __forceinline__ uint32 warp_max(uint32 value)
{
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xffffffffu, value);
#else
    for (int mask = 1; mask < 32; mask *= 2) value = max(value, shuffle_xor(value, mask));
    return value;
#endif
}

// The lane level of the tree over groups of `Lanes` lanes (a power of two): balanced, adjacent pairs first. All 32 lanes call
// it; every lane of a group holds the group's result.
template <class Op, int Lanes = 32>
__device__ __forceinline__ typename Op::Accumulator warp_fold(typename Op::Accumulator value)
{
    if constexpr (Lanes == 32 && Op::folds_lanes) {
        return Op::fold_lanes(value);
    } else {
        // Where combining is cheap, two levels at a time: the three shuffles of a quarter do not wait for each other.
        constexpr bool by_quarters = sizeof(value) <= 8;
#pragma unroll
        for (int mask = 1; mask < Lanes; mask *= by_quarters ? 4 : 2) {
            const auto other = shuffle_xor(value, mask);
            if (!by_quarters || 2 * mask >= Lanes) {
                value = Op::combine(value, other);
            } else {
                const auto third = shuffle_xor(value, 2 * mask), fourth = shuffle_xor(value, 3 * mask);
                value = Op::combine(Op::combine(value, other), Op::combine(third, fourth));
            }
        }
        return value;
    }
}

// The lane level for N rows at once over groups of G lanes, N and G powers of two: a[i] holds the lane's part of the group's
// i-th row. At each level lanes exchange halves of what they hold, so that the number of shuffles halves as well. All 32 lanes
// call it. Afterwards, with H = min(G, N), a[j] of lane l is the fold of row j * H + l % H of its group.
template <class Op, int G, int N>
__device__ __forceinline__ void warp_fold_rows(typename Op::Accumulator* a, uint32 lane)
{
    constexpr int H = G < N ? G : N;
#pragma unroll
    for (int mask = 1; mask < H; mask *= 2) {
        const bool upper = lane & mask;
#pragma unroll
        for (int i = 0; i < N / (2 * mask); ++i) {
            const auto kept = select(upper, a[2 * i + 1], a[2 * i]), given = select(upper, a[2 * i], a[2 * i + 1]);
            a[i] = Op::combine(kept, shuffle_xor(given, mask));
        }
    }
#pragma unroll
    for (int mask = H; mask < G; mask *= 2)
#pragma unroll
        for (int j = 0; j < N / H; ++j) a[j] = Op::combine(a[j], shuffle_xor(a[j], mask));
}

// Folds 32 N values, N a power of two up to 32: a[i] of lane l is number 32 i + l. About N + log2(32 N) shuffles do the work of
// 5 N, in the same tree: lane bits first, then i. All 32 lanes call it; every lane holds the result.
template <class Op, int N>
__device__ __forceinline__ typename Op::Accumulator warp_fold_array(typename Op::Accumulator* a, uint32 lane)
{
    warp_fold_rows<Op, 32, N>(a, lane);
    return warp_fold<Op, N>(a[0]);
}

// Folds a sequence of any length, one value at a time, into the balanced tree of adjacent pairs that the whole sequence makes:
// a binary counter whose digit k holds the fold of 2^k values. Lane k keeps digit k, so that the stack takes one register a
// lane. All 32 lanes call `push`, with the same value, and `result`; every lane holds the result.
template <class Op> struct WarpCounter {
    typename Op::Accumulator digit = Op::identity();
    uint32 count = 0;

    __device__ __forceinline__ void push(typename Op::Accumulator value, uint32 lane)
    {
        int k = 0;
        for (uint32 rest = count; rest & 1u; rest >>= 1, ++k) value = Op::combine(shuffle_from(digit, k), value);
        if (lane == k) digit = value;
        ++count;
    }

    // What is missing past the right edge is absent, so an incomplete subtree moves up unchanged.
    __device__ __forceinline__ typename Op::Accumulator result()
    {
        typename Op::Accumulator value = Op::identity();
        for (int k = 0; count >> k; ++k)
            if (count >> k & 1u) value = Op::combine(shuffle_from(digit, k), value);
        return value;
    }
};

// The same with the digits in shared memory, for kernels that need all registers; the caller counts.
template <class Op> struct SharedWarpCounter {
    typename Op::Accumulator digits[32];

    // Adds a value to the `count` that were added before.
    __device__ __forceinline__ void push(typename Op::Accumulator value, uint32 count, uint32 lane)
    {
        int k = 0;
        for (; count & 1u; count >>= 1, ++k) value = Op::combine(digits[k], value);
        __syncwarp();
        if (lane == 0) digits[k] = value;
        __syncwarp();
    }

    __device__ __forceinline__ typename Op::Accumulator result(uint32 count) const
    {
        typename Op::Accumulator value = Op::identity();
        for (int k = 0; count >> k; ++k)
            if (count >> k & 1u) value = Op::combine(digits[k], value);
        return value;
    }
};

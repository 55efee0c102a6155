// Where folds of columns meet: those of a thread's rounds, those of the threads of a block, and those of the blocks of a cluster.
#pragma once
#include "tree/vector.cuh"

// An operator whose neighbours come in the order of their elements (InOrder), or else may have elements that interleave.
template <class Op, bool InOrder> struct Neighbours : Op {};
template <class Op> struct Neighbours<Op, false> : Op {
    static __device__ __forceinline__ typename Op::Accumulator
    ordered(typename Op::Accumulator a, typename Op::Accumulator b)
    {
        return Op::combine(a, b);
    }
};

constexpr uint32 column_warps = 8, column_threads = column_warps * lanes;
// A thread has at most 2^round_levels rounds in a turn. The same in column_policy.
template <class Op, int C> constexpr int round_levels = C * sizeof(typename Op::Accumulator) <= 32 ? 3 : 1;

// The folds of a thread's last 2^k rounds, of each of its columns: a binary counter in shared memory, because registers are for
// elements in flight.
template <class Op, int C> struct RoundFolds {
    static constexpr uint32 levels = round_levels<Op, C>;
    typename Op::Accumulator of[levels][C][column_threads];

    // Adds a round's folds to those of the `before` rounds before it; `a` becomes the folds of all if they are a power of two now.
    __device__ __forceinline__ void add(typename Op::Accumulator* a, uint32 before)
    {
        uint32 k = 0;
#pragma unroll 1
        for (; before >> k & 1u; ++k)
#pragma unroll
            for (int c = 0; c < C; ++c) a[c] = Op::combine(of[k][c][threadIdx.x], a[c]);
        if (k == levels) return;
#pragma unroll
        for (int c = 0; c < C; ++c) of[k][c][threadIdx.x] = a[c];
    }
};

// Where the threads of a block, and the blocks of a cluster, bring what they have of each column.
template <class Op, int C> struct ColumnMeeting {
    using A = typename Op::Accumulator;
    static constexpr uint32 most = 8;  // blocks of a cluster, and parts of a column in a block
    static constexpr uint32 places = sizeof(A) <= 8 ? 512 : sizeof(A) <= 32 ? 256 : 64;  // the same in column_policy
    union {
        RoundFolds<Op, C> waiting;  // while a turn's elements are folded
        A brought[column_threads * C];
    };
    A digits[places];  // the folds of 2^k turns of each column
    A of_ranks[places];
    uint64 barrier;

    // Brings what the thread has of its columns, joined with what the threads behind it in its warp have. 2^beside threads stand
    // side by side. All threads of the block call it, between barriers. Returns how many parts of each column there are.
    __device__ __forceinline__ uint32 bring(A* a, uint32 beside)
    {
        constexpr uint32 in_a_warp = log2_of(lanes);
        const uint32 lane = threadIdx.x % lanes, mine = threadIdx.x & (1u << beside) - 1;
#pragma unroll 1
        for (uint32 mask = 1u << beside; mask < lanes; mask *= 2)
#pragma unroll
            for (int c = 0; c < C; ++c) a[c] = Op::combine(a[c], shuffle_xor(a[c], mask));
        if (lane >> beside == 0 || beside >= in_a_warp) {
            A* to = brought + ((threadIdx.x >> max(beside, in_a_warp) << beside) + mine) * C;
#pragma unroll
            for (int c = 0; c < C; ++c) to[c] = a[c];
        }
        return blockDim.x >> max(beside, in_a_warp);
    }

    // The fold of `first` and of the `count` - 1 values, at most seven, that follow `values` `pitch` places apart. Their elements
    // may interleave.
    static __device__ __forceinline__ A folded(A first, const A* values, uint32 count, uint32 pitch)
    {
        if (count == 1) return first;
        A of[most];
        of[0] = first;
#pragma unroll
        for (uint32 k = 1; k < most; ++k) of[k] = k < count ? values[k * pitch] : Op::identity();
        return fold_array<Neighbours<Op, false>, most>(of);
    }

    // Adds a turn's fold of a column to those of the `before` turns before it: a binary counter.
    __device__ __forceinline__ void add(A value, uint32 before, uint32 column, uint32 pitch)
    {
        A* digit = digits + column;
#pragma unroll 1
        for (; before & 1u; before >>= 1, digit += pitch) value = Op::combine(*digit, value);
        *digit = value;
    }
};

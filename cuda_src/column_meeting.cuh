// Where the threads of a block that stand behind each other join the lanes of their columns, one of each thread at a time.
#pragma once
#include "vector.cuh"

// An operator whose neighbours come in the order of their elements (InOrder), or else may have elements that interleave.
template <class Op, bool InOrder> struct Neighbours : Op {};
template <class Op> struct Neighbours<Op, false> : Op {
    static __device__ __forceinline__ typename Op::Accumulator
    ordered(typename Op::Accumulator a, typename Op::Accumulator b)
    {
        return Op::combine(a, b);
    }
};

// A binary counter like LaneCounter, but in shared memory: a thread has registers for its elements alone.
template <class Op, int Levels, int Threads> struct SharedCounter {
    typename Op::Accumulator digits[Levels + 1][Threads];

    __device__ __forceinline__ void push(typename Op::Accumulator value, uint32 before)
    {
        uint32 k = 0;
#pragma unroll 1
        for (; before >> k & 1u; ++k) value = combine_neighbours<Op>(digits[k][threadIdx.x], value);
        digits[k][threadIdx.x] = value;
    }
};

// X threads of the block stand side by side, with C columns each; those behind each other bring different lanes of the same
// columns. Within a warp they have joined these lanes before and hold the same values. For each column one thread of the block
// folds what all threads bring of it, K times.
template <class Op, int Warps, int X, int C, int K, bool InOrder> struct ColumnMeeting {
    using A = typename Op::Accumulator;
    using Near = Neighbours<Op, InOrder>;
    static constexpr int columns = X * C, parts = X >= int(lanes) ? Warps * int(lanes) / X : Warps;  // of a column at a time
    static constexpr int at_once = C * sizeof(A) <= 32 ? C : 1;  // columns of a thread for which there is room
    static_assert(columns <= Warps * int(lanes), "a column has a thread that folds it");
    struct Shared {
        A brought[parts][at_once][X];
        SharedCounter<Near, log2_of(K), columns> counter;
    };
    Shared& shared;

    // Whether the thread folds a column of the block, and which one. A thread that brings columns has neighbouring ones or, if
    // not `neighbouring`, ones that lie X apart.
    static __device__ __forceinline__ bool has_column() { return threadIdx.x < columns; }
    static __device__ __forceinline__ int column(bool neighbouring)
    {
        return neighbouring ? threadIdx.x % X * C + threadIdx.x / X : threadIdx.x;
    }

    // Takes the thread's j-th lane of each of its columns, and may overwrite them. All threads of the block call it. It is a loop
    // in which each column comes to the place of the first, because this is much code where it is called.
    __device__ __forceinline__ void add(A* a, uint32 j)
    {
#pragma unroll 1
        for (int first = 0; first < C; first += at_once) {
            begin();
#pragma unroll
            for (int c = 0; c < at_once; ++c) bring(a[c], c);
#pragma unroll
            for (int c = at_once; c < C; ++c) a[c - at_once] = a[c];
            fold(first, j);
        }
    }

    // The same in steps, for `at_once` columns: all threads of the block call begin, then bring theirs, then call fold.
    __device__ __forceinline__ void begin() const { __syncthreads(); }  // what came before has been folded
    __device__ __forceinline__ void bring(A value, int c)
    {
        shared.brought[X >= int(lanes) ? threadIdx.x / X : threadIdx.x / lanes][c][threadIdx.x % X] = value;
    }
    __device__ __forceinline__ void fold(int first, uint32 j)
    {
        __syncthreads();
        const uint32 c = threadIdx.x / X - first;
        if (c < at_once) shared.counter.push(fold_parts<0, parts>(&shared.brought[0][c][threadIdx.x % X]), j);
    }

    // The fold of the thread's column, once K lanes have come, if it has a column.
    __device__ __forceinline__ A result() const { return shared.counter.digits[log2_of(K)][threadIdx.x]; }

private:
    // Depth first, to need few registers.
    template <int First, int Count> static __device__ __forceinline__ A fold_parts(const A* brought)
    {
        if constexpr (Count == 1) {
            return brought[First * at_once * X];
        } else {
            const A a = fold_parts<First, Count / 2>(brought);
            return combine_neighbours<Near>(a, fold_parts<First + Count / 2, Count / 2>(brought));
        }
    }
};

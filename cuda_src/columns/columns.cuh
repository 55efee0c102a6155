// The neighbouring rows of one thread, folded in the order of the tree.
#pragma once
#include "columns/column_fetch.cuh"
#include "columns/column_meeting.cuh"

template <class Op, int C, int N, bool IsStraight, Begin Where> struct Columns : ColumnFetch<Op, C, N, IsStraight, Where> {
    using Fetcher = ColumnFetch<Op, C, N, IsStraight, Where>;
    using typename Fetcher::A;
    using typename Fetcher::By;
    using typename Fetcher::Place;
    using typename Fetcher::Seconds;
    using typename Fetcher::Slots;
    using typename Fetcher::T;
    using typename Fetcher::Vectors;
    using Fetcher::available, Fetcher::by, Fetcher::load_bytes, Fetcher::other, Fetcher::problem, Fetcher::rows, Fetcher::V;
    using Fetcher::by_words, Fetcher::Fetcher, Fetcher::is_aligned;

    // Folds `count` vectors of each row (a power of two) in the order of the tree, from number `vector` on, a multiple of `count`:
    // vectors are numbered leaf by leaf, lane by lane, each in 2^log_steps steps. `waiting` is this thread's until it has returned.
    __device__ __forceinline__ void
    fold(A* a, RoundFolds<Op, C>& waiting, uint64 vector, uint32 count, uint32 log_steps) const
    {
        const uint32 in_a_leaf = uint32(lanes) << log_steps;
        const uint64 leaf = vector / lanes >> log_steps, begins = leaf * leaf_elements<T>, length = rows[0].length;
        const int left = begins < length ? int(min(length - begins, uint64(leaf_elements<T>))) : 0;
        Vectors vectors{begins, left, uint32(vector) & in_a_leaf - 1, min(count, uint32(N)), log_steps};
#pragma unroll 1
        for (uint32 round = 0; round * N < count; ++round, vectors.number += N) {
            if (by == By::together && vectors.left_from(N - 1) >= V) {
                fold_round<Fetch::whole>(a, vectors);
            } else if (vectors.left_from(0) > 0) {
                fold_round<Fetch::part>(a, vectors);
            } else {
#pragma unroll
                for (int c = 0; c < C; ++c) a[c] = Op::identity();
            }
            if (count > N) waiting.add(a, round);
        }
    }

private:
    template <Fetch How> __device__ __forceinline__ void fold_round(A* a, const Vectors& vectors) const
    {
        Slots v[N];
        Seconds y[N];
        Place at[N];
        if (How == Fetch::whole || by == By::together) {
            this->template fetch_all<How, By::together>(v, at, vectors);
        } else if constexpr (!is_aligned) {
            if (by_words && by == By::words) this->template fetch_all<How, By::words>(v, at, vectors);
            else if (C > 1 && by == By::singly) this->template fetch_all<How, By::singly>(v, at, vectors);
            else this->fetch_bytes(v, vectors);
        }
        if constexpr (has_second<Op>) {
            this->begin_walks(at, vectors, true);
#pragma unroll
            for (int t = 0; t < N; ++t) y[t].load(problem, at[t], other, How == Fetch::whole ? V : vectors.left_from(t), available);
        }
        if constexpr (Op::folds_elements && load_bytes == vector_bytes) {
            fold_elements(a, v, vectors);
        } else {
#pragma unroll
            for (int t = 0; t < N; ++t) v[t].gather();
#pragma unroll
            for (int c = 0; c < C; ++c) a[c] = fold_vectors<How, 0, N>(v, y, vectors, c);
        }
    }

    // Reduces elements to those that stand for them, row by row at once: fewer instructions than accumulators take. Elements of a
    // row that are there twice, in place of absent ones, change nothing.
    __device__ __forceinline__ void fold_elements(A* a, const Slots (&v)[N], const Vectors& vectors) const
    {
        ColumnWords<T, C> all = {v[0].of[0]};
#pragma unroll
        for (int k = 1; k < N * V; ++k) {
            const ColumnWords<T, C> next = {v[k / V].of[k % V]};
            const uint4 both = Op::combine_elements(make_uint4(all.words[0], all.words[1], all.words[2], all.words[3]),
                                                    make_uint4(next.words[0], next.words[1], next.words[2], next.words[3]));
            all.words[0] = both.x, all.words[1] = both.y, all.words[2] = both.z, all.words[3] = both.w;
        }
#pragma unroll
        for (int c = 0; c < C; ++c) a[c] = Op::map(ItemOf<Op>{all.loaded.elements[c], {}, vectors.first}, rows[c]);
    }

    // Folds vectors First to First + Count - 1 of the row in place `c`. Depth first, so that a thread holds few accumulators.
    template <Fetch How, int First, int Count>
    __device__ __forceinline__ A fold_vectors(const Slots (&v)[N], const Seconds (&y)[N], const Vectors& vectors, int c) const
    {
        if constexpr (Count == 1) {
            const RowOf<Op> row = with_pivot_from_here(RowAlone<Op>{rows[c]}).row;
            const int there = How == Fetch::whole ? V : vectors.left_from(First);
            return v[First].template fold<How>(row, c, y[First], vectors.index(First), there);
        } else {
            const A a = fold_vectors<How, First, Count / 2>(v, y, vectors, c);
            return Op::combine(a, fold_vectors<How, First + Count / 2, Count / 2>(v, y, vectors, c));
        }
    }
};

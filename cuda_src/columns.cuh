// The neighbouring rows of one thread, folded in the order of the tree.
#pragma once
#include "column_fetch.cuh"

template <class Op, class Kept, int C, int Lanes, int Steps, int Behind = 1, int Apart = Behind>
struct Columns : ColumnFetch<Op, Kept, C, Lanes, Steps, Behind, Apart> {
    using Fetcher = ColumnFetch<Op, Kept, C, Lanes, Steps, Behind, Apart>;
    using typename Fetcher::A;
    using typename Fetcher::Seconds;
    using typename Fetcher::Slots;
    using typename Fetcher::T;
    using Fetcher::aligned, Fetcher::length, Fetcher::misplaced, Fetcher::rows, Fetcher::V;
    using Fetcher::Fetcher;

    // Folds K lanes (a power of two) of each row, from `lane` on. All threads of a warp call it if they exchange values. A
    // kernel that hardly ever calls it, because it has other code for aligned rows, does without code for whole lanes.
    template <int K, bool IsRare = false> __device__ __forceinline__ void fold_lanes(uint32 leaf, uint32 lane, A* a) const
    {
        if (misplaced) return fold_fetched<Fetch::bytes, K>(leaf, lane, a);
        if constexpr (C * sizeof(T) > alignof(T))
            if (!aligned) return fold_fetched<Fetch::single, K>(leaf, lane, a);
        if constexpr (!IsRare)
            if (uint64(leaf + leaves<K>()) * (Lanes * Steps * V) <= length) return fold_fetched<Fetch::whole, K>(leaf, lane, a);
        fold_fetched<Fetch::part, K>(leaf, lane, a);
    }

protected:
    // Vectors are numbered step by step, lane by lane. So many are fetched together: 64 bytes of a thread's, twice as many if
    // it holds little else, half as many if K < Lanes and accumulators have three words, by what NVRTC 13.0 makes of all.
    template <Fetch How, int K> static __device__ __forceinline__ constexpr int fetched_together()
    {
        constexpr int vectors = K * Steps, vector = V * Slots::words * 4;
        constexpr bool alone = K == Lanes && is_same<typename Op::Second, Unused>;
        constexpr bool more = alone && (How == Fetch::whole || (How == Fetch::part && vectors * vector <= 128));
        constexpr int bytes = more ? 128 : K < Lanes && sizeof(A) == 12 ? 32 : 64;
        return How == Fetch::bytes ? 1 : power_within(bytes / vector, vectors);
    }

    // How many leaves the K lanes of each thread of a warp lie in.
    template <int K> static __device__ __forceinline__ constexpr int leaves()
    {
        return K * Behind > Lanes ? K * Behind / Lanes : 1;
    }

    template <Fetch How, int K> __device__ __forceinline__ void fold_fetched(uint32 leaf, uint32 lane, A* a) const
    {
        constexpr int at_once = fetched_together<How, K>(), rounds = K * Steps / at_once;
        LaneCounter<Op, log2_of(rounds)> counters[C];
        prepare<How>(counters);
#pragma unroll 1
        for (uint32 round = 0; round < rounds; ++round) {
            Slots v[at_once];
            Seconds y[at_once];
            const uint32 number = round * at_once;
            this->template fetch<How>(v, leaf, lane, number);
            this->template load_seconds<How>(y, leaf, lane, number);
            fold_rows<How>(counters, v, y, leaf, lane, number, round);
        }
#pragma unroll
        for (int c = 0; c < C; ++c) a[c] = counters[c].result();
    }

    // The fold of `count` vectors: of halves `a` and `b`, or `a` already. Lanes of several steps have elements that
    // interleave. Those of threads behind each other are joined as soon as each is folded: they are neighbours in the tree.
    static __device__ __forceinline__ A joined(A a, A b, int count)
    {
        return with_lanes_behind(count <= Steps || Steps == 1 ? combine_neighbours<Op>(a, b) : Op::combine(a, b), count);
    }
    static __device__ __forceinline__ A with_lanes_behind(A a, int count)
    {
        if (count != Steps) return a;
#pragma unroll
        for (int mask = lanes / Behind; mask < int(lanes); mask *= 2) a = Op::combine(a, shuffle_xor(a, mask));
        return a;
    }

    // Makes the counters of the rows ready for fold_rows.
    template <Fetch How, class Counter> static __device__ __forceinline__ void prepare(Counter (&counters)[C])
    {
        if constexpr (folds_in_turn<Op, How>)
#pragma unroll
            for (int c = 0; c < C; ++c) counters[c].clear();
    }

    // Pushes the fold of Count vectors into a LaneCounter of such folds.
    template <int Count, class Counter> static __device__ __forceinline__ void push(Counter& counter, A value, uint32 before)
    {
        counter.push(value, before, [](A a, A b, int k) { return joined(a, b, Count << (k + 1)); });
    }

    // Folds N vectors of each row, fetched from `number` on, and pushes them into its counter, `before` such folds earlier.
    template <Fetch How, int N, class Counter>
    __device__ __forceinline__ void fold_rows(Counter* counters, Slots (&v)[N], Seconds (&y)[N], uint32 leaf, uint32 lane,
                                              uint32 number, uint32 before) const
    {
        if constexpr (folds_in_turn<Op, How>) {
            RowOf<Op> row[C];
#pragma unroll
            for (int c = 0; c < C; ++c) row[c] = rows[c];
#pragma unroll 1
            for (int c = 0; c < C; ++c) {
                push<N>(counters[0], fold_vectors<How, 0, N>(v, y, leaf, lane, number, row[0], 0), before);
                const Counter first = counters[0];
#pragma unroll
                for (int i = 1; i < C; ++i) counters[i - 1] = counters[i], row[i - 1].pivot = row[i].pivot;
                counters[C - 1] = first;
#pragma unroll
                for (int t = 0; t < N; ++t) v[t].move_up(), y[t].move_up();
            }
        } else {
#pragma unroll
            for (int c = 0; c < C; ++c)
                push<N>(counters[c], fold_vectors<How, 0, N>(v, y, leaf, lane, number, rows[c], c), before);
        }
    }

    // Folds vectors First to First + Count - 1 of the row in place `c`. Depth first, so that a thread holds few accumulators
    // at a time.
    template <Fetch How, int First, int Count, int N>
    __device__ __forceinline__ A fold_vectors(const Slots (&v)[N], const Seconds (&y)[N], uint32 leaf, uint32 lane,
                                              uint32 number, const RowOf<Op>& row, int c) const
    {
        if constexpr (Count == 1) {
            const int there = this->template present<How>(leaf, lane, number + First);
            const uint64 index = this->index_of(leaf, lane, number + First);
            return with_lanes_behind(v[First].template fold<How>(row, c, y[First], index, there), 1);
        } else {
            const A a = fold_vectors<How, First, Count / 2>(v, y, leaf, lane, number, row, c);
            return joined(a, fold_vectors<How, First + Count / 2, Count / 2>(v, y, leaf, lane, number, row, c), Count);
        }
    }
};

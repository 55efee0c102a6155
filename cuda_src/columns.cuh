// The neighbouring rows of one thread, whose elements lie a stride apart: one load takes one element of each row.
#pragma once
#include "column_slots.cuh"

// C rows of one thread. Each has `Lanes` lanes of `Steps` steps, powers of two: fewer than 32 and 8 where rows are shorter
// than a leaf. `Behind` threads of a warp, a power of two, have the same rows, and neighbouring lanes of them. The next lane
// of each thread is `Apart` lanes further on.
template <class Op, int C, int Lanes, int Steps, int Behind = 1, int Apart = Behind> struct Columns {
    using T = typename Op::Input;
    using A = typename Op::Accumulator;
    using Loaded = ColumnVector<T, C>;
    using Slots = ColumnSlots<Op, C>;
    using Seconds = ColumnSeconds<Op, C>;
    static constexpr int V = Slots::V;
    const char* begin;
    const char* other;
    RowOf<Op> rows[C];
    const ShapedProblem& problem;
    uint64 length;
    int available;
    bool aligned, misplaced;  // to a load across the C rows; not even to an element

    // The thread's rows are number `row` and the C - 1 after it, of which `present` exist; the others are copies of the last
    // one. Threads that exchange values must load in the same way: `all_present` is whether each of them has C rows.
    __device__ __forceinline__
    Columns(const ShapedProblem& p, uint64 row, int present, bool all_present) : problem(p), available(present)
    {
        length = p.actual_length();
        begin = p.elements + p.kept.offset(row, false);
        if constexpr (!is_same<typename Op::Second, Unused>) other = p.second + p.kept.offset(row, true);
        const uint64 addresses = reinterpret_cast<uint64>(begin) | uint64(p.reduced.stride[0]);
        aligned = all_present && addresses % (C * sizeof(T)) == 0;
        misplaced = addresses % alignof(T) != 0;
#pragma unroll
        for (int c = 0; c < C; ++c) rows[c] = Source<Op>(p, begin + min(c, available - 1) * sizeof(T), nullptr, length).row;
    }

    // Folds K lanes (a power of two) of each row, from `lane` on. All threads of a warp call it if they exchange values.
    template <int K> __device__ __forceinline__ void fold_lanes(uint32 leaf, uint32 lane, A* a) const
    {
        if (misplaced) fold_fetched<Fetch::bytes, K>(leaf, lane, a);
        else if (!aligned) fold_fetched<Fetch::single, K>(leaf, lane, a);
        else if (length < uint64(leaf + leaves<K>()) * (Lanes * Steps * V)) fold_fetched<Fetch::part, K>(leaf, lane, a);
        else fold_fetched<Fetch::whole, K>(leaf, lane, a);
    }

protected:
    template <Fetch How> static constexpr bool are_together = How == Fetch::whole || How == Fetch::part;

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

    static __device__ __forceinline__ constexpr uint32 place_of(uint32 lane, uint32 number)
    {
        const uint32 further = number / Steps * Apart;
        return further / Lanes * leaf_elements<T> + (lane + further % Lanes) * V + number % Steps * (lanes * V);
    }
    // Elements from vector `t` to the next.
    static __device__ __forceinline__ constexpr int next_vector(uint32 t)
    {
        return int(place_of(0, t + 1)) - int(place_of(0, t));
    }
    static __device__ __forceinline__ uint64 index_of(uint32 leaf, uint32 lane, uint32 number)
    {
        return uint64(leaf) * leaf_elements<T> + place_of(lane, number);
    }

    template <Fetch How, int K> __device__ __forceinline__ void fold_fetched(uint32 leaf, uint32 lane, A* a) const
    {
        constexpr int at_once = fetched_together<How, K>(), rounds = K * Steps / at_once;
        LaneCounter<Op, log2_of(rounds)> counters[C];
#pragma unroll 1
        for (uint32 round = 0; round < rounds; ++round) {
            Slots v[at_once];
            Seconds y[at_once];
            const uint32 number = round * at_once;
            fetch<How>(v, leaf, lane, number);
            load_seconds<How>(y, leaf, lane, number);
            fold_rows<How>(v, y, leaf, lane, number, a);
#pragma unroll
            for (int c = 0; c < C; ++c) push<at_once>(counters[c], a[c], round);
        }
#pragma unroll
        for (int c = 0; c < C; ++c) a[c] = counters[c].digits[log2_of(rounds)];
    }

    // Fetches N vectors from `number` on, which is a multiple of N. The address moves from one to the next: a product with the
    // stride for each would take the registers of elements in flight.
    template <Fetch How, int N>
    __device__ __forceinline__ void fetch(Slots (&v)[N], uint32 leaf, uint32 lane, uint32 number) const
    {
        const int64 stride = problem.reduced.stride[0];
        const char* address = begin + int64(index_of(leaf, lane, number)) * stride;
#pragma unroll
        for (int t = 0; t < N; ++t) {
            const int there = present<How>(leaf, lane, number + t);
#pragma unroll
            for (int s = 0; s < V; ++s, address += stride) {
                // The compiler would put the use of a conditional load right behind it. So in place of an absent element the
                // row's first one is loaded again.
                fetch_slot<How>(v[t], s, s < there ? address : begin);
            }
            if constexpr (are_together<How>) v[t].gather();
            address += (next_vector(t) - V) * stride;
        }
    }

    // One element of each row.
    template <Fetch How> __device__ __forceinline__ void fetch_slot(Slots& v, int s, const char* from) const
    {
        if constexpr (are_together<How>) {
            v.of[s].whole = __ldg(reinterpret_cast<const decltype(v.of[s].whole)*>(from));
        } else {
#pragma unroll
            for (int c = 0; c < C; ++c) {
                const char* element = from + min(c, available - 1) * sizeof(T);
                if constexpr (How == Fetch::bytes) v.put(s, c, load_element<T>(element));
                else v.put(s, c, *reinterpret_cast<const T*>(element));
            }
        }
    }

    // How many elements the row has from a vector's first on; none if not positive. 2^30 stands for more.
    template <Fetch How> __device__ __forceinline__ int present(uint32 leaf, uint32 lane, uint32 number) const
    {
        if (How == Fetch::whole) return V;
        const int64 left = int64(length) - int64(leaf) * leaf_elements<T>;
        return int(max(min(left, int64(1 << 30)), int64(0))) - int(place_of(lane, number));
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

    // Pushes the fold of Count vectors into a LaneCounter of such folds.
    template <int Count, class Counter> static __device__ __forceinline__ void push(Counter& counter, A value, uint32 before)
    {
        counter.push(value, before, [](A a, A b, int k) { return joined(a, b, Count << (k + 1)); });
    }

    // Loads the second array's elements that go with N vectors from `number` on.
    template <Fetch How, int N>
    __device__ __forceinline__ void load_seconds(Seconds (&y)[N], uint32 leaf, uint32 lane, uint32 number) const
    {
        if constexpr (has_second<Op>) {
            const bool placed = seconds_are_placed<Op>(problem);
#pragma unroll
            for (int t = 0; t < N; ++t) {
                const char* from = other + int64(index_of(leaf, lane, number + t)) * problem.reduced.second_stride[0];
                y[t].load(problem, from, present<How>(leaf, lane, number + t), available, placed);
            }
        }
    }

    // Folds N vectors of each row, fetched from `number` on.
    template <Fetch How, int N>
    __device__ __forceinline__ void
    fold_rows(Slots (&v)[N], const Seconds (&y)[N], uint32 leaf, uint32 lane, uint32 number, A* a) const
    {
        if constexpr (folds_in_turn<Op, How> && C > 1) {
            RowOf<Op> row[C];
#pragma unroll
            for (int c = 0; c < C; ++c) row[c] = rows[c];
#pragma unroll 1
            for (int c = 0; c < C; ++c) {
                const A value = fold_vectors<How, 0, N>(v, y, leaf, lane, number, row[0], 0, c);
#pragma unroll
                for (int i = 1; i < C; ++i) row[i - 1].pivot = row[i].pivot;
#pragma unroll
                for (int i = 1; i < C; ++i) a[i - 1] = a[i];
                a[C - 1] = value;
#pragma unroll
                for (int t = 0; t < N; ++t) v[t].move_up();
            }
        } else {
#pragma unroll
            for (int c = 0; c < C; ++c) a[c] = fold_vectors<How, 0, N>(v, y, leaf, lane, number, rows[c], c, c);
        }
    }

    // Folds vectors First to First + Count - 1 of row `c`, which are in place `at`. Depth first, so that a thread holds few
    // accumulators at a time.
    template <Fetch How, int First, int Count, int N>
    __device__ __forceinline__ A
    fold_vectors(const Slots (&v)[N], const Seconds (&y)[N], uint32 leaf, uint32 lane, uint32 number, const RowOf<Op>& row, int at, int c) const
    {
        if constexpr (Count == 1) {
            const int there = present<How>(leaf, lane, number + First);
            const uint64 index = index_of(leaf, lane, number + First);
            return with_lanes_behind(v[First].template fold<How>(row, at, c, y[First], index, there), 1);
        } else {
            const A a = fold_vectors<How, First, Count / 2>(v, y, leaf, lane, number, row, at, c);
            return joined(a, fold_vectors<How, First + Count / 2, Count / 2>(v, y, leaf, lane, number, row, at, c), Count);
        }
    }
};

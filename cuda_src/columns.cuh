// The neighbouring rows of one thread, whose elements lie a stride apart: a load takes one element of each row.
#pragma once
#include "column_loads.cuh"

// C rows of a thread. They have `Lanes` lanes of `Steps` steps, powers of two: where they are shorter than a leaf fewer
// than 32 and 8. Threads of a warp that have the same rows are `Behind`, a power of two: such have neighbouring lanes, and
// each thread's next lane is that many further on.
template <class Op, int C, int Lanes, int Steps, int Behind = 1> struct Columns {
    using T = typename Op::Input;
    using A = typename Op::Accumulator;
    using Loaded = ColumnVector<T, C>;
    static constexpr int V = vector_elements<T>;
    static constexpr int words = (sizeof(T) * C + 3) / 4;  // registers of a load
    const char* begin;
    const char* other;
    RowOf<Op> rows[C];
    const ShapedProblem& problem;
    uint64 length;
    int available;
    bool aligned, misplaced;  // to what is loaded across the C rows; to not even an element

    // The thread's rows are number `row` and the C - 1 after it; those from `present` on are copies of the last. Threads
    // that exchange values load in the same way: `all_present` is whether each of them has C.
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

    // K lanes of all the thread's rows from one on, K a power of two. All threads of the warp call it if they exchange
    // values.
    template <int K> __device__ __forceinline__ void fold_lanes(uint32 leaf, uint32 lane, A* a) const
    {
        if (misplaced) fold_fetched<Fetch::bytes, K>(leaf, lane, a);
        else if (!aligned) fold_fetched<Fetch::single, K>(leaf, lane, a);
        else if (length < uint64(leaf + leaves<K>()) * (Lanes * Steps * V)) fold_fetched<Fetch::part, K>(leaf, lane, a);
        else fold_fetched<Fetch::whole, K>(leaf, lane, a);
    }

protected:
    // Vectors are numbered step by step, lane by lane. So many are fetched together: 64 bytes of a thread's, or twice as
    // many where it holds little else.
    template <Fetch How, int K> static __device__ __forceinline__ constexpr int fetched_together()
    {
        constexpr int vectors = K * Steps, vector = V * words * 4, twice = 128;
        constexpr bool alone = K == Lanes && is_same<typename Op::Second, Unused>;
        constexpr bool more = alone && (How == Fetch::whole || (How == Fetch::part && vectors * vector <= twice));
        return How == Fetch::bytes ? 1 : power_within((more ? twice : twice / 2) / vector, vectors);
    }

    // Leaves that K lanes of each thread of a warp lie in.
    template <int K> static __device__ __forceinline__ constexpr int leaves()
    {
        return K * Behind > Lanes ? K * Behind / Lanes : 1;
    }

    static __device__ __forceinline__ constexpr uint32 place_of(uint32 lane, uint32 number)
    {
        const uint32 further = number / Steps * Behind;
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
            Loaded v[at_once][V];
            fetch<How>(v, leaf, lane, round * at_once);
#pragma unroll
            for (int c = 0; c < C; ++c)
                push<at_once>(counters[c], fold_vectors<How, 0, at_once>(v, leaf, lane, round * at_once, c), round);
        }
#pragma unroll
        for (int c = 0; c < C; ++c) a[c] = counters[c].digits[log2_of(rounds)];
    }

    // Fetches N vectors from `number` on, which is a multiple of N. It goes from one to the next: as many products with the
    // stride would take the registers of elements in flight.
    template <Fetch How, int N>
    __device__ __forceinline__ void fetch(Loaded (&v)[N][V], uint32 leaf, uint32 lane, uint32 number) const
    {
        const int64 stride = problem.reduced.stride[0];
        const char* address = begin + int64(index_of(leaf, lane, number)) * stride;
#pragma unroll
        for (int t = 0; t < N; ++t) {
            const int there = How == Fetch::whole ? V : present(leaf, lane, number + t);
#pragma unroll
            for (int s = 0; s < V; ++s, address += stride) {
                // A load under a condition would be followed by its use at once: for what is absent the row's first
                // element is loaded again.
                fetch_slot<How>(v[t][s], s < there ? address : begin);
            }
            address += (next_vector(t) - V) * stride;
        }
    }

    // One element of each row.
    template <Fetch How> __device__ __forceinline__ void fetch_slot(Loaded& v, const char* from) const
    {
        if constexpr (How == Fetch::whole || How == Fetch::part) {
            v.whole = __ldg(reinterpret_cast<const decltype(v.whole)*>(from));
        } else {
#pragma unroll
            for (int c = 0; c < C; ++c) {
                const char* element = from + min(c, available - 1) * sizeof(T);
                if constexpr (How == Fetch::bytes) v.elements[c] = load_element<T>(element);
                else v.elements[c] = *reinterpret_cast<const T*>(element);
            }
        }
    }

    // How many elements of the row there are from a vector's first on, or none if it is not positive: 2^30 stand for more.
    __device__ __forceinline__ int present(uint32 leaf, uint32 lane, uint32 number) const
    {
        const int64 left = int64(length) - int64(leaf) * leaf_elements<T>;
        return int(max(min(left, int64(1 << 30)), int64(0))) - int(place_of(lane, number));
    }

    // The fold of `count` vectors, whose halves are `a` and `b`, or which is `a`. Lanes of several steps have elements that
    // interleave. Those of the threads behind each other join as soon as each is folded: their neighbours are next.
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

    // Pushes the fold of Count vectors into a LaneCounter of such.
    template <int Count, class Counter> static __device__ __forceinline__ void push(Counter& counter, A value, uint32 before)
    {
        counter.push(value, before, [](A a, A b, int k) { return joined(a, b, Count << (k + 1)); });
    }

    // Vectors First to First + Count - 1 of those fetched from `number` on. Depth first, for a thread then holds few
    // accumulators at a time.
    template <Fetch How, int First, int Count, int N>
    __device__ __forceinline__ A fold_vectors(const Loaded (&v)[N][V], uint32 leaf, uint32 lane, uint32 number, int c) const
    {
        if constexpr (Count == 1) {
            const uint64 index = index_of(leaf, lane, number + First);
            const A a = fold_slots<0, V>(v[First], index, How == Fetch::whole ? V : present(leaf, lane, number + First), c);
            return with_lanes_behind(a, 1);
        } else {
            const A a = fold_vectors<How, First, Count / 2>(v, leaf, lane, number, c);
            const A b = fold_vectors<How, First + Count / 2, Count / 2>(v, leaf, lane, number, c);
            return joined(a, b, Count);
        }
    }

    template <int First, int Count>
    __device__ __forceinline__ A fold_slots(const Loaded* v, uint64 index, int there, int c) const
    {
        if constexpr (Count == 1) {
            return First < there ? map(v[First].elements[c], index + First, c) : Op::identity();
        } else {
            const A a = fold_slots<First, Count / 2>(v, index, there, c);
            return combine_neighbours<Op>(a, fold_slots<First + Count / 2, Count / 2>(v, index, there, c));
        }
    }

    __device__ __forceinline__ A map(T x, uint64 index, int c) const
    {
        if constexpr (is_same<typename Op::Second, Unused>) {
            return Op::map(ItemOf<Op>{x, {}, index}, rows[c]);
        } else {
            const char* y =
                other + int64(index) * problem.reduced.second_stride[0] + min(c, available - 1) * problem.kept.second_stride[0];
            return Op::map(ItemOf<Op>{x, load_element<typename Op::Second>(y), index}, rows[c]);
        }
    }
};

// The neighbouring rows of one thread, whose elements lie a stride apart: a load takes one element of each row.
#pragma once
#include "shape.cuh"

// One element of each of C neighbouring rows.
template <class T, int C> union ColumnVector {
    T elements[C];
    typename Word<sizeof(T) * C>::type whole;
};

// An operator whose neighbours come in the order of their elements, or else may have elements that interleave: lanes of
// several steps do.
template <class Op, bool InOrder> struct Neighbours : Op {};
template <class Op> struct Neighbours<Op, false> : Op {
    static __device__ __forceinline__ typename Op::Accumulator
    ordered(typename Op::Accumulator a, typename Op::Accumulator b)
    {
        return Op::combine(a, b);
    }
};

// How elements are fetched: all are there and those of the C rows come in one load; the same, but the row may end among
// them; or each by itself.
enum class Fetch { whole, part, single };

// C rows of a thread. They have `Lanes` lanes of `Steps` steps, powers of two: where they are shorter than a leaf fewer
// than 32 and 8.
template <class Op, int C, int Lanes, int Steps> struct Columns {
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
    bool aligned;

    // The thread's rows are number `row` and the C - 1 after it; those from `present` on are copies of the last.
    __device__ __forceinline__ Columns(const ShapedProblem& p, uint64 row, int present) : problem(p), available(present)
    {
        length = p.actual_length();
        begin = p.elements + p.kept.offset(row, false);
        if constexpr (!is_same<typename Op::Second, Unused>) other = p.second + p.kept.offset(row, true);
        aligned = available == C && (reinterpret_cast<uint64>(begin) | uint64(p.reduced.stride[0])) % (C * sizeof(T)) == 0;
#pragma unroll
        for (int c = 0; c < C; ++c) rows[c] = Source<Op>(p, begin + min(c, available - 1) * sizeof(T), nullptr, length).row;
    }

    // Lanes lane to lane + K - 1 of one leaf of all the thread's rows, K a power of two.
    template <int K> __device__ __forceinline__ void fold_lanes(uint32 leaf, uint32 lane, A* a) const
    {
        if (!aligned) fold_fetched<Fetch::single, K>(leaf, lane, a);
        else if (length < uint64(leaf + 1) * (Lanes * Steps * V)) fold_fetched<Fetch::part, K>(leaf, lane, a);
        else fold_fetched<Fetch::whole, K>(leaf, lane, a);
    }

private:
    // Vectors are numbered step by step, lane by lane. So many are fetched together: 64 bytes of a thread's, or twice as
    // many where it holds little else.
    template <Fetch How, int K> static __device__ __forceinline__ constexpr int fetched_together()
    {
        constexpr int vectors = K * Steps, vector = V * words * 4, twice = 128;
        constexpr bool alone = K == Lanes && is_same<typename Op::Second, Unused>;
        constexpr bool more = alone && (How == Fetch::whole || (How == Fetch::part && vectors * vector <= twice));
        constexpr int most = (more ? twice : twice / 2) / vector;
        return most < 1 ? 1 : most < vectors ? most : vectors;
    }

    static __device__ __forceinline__ uint32 place_of(uint32 lane, uint32 number)
    {
        return (lane + number / Steps) * V + number % Steps * (lanes * V);
    }
    static __device__ __forceinline__ uint64 index_of(uint32 leaf, uint32 lane, uint32 number)
    {
        return uint64(leaf) * leaf_elements<T> + place_of(lane, number);
    }

    template <Fetch How, int K> __device__ __forceinline__ void fold_fetched(uint32 leaf, uint32 lane, A* a) const
    {
        constexpr int at_once = fetched_together<How, K>(), rounds = K * Steps / at_once;
        LaneCounter<Neighbours<Op, K == 1 || Steps == 1>, log2_of(rounds)> counters[C];
#pragma unroll 1
        for (uint32 round = 0; round < rounds; ++round) {
            Loaded v[at_once][V];
            fetch<How>(v, leaf, lane, round * at_once);
#pragma unroll
            for (int c = 0; c < C; ++c)
                counters[c].push(fold<How, 0, at_once>(v, leaf, lane, round * at_once, c), round);
        }
#pragma unroll
        for (int c = 0; c < C; ++c) a[c] = counters[c].digits[log2_of(rounds)];
    }

    // Fetches N vectors from `number` on.
    template <Fetch How, int N>
    __device__ __forceinline__ void fetch(Loaded (&v)[N][V], uint32 leaf, uint32 lane, uint32 number) const
    {
        const int64 stride = problem.reduced.stride[0];
        const bool anywhere = (reinterpret_cast<uint64>(begin) | uint64(stride)) % alignof(T) != 0;
        const char* first = begin + int64(uint64(leaf) * leaf_elements<T>) * stride;
#pragma unroll
        for (int t = 0; t < N; ++t) {
            const uint64 index = index_of(leaf, lane, number + t);
            const char* address = first + place_of(lane, number + t) * stride;
#pragma unroll
            for (int s = 0; s < V; ++s, address += stride) {
                // A load under a condition would be followed by its use at once: for what is absent the row's first
                // element is loaded again.
                const char* from = How == Fetch::whole || s < present(index) ? address : begin;
                if constexpr (How == Fetch::single) {
#pragma unroll
                    for (int c = 0; c < C; ++c) {
                        const char* element = from + min(c, available - 1) * sizeof(T);
                        v[t][s].elements[c] = anywhere ? load_element<T>(element) : *reinterpret_cast<const T*>(element);
                    }
                } else {
                    v[t][s].whole = __ldg(reinterpret_cast<const decltype(v[t][s].whole)*>(from));
                }
            }
        }
    }

    // How many elements of the vector at `index` there are.
    __device__ __forceinline__ int present(uint64 index) const
    {
        return index < length ? int(min(length - index, uint64(V))) : 0;
    }

    // Vectors First to First + Count - 1 of those fetched from `number` on. Depth first, for a thread then holds few
    // accumulators at a time.
    template <Fetch How, int First, int Count, int N>
    __device__ __forceinline__ A fold(const Loaded (&v)[N][V], uint32 leaf, uint32 lane, uint32 number, int c) const
    {
        if constexpr (Count == 1) {
            const uint64 index = index_of(leaf, lane, number + First);
            return fold_slots<0, V>(v[First], index, How == Fetch::whole ? V : present(index), c);
        } else {
            const A a = fold<How, First, Count / 2>(v, leaf, lane, number, c);
            const A b = fold<How, First + Count / 2, Count / 2>(v, leaf, lane, number, c);
            return combine_neighbours<Neighbours<Op, Steps == 1 || Count <= Steps>>(a, b);
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

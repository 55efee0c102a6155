// The neighbouring rows of one thread, whose elements lie a stride apart: a load takes one element of each row.
#pragma once
#include "shape.cuh"

// The largest power of two that is at most both, or 1.
__host__ __device__ constexpr int power_within(int a, int b) { return a <= 1 || b <= 1 ? 1 : 2 * power_within(a / 2, b / 2); }

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
// them; each by itself; or byte by byte where that is needed.
enum class Fetch { whole, part, single, bytes };

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
    bool aligned, misplaced;  // to what is loaded across the C rows; to not even an element

    // The thread's rows are number `row` and the C - 1 after it; those from `present` on are copies of the last.
    __device__ __forceinline__ Columns(const ShapedProblem& p, uint64 row, int present) : problem(p), available(present)
    {
        length = p.actual_length();
        begin = p.elements + p.kept.offset(row, false);
        if constexpr (!is_same<typename Op::Second, Unused>) other = p.second + p.kept.offset(row, true);
        const uint64 addresses = reinterpret_cast<uint64>(begin) | uint64(p.reduced.stride[0]);
        aligned = available == C && addresses % (C * sizeof(T)) == 0;
        misplaced = addresses % alignof(T) != 0;
#pragma unroll
        for (int c = 0; c < C; ++c) rows[c] = Source<Op>(p, begin + min(c, available - 1) * sizeof(T), nullptr, length).row;
    }

    // Lanes lane to lane + K - 1 of one leaf of all the thread's rows, K a power of two.
    template <int K> __device__ __forceinline__ void fold_lanes(uint32 leaf, uint32 lane, A* a) const
    {
        if (misplaced) fold_fetched<Fetch::bytes, K>(leaf, lane, a);
        else if (!aligned) fold_fetched<Fetch::single, K>(leaf, lane, a);
        else if (length < uint64(leaf + 1) * (Lanes * Steps * V)) fold_fetched<Fetch::part, K>(leaf, lane, a);
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

    static __device__ __forceinline__ constexpr uint32 place_of(uint32 lane, uint32 number)
    {
        return (lane + number / Steps) * V + number % Steps * (lanes * V);
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
        LaneCounter<Neighbours<Op, K == 1 || Steps == 1>, log2_of(rounds)> counters[C];
#pragma unroll 1
        for (uint32 round = 0; round < rounds; ++round) {
            Loaded v[at_once][V];
            fetch<How>(v, leaf, lane, round * at_once);
#pragma unroll
            for (int c = 0; c < C; ++c)
                counters[c].push(fold_vectors<How, 0, at_once>(v, leaf, lane, round * at_once, c), round);
        }
#pragma unroll
        for (int c = 0; c < C; ++c) a[c] = counters[c].digits[log2_of(rounds)];
    }

    // Calls `use` for each slot of N vectors from `number` on, with the address of the elements. It goes from one to the
    // next: as many products with the stride would take the registers of elements in flight.
    template <Fetch How, int N, class Use>
    __device__ __forceinline__ void each_element(uint32 leaf, uint32 lane, uint32 number, Use use) const
    {
        const int64 stride = problem.reduced.stride[0];
        const char* address = begin + int64(index_of(leaf, lane, number)) * stride;
#pragma unroll
        for (int t = 0; t < N; ++t) {
            const int there = How == Fetch::whole ? V : present(index_of(leaf, lane, number + t));
#pragma unroll
            for (int s = 0; s < V; ++s, address += stride) {
                // A load under a condition would be followed by its use at once: for what is absent the row's first
                // element is loaded again.
                use(t, s, s < there ? address : begin);
            }
            address += (next_vector(t) - V) * stride;  // `number` is a multiple of N
        }
    }

    // Fetches N vectors from `number` on.
    template <Fetch How, int N>
    __device__ __forceinline__ void fetch(Loaded (&v)[N][V], uint32 leaf, uint32 lane, uint32 number) const
    {
        each_element<How, N>(leaf, lane, number, [&](int t, int s, const char* from) {
            if constexpr (How == Fetch::single || How == Fetch::bytes) {
#pragma unroll
                for (int c = 0; c < C; ++c) {
                    const char* element = from + min(c, available - 1) * sizeof(T);
                    if constexpr (How == Fetch::bytes) v[t][s].elements[c] = load_element<T>(element);
                    else v[t][s].elements[c] = *reinterpret_cast<const T*>(element);
                }
            } else {
                v[t][s].whole = __ldg(reinterpret_cast<const decltype(v[t][s].whole)*>(from));
            }
        });
    }

    // How many elements of the vector at `index` there are.
    __device__ __forceinline__ int present(uint64 index) const
    {
        return index < length ? int(min(length - index, uint64(V))) : 0;
    }

    // Vectors First to First + Count - 1 of those fetched from `number` on. Depth first, for a thread then holds few
    // accumulators at a time.
    template <Fetch How, int First, int Count, int N>
    __device__ __forceinline__ A fold_vectors(const Loaded (&v)[N][V], uint32 leaf, uint32 lane, uint32 number, int c) const
    {
        if constexpr (Count == 1) {
            const uint64 index = index_of(leaf, lane, number + First);
            return fold_slots<0, V>(v[First], index, How == Fetch::whole ? V : present(index), c);
        } else {
            const A a = fold_vectors<How, First, Count / 2>(v, leaf, lane, number, c);
            const A b = fold_vectors<How, First + Count / 2, Count / 2>(v, leaf, lane, number, c);
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

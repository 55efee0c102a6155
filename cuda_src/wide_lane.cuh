// One lane of the tree, of each of a thread's C neighbouring rows; one load takes 16 bytes across these.
#pragma once
#include "columns.cuh"

// Where the folds of a thread's rows wait for those of the next elements: in shared memory if an accumulator takes more than
// four bytes, because there are no registers for them beside so many elements in flight.
template <class Op, int C, int Levels, int Threads> struct WaitingFolds {
    static constexpr bool are_shared = sizeof(typename Op::Accumulator) > 4 && Levels > 0;
    typename Op::Accumulator of[are_shared ? Levels : 1][are_shared ? C : 1][are_shared ? Threads : 1];
};

template <class Op, int C, int Steps, int Threads> struct WideLane {
    using T = typename Op::Input;
    using A = typename Op::Accumulator;
    static constexpr int V = vector_elements<T>;
    static constexpr int apart = int(lanes) * V;                // elements from a step to the next
    static constexpr int at_once = power_within((has_second<Op> ? 4 : 8) / V, Steps);  // steps: 128 bytes in flight
    using Waiting = WaitingFolds<Op, C, log2_of(Steps / at_once), Threads>;

    struct Folds {
        A of[C];
    };

    // Where the thread is in its rows, how many of their elements are left from there on, and where it is in a second array.
    struct Place {
        const char* at;
        int64 left;
        const char* other;

        __device__ __forceinline__ void move(int elements, const Axes& reduced)
        {
            at += elements * reduced.stride[0], left -= elements;
            if constexpr (has_second<Op>) other += elements * reduced.second_stride[0];
        }
    };

    // What N loads bring: a vector across the rows each and, if there is a second array, the one that goes with it.
    template <int N> struct Loaded {
        uint4 v[N];
        ColumnVector<typename Op::Second, C> y[has_second<Op> ? N : 1];
    };

    const ShapedProblem& problem;
    Waiting& waiting;
    uint64 length;

    // Folds one lane of each row, from its first element on.
    template <Fetch How> __device__ __forceinline__ Folds fold(Place place) const
    {
        if constexpr (Op::folds_elements && (How == Fetch::whole || fills_absent<Op>)) return fold_elements<How>(place);
        else return fold_steps<How, Steps>(place);
    }

private:
    // Reduces elements to those that stand for them, place by place: fewer registers and instructions than accumulators take.
    template <Fetch How> __device__ __forceinline__ Folds fold_elements(Place& place) const
    {
        const uint64 index = length - place.left;
        uint4 all;
#pragma unroll 1
        for (int t = 0; t < Steps; t += at_once) {
            Loaded<at_once * V> loaded;
            load<How>(loaded, place, absent_elements<Op>());
            const uint4 these = combined<at_once * V>(loaded.v);
            all = t == 0 ? these : Op::combine_elements(all, these);
        }
        const Loaded<1> one = {all};
        Folds folds;
#pragma unroll
        for (int c = 0; c < C; ++c) folds.of[c] = fold_slots<Fetch::whole, 0, 1>(one, index, 0, c);
        return folds;
    }

    // The elements that stand for those of N vectors.
    template <int N> static __device__ __forceinline__ uint4 combined(const uint4* v)
    {
        if constexpr (N == 1) return v[0];
        else return Op::combine_elements(combined<N / 2>(v), combined<N / 2>(v + N / 2));
    }

    // Folds Count steps; one at a time where elements may be absent and nothing stands for them. In loops, because the compiler
    // would otherwise load all of a lane at once.
    template <Fetch How, int Count> __device__ __forceinline__ Folds fold_steps(Place& place) const
    {
        constexpr bool filled = Waiting::are_shared && fills_absent<Op>;
        constexpr int together = How == Fetch::whole || Waiting::are_shared ? at_once : 1;
        Folds folds;
        if constexpr (Count > together) {
#pragma unroll 1
            for (int half = 0; half < 2; ++half) {
                const Folds b = fold_steps<How, Count / 2>(place);
                join<log2_of(Count / 2 / together)>(folds, b, half > 0);
            }
        } else {
            const int64 left = place.left;
            Loaded<Count * V> loaded;
            load<How>(loaded, place, absent_elements<Op>());
            constexpr Fetch by = filled ? Fetch::whole : How;
#pragma unroll
            for (int c = 0; c < C; ++c) folds.of[c] = fold_slots<by, 0, Count * V>(loaded, length - left, left, c);
        }
        return folds;
    }

    // Of the two halves of some steps the first one waits, and the second one is joined with it.
    template <int Level> __device__ __forceinline__ void join(Folds& folds, const Folds& half, bool is_second) const
    {
        if constexpr (!Waiting::are_shared) {
#pragma unroll
            for (int c = 0; c < C; ++c) folds.of[c] = is_second ? combine_neighbours<Op>(folds.of[c], half.of[c]) : half.of[c];
        } else {
            auto* const waiting_for = waiting.of[Level];
            folds = half;
            if (is_second) {
#pragma unroll
                for (int c = 0; c < C; ++c) folds.of[c] = combine_neighbours<Op>(waiting_for[c][threadIdx.x], half.of[c]);
            } else {
#pragma unroll
                for (int c = 0; c < C; ++c) waiting_for[c][threadIdx.x] = half.of[c];
            }
        }
    }

    // Loads N vectors of a lane, with `absent` in place of absent ones, and moves the place behind them.
    template <Fetch How, int N> __device__ __forceinline__ void load(Loaded<N>& to, Place& place, uint4 absent) const
    {
        const int64 left = place.left;
#pragma unroll
        for (int t = 0; t < N; ++t) {
            const bool present = How == Fetch::whole || t / V * apart + t % V < left;
            to.v[t] = load_vector<How>(present, place.at, absent);
            if constexpr (has_second<Op>) to.y[t].whole = load_vector<How>(present, place.other, make_uint4(0, 0, 0, 0));
            place.move(t % V < V - 1 ? 1 : apart - V + 1, problem.reduced);
        }
    }
    template <Fetch How> static __device__ __forceinline__ uint4 load_vector(bool present, const char* from, uint4 absent)
    {
        const auto* address = reinterpret_cast<const uint4*>(from);
        return How == Fetch::whole ? load_streaming(address) : load_streaming_if(present, address, absent);
    }

    // Folds elements First to First + Count - 1 of those loaded, of the thread's c-th row.
    template <Fetch How, int First, int Count, int N>
    __device__ __forceinline__ A fold_slots(const Loaded<N>& loaded, uint64 index, int64 left, int c) const
    {
        if constexpr (Count == 1) {
            constexpr int further = First / V * apart + First % V;
            if (How != Fetch::whole && further >= left) return Op::identity();
            ColumnVector<T, C> elements;
            elements.whole = loaded.v[First];
            const auto row = Source<Op>(problem, nullptr, nullptr, length, false).row;
            const auto y = loaded.y[has_second<Op> ? First : 0].elements[c];
            return Op::map(ItemOf<Op>{elements.elements[c], y, index + further}, row);
        } else {
            const A a = fold_slots<How, First, Count / 2>(loaded, index, left, c);
            return combine_neighbours<Op>(a, fold_slots<How, First + Count / 2, Count / 2>(loaded, index, left, c));
        }
    }
};

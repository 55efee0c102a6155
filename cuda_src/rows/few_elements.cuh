// The few elements that a thread has of a row, wherever they lie: which they are, how they are loaded, and their fold.
#pragma once
#include "rows/few_offsets.cuh"

template <class T> constexpr uint32 elements_of_a_thread = sizeof(T) <= 8 ? 8 : 4;

// The elements of one thread: E that follow each other in the order of the tree, which is leaf by leaf, and in a leaf lane by lane,
// each lane in 2^step_bits steps: all of a leaf's if there are several leaves. They come in runs that follow each other in the row
// as well, one vector or less.
template <class Op, uint32 E> struct FewElements {
    using T = typename Op::Input;
    using Second = typename Op::Second;
    static constexpr uint32 V = vector_elements<T>, run = V < E ? V : E, runs = E / run, run_bytes = run * sizeof(T);
    uint32 length, starts[runs];
    T x[E];
    Second y[E];

    FewElements() = default;
    __device__ __forceinline__ FewElements(uint32 thread, uint32 step_bits, uint32 length) : length(length)
    {
#pragma unroll
        for (uint32 k = 0; k < runs; ++k) {
            const uint32 vector = V < E ? thread * runs + k : thread / (V / run);
            const uint32 step = vector & (1u << step_bits) - 1;
            const uint32 before = vector / leaf_vectors * (leaf_vectors - lanes);  // vectors of leaves before, less those counted
            starts[k] = made_once(((vector >> step_bits) + step * lanes + before) * V + thread % (V / run) * run);
        }
#pragma unroll
        for (uint32 e = 0; e < E; ++e) x[e] = absent(), y[e] = {};
    }

    // Whether runs are one load each: aligned, contiguous, and present as a whole or not at all.
    static __device__ __forceinline__ bool in_runs(const ShapedProblem& problem, uint32 length)
    {
        const uint32 bits = (low_word(problem.elements) | uint32(problem.apart)) % run_bytes;
        const uint32 cut = (length | uint32(problem.in_run)) % run, apart = uint32(problem.step) ^ uint32(sizeof(T));
        return !has_second<Op> && made_once(bits | cut | apart) == 0;
    }

    // Whether elements are contiguous, and lie in whole pairs that are aligned, of rows along one axis.
    static __device__ __forceinline__ bool in_pairs(const ShapedProblem& problem, uint32 length)
    {
        const uint32 bits = (low_word(problem.elements) | uint32(problem.apart) | length * uint32(sizeof(T))) % pair_bytes;
        return has_pairs && made_once(bits | uint32(problem.step) ^ uint32(sizeof(T))) == 0;
    }

    // 0 if elements are aligned, in both arrays.
    static __device__ __forceinline__ uint32 misaligned(const ShapedProblem& problem)
    {
        uint32 bits = (low_word(problem.elements) | uint32(problem.apart) | uint32(problem.step)) % sizeof(T);
        if constexpr (has_second<Op>) {
            const uint32 step = uint32(problem.reduced.second_stride[0]);
            bits |= (low_word(problem.second) | uint32(problem.second_apart) | step) % sizeof(Second);
        }
        return bits;
    }

    // `Along`: there is one reduced axis, or none.
    template <bool Along> __device__ __forceinline__ void load_runs(const ShapedProblem& problem, const char* begin)
    {
        using W = typename Word<run_bytes>::type;
        union Run { T elements[run]; W word; };
        FewOffsets<runs, Along, false> offsets(problem, starts);
#pragma unroll
        for (uint32 k = 0; k < runs; ++k) {
            Run u;
#pragma unroll
            for (uint32 i = 0; i < run; ++i) u.elements[i] = absent();
            u.word = word_if(starts[k] < length, reinterpret_cast<const W*>(begin + offsets.first[k]), u.word);
#pragma unroll
            for (uint32 i = 0; i < run; ++i) x[k * run + i] = u.elements[i];
        }
    }

    // The same of rows `in_pairs`, two words or four bytes at a time.
    static constexpr bool has_pairs = sizeof(T) <= 4 && !has_second<Op>;
    static constexpr uint32 pair = !has_pairs ? 1 : sizeof(T) < 4 ? 4 / sizeof(T) : 2, pair_bytes = pair * sizeof(T);
    __device__ __forceinline__ void load_pairs(const char* begin)
    {
        using W = typename Word<pair_bytes>::type;
        union Pair { T elements[pair]; W word; };
#pragma unroll
        for (uint32 e = 0; e < E; e += pair) {
            Pair u;
#pragma unroll
            for (uint32 i = 0; i < pair; ++i) u.elements[i] = absent();
            const auto* from = reinterpret_cast<const W*>(begin + starts[e / run] * sizeof(T));
            u.word = word_if(index(e) < length, from + e % run / pair, u.word);
#pragma unroll
            for (uint32 i = 0; i < pair; ++i) x[e + i] = u.elements[i];
        }
    }

    // Loads aligned ones: no load waits for another, and those that no thread has are left out.
    template <bool Along, uint32 First = 0, uint32 Count = 2>
    __device__ __forceinline__ void load(const ShapedProblem& problem, const char* begin, const char* second)
    {
        uint32 numbers[Count];
#pragma unroll
        for (uint32 e = 0; e < Count; ++e) numbers[e] = index(First + e);
        FewOffsets<Count, Along, has_second<Op>> offsets(problem, numbers);
#pragma unroll
        for (uint32 e = 0; e < Count; ++e) x[First + e] = loaded(begin + offsets.first[e], numbers[e] < length, x[First + e]);
        if constexpr (has_second<Op>) {
#pragma unroll
            for (uint32 e = 0; e < Count; ++e) y[First + e] = loaded(second + offsets.second[e], numbers[e] < length, y[First + e]);
        }
        if constexpr (First + Count < E) {
            if (length > First + Count) load<Along, First + Count, First + Count>(problem, begin, second);
        }
    }

    // The same at any address, in compact code. Elements change places in turn, because a register has no number.
    __device__ __forceinline__ void load_anywhere(const ShapedProblem& problem, const char* begin, const char* second)
    {
#pragma unroll 1
        for (uint32 e = 0; e < E; ++e) {
            const uint32 number[1] = {start_of(e / run) + e % run};
            FewOffsets<1, false, has_second<Op>> offset(problem, number);
            put<T>(x, number[0] < length, begin + offset.first[0], absent());
            if constexpr (has_second<Op>) put<Second>(y, number[0] < length, second + offset.second[0], {});
        }
    }

    // Whether elements that change nothing stand for absent ones of a row with a pivot of its own: elements are then mapped side by
    // side, without branches, and the pivot is converted once.
    static constexpr bool maps_absent = Op::has_absent && !is_same<typename Op::Pivot, Unused> && !Op::pivot_is_given;

    // The fold of elements First to First + Count - 1. Depth first, so that a thread holds few accumulators; what no thread has
    // is left out. Where the vectors of several steps meet, their elements interleave.
    template <uint32 First = 0, uint32 Count = E>
    __device__ __forceinline__ typename Op::Accumulator fold(const RowOf<Op>& row) const
    {
        if constexpr (Count == 1) {
            const uint32 i = index(First);
            if constexpr (maps_absent) return Op::map(ItemOf<Op>{i < length ? x[First] : Op::absent(row), y[First], i}, row);
            else return fills_absent<Op> || i < length ? Op::map(ItemOf<Op>{x[First], y[First], i}, row) : Op::identity();
        } else {
            auto a = fold<First, Count / 2>(row);
            if (Count == 2 || length > First + Count / 2) {
                const auto b = fold<First + Count / 2, Count / 2>(row);
                a = Count <= V ? combine_neighbours<Op>(a, b) : Op::combine(a, b);
            }
            return a;
        }
    }

protected:
    static __device__ __forceinline__ uint32 low_word(const char* address) { return uint32(reinterpret_cast<uint64>(address)); }

    // What stands for an element that is absent, and changes nothing if the operator fills_absent.
    static __device__ __forceinline__ T absent()
    {
        if constexpr (fills_absent<Op>) return Op::absent(Unused{});
        else return {};
    }

    // The number of the thread's element `e` in the row, and of the first of run `k`.
    __device__ __forceinline__ uint32 index(uint32 e) const { return starts[e / run] + e % run; }
    __device__ __forceinline__ uint32 start_of(uint32 k) const
    {
        uint32 start = starts[0];
#pragma unroll
        for (uint32 i = 1; i < runs; ++i) start = k == i ? starts[i] : start;
        return start;
    }

    // Loads that the compiler moves behind no branch.
    template <class W> static __device__ __forceinline__ W word_if(bool exists, const W* address, W absent)
    {
        if constexpr (sizeof(W) == vector_bytes) return load_cached_if(exists, address, absent);
        else return load_word_if(exists, address, absent);
    }
    template <class U> static __device__ __forceinline__ U loaded(const char* address, bool exists, U absent)
    {
        using W = typename Word<sizeof(U)>::type;
        union { U element; W word; } u;
        u.element = absent;
        u.word = word_if(exists, reinterpret_cast<const W*>(address), u.word);
        return u.element;
    }
    template <class U>
    static __device__ __forceinline__ void put(U (&elements)[E], bool exists, const char* address, U absent)
    {
        union { uint4 raw; U element; } u;
        u.raw = make_uint4(0, 0, 0, 0);
        u.element = absent;
        if (exists) u.raw = load_bits<U>(address);
#pragma unroll
        for (uint32 k = 0; k + 1 < E; ++k) elements[k] = elements[k + 1];
        elements[E - 1] = u.element;
    }
};

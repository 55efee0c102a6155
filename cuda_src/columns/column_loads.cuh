// What is loaded of columns at a time.
#pragma once
#include "columns/shape.cuh"

// One element of each of C neighbouring rows.
template <class T, int C> union ColumnVector {
    T elements[C];
    typename Word<sizeof(T) * C>::type whole;
};

// What a load brings, in registers.
template <class T, int C> union ColumnWords {
    ColumnVector<T, C> loaded;
    uint32 words[(sizeof(T) * C + 3) / 4];
};

// Where one element of a row after the other lies: along one reduced axis, or along up to three.
template <bool IsStraight> struct Walk {
    static constexpr uint32 most_axes = 1;
    const char* place;

    __device__ __forceinline__ void begin(const ShapedProblem& problem, const char* from, uint64 index, bool of_second)
    {
        place = from + int64(index) * by(problem, of_second);
    }
    __device__ __forceinline__ void step(const ShapedProblem& problem, bool of_second) { place += by(problem, of_second); }

private:
    static __device__ __forceinline__ int64 by(const ShapedProblem& problem, bool of_second)
    {
        return of_second ? problem.reduced.second_stride[0] : problem.step;
    }
};
template <> struct Walk<false> {
    static constexpr uint32 most_axes = 3;
    const char* place;
    uint32 left, left_outside;  // elements up to the end of the innermost axis, and of the next one

    __device__ __forceinline__ void begin(const ShapedProblem& problem, const char* from, uint64 index, bool of_second)
    {
        const ReducedAxes& axes = problem.reduced;
        const auto by = axes.strides(of_second);
        place = from;
#pragma unroll 1
        for (uint32 i = 0; i < axes.count; ++i) {
            const uint64 size = axes.size[i], rest = i + 1 < axes.count ? axes.over(index, i) : 0, number = index - rest * size;
            place += int64(number) * by[i];
            if (i == 0) left = at_most_32_bits(size - number);
            if (i == 1) left_outside = at_most_32_bits(size - number);
            index = rest;
        }
    }
    __device__ __forceinline__ void step(const ShapedProblem& problem, bool of_second)
    {
        const ReducedAxes& axes = problem.reduced;
        const auto by = axes.strides(of_second);
        place += by[0];
        if (--left != 0) return;
        left = at_most_32_bits(axes.size[0]);
        place += by[1] - int64(axes.size[0]) * by[0];
        if (--left_outside != 0) return;
        left_outside = at_most_32_bits(axes.size[1]);
        place += by[2] - int64(axes.size[1]) * by[1];
    }

private:
    // Of more elements than 32 bits count, no walk, which is along a vector, comes to the end.
    static __device__ __forceinline__ uint32 at_most_32_bits(uint64 elements) { return uint32(min(elements, uint64(~0u))); }
};

// The elements of a second array that go with a vector across C rows: element `s` of row `c` is at(s, c).
template <class Op, int C, bool IsStraight> struct ColumnSeconds {
    using Second = typename Op::Second;
    static constexpr int V = vector_elements<typename Op::Input>;
    ColumnVector<Second, C> of[V];

    __device__ __forceinline__ Second at(int s, int c) const { return of[s].elements[c]; }

    // Loads those from `at` on, of which the first `there` exist, of `available` rows; `first` is the row's first. In place of
    // absent ones the first is loaded again. With wide loads along one axis, compact code beside the rest would spill.
    __device__ __forceinline__ void
    load(const ShapedProblem& problem, Walk<IsStraight> at, const char* first, int there, int available)
    {
        constexpr bool is_compact = !IsStraight || C * sizeof(typename Op::Input) <= 4;
        const int64 across = problem.kept.second_stride[0];
        uint64 addresses = reinterpret_cast<uint64>(first);
        for (uint32 i = 0; i < problem.reduced.count; ++i) addresses |= uint64(problem.reduced.second_stride[i]);
        if (across == sizeof(Second) && available == C && addresses % (C * sizeof(Second)) == 0) {
#pragma unroll
            for (int s = 0; s < V; ++s, at.step(problem, true)) load_whole(of[s], s < there ? at.place : first);
        } else if (!is_compact || (addresses | uint64(across)) % alignof(Second) == 0) {
#pragma unroll
            for (int s = 0; s < V; ++s, at.step(problem, true))
#pragma unroll
                for (int c = 0; c < C; ++c) {
                    const char* place = (s < there ? at.place : first) + min(c, available - 1) * across;
                    of[s].elements[c] = is_compact ? load_aligned<Second>(place) : load_element<Second>(place);
                }
        } else {  // which is rare
#pragma unroll 1
            for (int s = 0; s < V; ++s, at.step(problem, true)) {
                ColumnVector<Second, C> x;
#pragma unroll
                for (int c = 0; c < C; ++c)
                    x.elements[c] = load_element<Second>((s < there ? at.place : first) + min(c, available - 1) * across);
#pragma unroll
                for (int k = 0; k < V; ++k)
                    if (k == s) of[k] = x;
            }
        }
    }

private:
    static __device__ __forceinline__ void load_whole(ColumnVector<Second, C>& v, const char* from)
    {
        v.whole = __ldg(reinterpret_cast<const decltype(v.whole)*>(from));
    }
};

// Whether all elements of what is fetched exist, or only some.
enum class Fetch { whole, part };

// What is loaded of columns at a time, and by whom.
#pragma once
#include "shape.cuh"

// The largest power of two that is at most both, or 1.
__host__ __device__ constexpr int power_within(int a, int b) { return a <= 1 || b <= 1 ? 1 : 2 * power_within(a / 2, b / 2); }

// One element of each of C neighbouring rows.
template <class T, int C> union ColumnVector {
    T elements[C];
    typename Word<sizeof(T) * C>::type whole;
};

// The elements of a second array that go with a vector across C rows: element `s` of row `c` is at(s, c). There are more small
// elements than a thread has registers for, so each of these is loaded where it is used.
template <class Op, int C, bool Early = vector_elements<typename Op::Input> * C <= 32> struct ColumnSeconds {
    using Second = typename Op::Second;
    static constexpr int V = vector_elements<typename Op::Input>;
    ColumnVector<Second, C> of[V];

    __device__ __forceinline__ Second at(int s, int c) const { return of[s].elements[c]; }

    // Puts each row in the place of the one before.
    __device__ __forceinline__ void move_up()
    {
#pragma unroll
        for (int s = 0; s < V; ++s)
#pragma unroll
            for (int c = 1; c < C; ++c) of[s].elements[c - 1] = of[s].elements[c];
    }

    // Loads those from `from` on: the first `there` elements of the first `available` rows; further rows get copies of the
    // last. With `placed` they are all aligned.
    __device__ __forceinline__ void load(const ShapedProblem& problem, const char* from, int there, int available, bool placed)
    {
        const int64 step = problem.reduced.second_stride[0], across = problem.kept.second_stride[0];
        const uint64 addresses = reinterpret_cast<uint64>(from) | uint64(step);
        if (C > 1 && available == C && across == sizeof(Second) && addresses % (C * sizeof(Second)) == 0) {
#pragma unroll
            for (int s = 0; s < V; ++s)
                if (s < there) of[s].whole = *reinterpret_cast<const decltype(of[s].whole)*>(from + s * step);
            return;
        }
#pragma unroll
        for (int s = 0; s < V; ++s)
#pragma unroll
            for (int c = 0; c < C; ++c) {
                const char* place = from + s * step + min(c, available - 1) * across;
                if (s < there) of[s].elements[c] = placed ? *reinterpret_cast<const Second*>(place) : load_element<Second>(place);
            }
    }
};
template <class Op, int C> struct ColumnSeconds<Op, C, false> {
    const char* first;
    int64 step, across;
    int last;

    __device__ __forceinline__ void load(const ShapedProblem& problem, const char* from, int, int available, bool)
    {
        first = from, step = problem.reduced.second_stride[0], across = problem.kept.second_stride[0], last = available - 1;
    }
    __device__ __forceinline__ typename Op::Second at(int s, int c) const
    {
        return load_element<typename Op::Second>(first + s * step + min(c, last) * across);
    }
    __device__ __forceinline__ void move_up()
    {
        if (last > 0) first += across, --last;
        asm volatile("" : "+l"(step));  // or the compiler would keep its multiples for the next row
    }
};

// How elements are fetched. whole: all exist, and those of the C rows come in one load. part: the same, but the row may end
// among them. single: each by itself. bytes: byte by byte where that is needed.
enum class Fetch { whole, part, single, bytes };

// Loads one element of each of C rows, of which `available` exist; further rows get copies of the last.
template <Fetch How, class T, int C>
__device__ __forceinline__ void load_across(ColumnVector<T, C>& v, const char* from, int available)
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

// Who copies, 16 bytes at a time, whatever rows they belong to, where addresses allow it. warps: each warp the part of the tile
// that its threads have, whose elements lie anywhere. teams: each team the whole tile, whose elements are contiguous; a team is
// a warp, or as many warps as stand side by side. nobody: strides never allow it. column_tiles.Together.copied_by decides.
enum class CopiedBy { nobody, warps, teams };

#if __CUDA_ARCH__ >= 800
// Copies the first `bytes` of 16 bytes, and zeros in place of the others. A few bytes, which are left only at the end of all
// elements, go one by one, because memcheck counts a 16-byte copy of fewer bytes as one of all 16.
__device__ __forceinline__ void copy_front(char* shared, const char* from, int32 bytes)
{
    if (uint32(bytes) % vector_bytes == 0) return copy_async_if(bytes > 0, shared, from);
#pragma unroll 1
    for (int32 i = 0; i < int32(vector_bytes); ++i) shared[i] = i < bytes ? from[i] : 0;
}
#endif

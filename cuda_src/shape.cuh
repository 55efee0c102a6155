// Arrays of any shape: which row a number stands for, where it lies, and how its vectors are fetched.
#pragma once
#include "block.cuh"

constexpr uint32 max_axes = 8;

// Axes of both arrays, the innermost first; strides in bytes. In the order of kernels._AXES.
struct Axes {
    uint64 count;
    uint64 size[max_axes];
    int64 stride[max_axes];
    int64 second_stride[max_axes];

    // Bytes from the first element to element `index`, in the first or the second array.
    __device__ __forceinline__ int64 offset(uint64 index, bool of_second) const
    {
        const int64* by = of_second ? second_stride : stride;
        if (count <= 1) return int64(index) * by[0];
        int64 sum = 0;
#pragma unroll 1
        for (uint32 i = 0; i + 1 < count; ++i) {
            const uint64 rest = (index | size[i]) >> 32 == 0 ? uint32(index) / uint32(size[i]) : index / size[i];
            sum += int64(index - rest * size[i]) * by[i];
            index = rest;
        }
        return sum + int64(index) * by[count - 1];
    }
};

// Where the rows lie: along one axis, which most problems come down to, or along several. offset() gives the bytes from the
// first row to row `first` + `past`: along one axis two instructions, where rows have `first` in common.
struct OneAxis {
    static __device__ __forceinline__ int64 offset(const Axes& axes, uint64 first, uint32 past, bool of_second)
    {
        const int64 stride = of_second ? axes.second_stride[0] : axes.stride[0];
        return int64(first) * stride + int64(past) * stride;
    }
};
struct AnyAxes {
    static __device__ __forceinline__ int64 offset(const Axes& axes, uint64 first, uint32 past, bool of_second)
    {
        return axes.offset(first + past, of_second);
    }
};

// The argument of the entries for rows. `low` and `high` bound the bytes of the first array, relative to `elements`.
struct ShapedProblem : Problem {
    int64 low, high;
    Axes kept, reduced;
};

// Whether in every row the second array's elements lie a fixed step apart and aligned; true if there is none.
template <class Op> __device__ __forceinline__ bool seconds_are_placed(const ShapedProblem& problem)
{
    if constexpr (is_same<typename Op::Second, Unused>) {
        return true;
    } else {
        uint64 bits = reinterpret_cast<uint64>(problem.second) | uint64(problem.reduced.second_stride[0]);
        for (uint32 i = 0; i < problem.kept.count; ++i) bits |= uint64(problem.kept.second_stride[i]);
        return problem.reduced.count <= 1 && bits % alignof(typename Op::Second) == 0;
    }
}

// One row of a shaped problem: a Source whose elements, and those of its second array, may lie in any way.
template <class Op, class Kept, Begin Where = Begin::anywhere> struct ShapedSource : Source<Op, Where> {
    static constexpr bool may_be_cut = false;
    const ShapedProblem& problem;
    const char* other;

    __device__ __forceinline__ ShapedSource(const ShapedProblem& p, uint64 row) : ShapedSource(p, row, p.actual_length()) {}

    // For callers that have read the length before: the compiler would read it again for every row.
    __device__ __forceinline__ ShapedSource(const ShapedProblem& p, uint64 row, uint64 length)
        : Source<Op, Where>(p, p.elements + Kept::offset(p.kept, row, 0, false), nullptr, length), problem(p)
    {
        if constexpr (!is_same<typename Op::Second, Unused>) other = p.second + Kept::offset(p.kept, row, 0, true);
    }

    // The row whose elements begin at `begin`, and those of the second array at `second`; without its pivot.
    __device__ __forceinline__ ShapedSource(const ShapedProblem& p, const char* begin, const char* second, uint64 length)
        : Source<Op, Where>(p, begin, nullptr, length, false), problem(p), other(second) {}

    __device__ __forceinline__ const char* second_at(uint64 index) const
    {
        return other + problem.reduced.offset(index, true);
    }
    __device__ __forceinline__ int64 second_step() const { return problem.reduced.second_stride[0]; }
};

// Rows whose elements are contiguous, and which all begin and end at multiples of 16 bytes.
template <class KeptAxes> struct AlignedRows {
    using Kept = KeptAxes;
    static constexpr Begin where = Begin::aligned;
    static constexpr bool are_contiguous = true;
};

// Other rows are treated in the fastest way that is allowed. "inside": any vectors, if none of their 16-byte blocks lies partly
// outside the array. "edge": any vectors. In place of both, words are loaded one by one where they are aligned: a load costs no
// more than shifting what neighbours loaded.

// Rows whose elements are contiguous, at any address.
template <class KeptAxes> struct ContiguousRows {
    using Kept = KeptAxes;
    static constexpr Begin where = Begin::anywhere;
    static constexpr bool are_contiguous = true;

    // Whether elements are to be loaded one by one.
    template <class T> static __device__ __forceinline__ bool by_element(const ShapedProblem& p)
    {
        return are_words<T> && row_addresses(p) % sizeof(T) == 0;
    }
    template <class S> static __device__ __forceinline__ uint4 fetch_elements(const S& source, uint64 index, int32 bytes)
    {
        using T = typename S::T;
        const auto absent = absent_elements<typename S::Operator>();
        return load_elements<T, are_words<T>>(source.begin + index * sizeof(T), bytes, absent);
    }
    // Whether all 16-byte blocks that `count` elements from number `first` on touch lie inside the array.
    template <class S> static __device__ __forceinline__ bool inside(const S& source, uint64 first, uint64 count)
    {
        const char* begin = source.begin + first * sizeof(typename S::T);
        return begin - vector_bytes >= source.problem.elements + source.problem.low &&
               begin + count * sizeof(typename S::T) + vector_bytes <= source.problem.elements + source.problem.high;
    }
    // The vector whose first element has number `index`; `bytes` bytes of it, at most 16, are the row's.
    template <class S> static __device__ __forceinline__ uint4 fetch_inside(const S& source, uint64 index, int32 bytes)
    {
        return load_inside(source.begin + index * sizeof(typename S::T), bytes);
    }
    template <class S> static __device__ __forceinline__ uint4 fetch_edge(const S& source, uint64 index, int32 bytes)
    {
        const char *low = source.problem.elements + source.problem.low, *high = source.problem.elements + source.problem.high;
        return load_shifted(source.begin + index * sizeof(typename S::T), bytes, [=](bool wanted, const uint4* block) {
            return wanted ? load_within(reinterpret_cast<const char*>(block), low, high) : make_uint4(0, 0, 0, 0);
        });
    }

private:
    // The bits that are set in the address of any row's first element, which tell how all rows are aligned.
    static __device__ __forceinline__ uint64 row_addresses(const ShapedProblem& p)
    {
        uint64 bits = reinterpret_cast<uint64>(p.elements);
        for (uint32 i = 0; i < p.kept.count; ++i) bits |= uint64(p.kept.stride[i]);
        return bits;
    }
};

// Rows whose elements lie in any way: one load for each element, and nothing else is read.
template <class KeptAxes> struct StridedRows {
    using Kept = KeptAxes;
    static constexpr Begin where = Begin::anywhere;
    static constexpr bool are_contiguous = false;
    template <class T> static __device__ __forceinline__ bool by_element(const ShapedProblem&) { return true; }
    template <class S> static __device__ __forceinline__ bool inside(const S&, uint64, uint64) { return true; }
    template <class S> static __device__ __forceinline__ uint4 fetch_elements(const S& source, uint64 index, int32 bytes)
    {
        using T = typename S::T;
        constexpr int32 V = vector_elements<T>, size = sizeof(T);
        union { uint4 raw; T elements[V]; } u;
        u.raw = absent_elements<typename S::Operator>();
#pragma unroll
        for (int32 i = 0; i < V; ++i)
            if (i * size < bytes)
                u.elements[i] = load_element<T>(source.begin + source.problem.reduced.offset(index + i, false));
        return u.raw;
    }
    template <class S> static __device__ __forceinline__ uint4 fetch_inside(const S& source, uint64 index, int32 bytes)
    {
        return fetch_elements(source, index, bytes);
    }
    template <class S> static __device__ __forceinline__ uint4 fetch_edge(const S& source, uint64 index, int32 bytes)
    {
        return fetch_elements(source, index, bytes);
    }
};

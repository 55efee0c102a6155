// Arrays of any shape: which row a number stands for, where it lies, and how its vectors are fetched.
#pragma once
#include "columns/axes.cuh"
#include "tree/block.cuh"

// The argument of the entries for rows. `low` and `high` bound the bytes of the first array, relative to `elements`. `apart` and
// `second_apart` have the bits, of the lowest four, that are set in any stride but the innermost reduced axis's: they tell how the
// runs of elements along that axis are aligned. The upper half of `apart` is the lower one of the innermost kept axis's stride. Of
// rows that are not `far`, all elements are near each other, in both arrays. Rows are numbered in the order of `kept`; if that is
// not the results' order, they are `permuted`, which only columns are: its upper half counts the axes of the results, which stand
// behind as many others as its lower half says, or else are the kept ones. Where `joined` is more than 1, so many columns in order
// are parts of a row: `rows` are the results', and `length` is that of a part. Their partials are folded in runs of `run` first;
// of strided rows in tiles, these are taken from so many groups in turn, or it is a `StagedCut`. The last `folders` blocks fold partials.
//
// A launch waits for each line of 64 bytes of its argument. So first come the words that the kernel for few elements reads of the
// innermost reduced axis, its `step` and size `in_run`, which `reduced` has too, then the axes' numbers and the innermost kept one.
struct ShapedProblem : Problem {
    uint64 apart;
    int64 step;
    uint64 in_run, second_apart;
    union {
        KeptAxes kept;
        ReducedAxes reduced;
        EachAxis<int64, 6, words_of_kept> result_stride;  // of the kept axes, in results
        uint64 axes[2 + max_axes * (words_of_kept + 4)];
    };
    int64 low, high;
    uint64 far, permuted, joined, run, folders;

    // The number that row `row` has among the results.
    __device__ __forceinline__ uint64 place(uint64 row) const
    {
        if (permuted == 0) return row;
        const uint32 first = uint32(permuted);
        return uint64(kept.offset_along(result_stride, row, first, first + uint32(permuted >> 32)));
    }
    __device__ __forceinline__ uint64 columns() const { return rows * joined; }

    // Which part of its row a column is; parts have a leaf at least, so that 32 bits count them.
    __device__ __forceinline__ uint64 part(uint64 column) const { return joined == 1 ? 0 : uint32(column) % uint32(joined); }
};

// Whether in every row the second array's elements lie a fixed step apart and aligned; true if there is none.
template <class Op> __device__ __forceinline__ bool seconds_are_placed(const ShapedProblem& problem)
{
    if constexpr (is_same<typename Op::Second, Unused>) {
        return true;
    } else {
        const uint64 bits = reinterpret_cast<uint64>(problem.second) | problem.second_apart | problem.reduced.second_stride[0];
        return problem.reduced.count <= 1 && bits % alignof(typename Op::Second) == 0;
    }
}

// One row of a shaped problem: a Source whose elements, and those of its second array, may lie in any way.
template <class Op, Begin Where = Begin::anywhere> struct ShapedSource : Source<Op, Where> {
    static constexpr bool may_be_cut = false, are_neighbours = false;
    const ShapedProblem& problem;
    const char* other;

    __device__ __forceinline__ ShapedSource(const ShapedProblem& p, uint64 row) : ShapedSource(p, row, p.actual_length()) {}

    // For callers that have read the length before: the compiler would read it again for every row.
    __device__ __forceinline__ ShapedSource(const ShapedProblem& p, uint64 row, uint64 length)
        : Source<Op, Where>(p, p.elements + offset(p, row), nullptr, length), problem(p)
    {
        if constexpr (!is_same<typename Op::Second, Unused>) other = p.second + p.kept.offset(row, true);
    }

    // The row whose elements begin at `begin`, and those of the second array at `second`; without its pivot.
    __device__ __forceinline__ ShapedSource(const ShapedProblem& p, const char* begin, const char* second, uint64 length)
        : Source<Op, Where>(p, begin, nullptr, length, false), problem(p), other(second) {}

    __device__ __forceinline__ const char* second_at(uint64 index) const
    {
        return other + problem.reduced.offset(index, true);
    }
    __device__ __forceinline__ int64 second_step() const { return problem.reduced.second_stride[0]; }

private:
    // Where aligned rows lie along one axis, its stride is loaded early, for its place is known. Others lack the registers for it.
    static __device__ __forceinline__ int64 offset(const ShapedProblem& p, uint64 row)
    {
        if (Where == Begin::aligned && p.kept.count <= 1) return int64(row) * p.kept.stride[0];
        return p.kept.offset(row, false);
    }
};

// Rows whose elements are contiguous, and which all begin and end at multiples of 16 bytes.
struct AlignedRows {
    static constexpr Begin where = Begin::aligned;
    static constexpr bool are_contiguous = true;
};

// Other rows are treated in the fastest way that is allowed. "inside": any vectors, if none of their 16-byte blocks lies partly
// outside the array; only if has_inside. "edge": any vectors. In place of both, words are loaded one by one where they
// are aligned: a load costs no more than shifting what neighbours loaded.

// Rows whose elements are contiguous, at any address.
struct ContiguousRows {
    static constexpr Begin where = Begin::anywhere;
    static constexpr bool are_contiguous = true;
    template <class T> static constexpr bool has_inside = !are_words<T>;

    // Whether elements are to be loaded one by one.
    template <class T> static __device__ __forceinline__ bool by_element(const ShapedProblem& p)
    {
        return are_words<T> && (reinterpret_cast<uint64>(p.elements) | p.apart) % sizeof(T) == 0;
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
        return all_inside<typename S::T>(source.problem, begin, begin + count * sizeof(typename S::T));
    }
    // The same of rows that begin at `lowest` or later, and end at `end` or before.
    template <class T, class P>
    static __device__ __forceinline__ bool all_inside(const P& p, const char* lowest, const char* end)
    {
        return lowest - vector_bytes >= p.elements + p.low && end + vector_bytes <= p.elements + p.high;
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
};

// Rows whose elements lie in any way. "inside": in every row the elements come in runs of whole vectors at multiples of 16 bytes,
// which one load each brings. Otherwise there is a load for each element, and nothing else is read.
struct StridedRows {
    static constexpr Begin where = Begin::anywhere;
    static constexpr bool are_contiguous = false;
    template <class T> static constexpr bool has_inside = true;

    // Whether each vector's elements are one load, if `T` are those of the first array.
    template <class T> static __device__ __forceinline__ bool in_vectors(const ShapedProblem& p)
    {
        return p.reduced.stride[0] == sizeof(T) && p.reduced.size[0] % vector_elements<T> == 0 &&
               (reinterpret_cast<uint64>(p.elements) | p.apart) % vector_bytes == 0;
    }
    // Whether all elements are aligned, but do not come in vectors, and rows have some.
    template <class T> static __device__ __forceinline__ bool by_element(const ShapedProblem& p)
    {
        return (reinterpret_cast<uint64>(p.elements) | p.apart | p.reduced.stride[0]) % sizeof(T) == 0 && is_near(p) &&
               !in_vectors<T>(p) && p.actual_length() > 0;
    }
    template <class T> static __device__ __forceinline__ bool all_inside(const ShapedProblem& p, const char*, const char*)
    {
        return in_vectors<T>(p) && is_near(p);
    }
    template <class S> static __device__ __forceinline__ uint4 fetch_elements(const S& source, uint64 index, int32 bytes)
    {
        using T = typename S::T;
        constexpr uint32 V = vector_elements<T>;
        uint32 past[V];
        int32 offsets[V];
#pragma unroll
        for (uint32 i = 0; i < V; ++i) past[i] = min(uint32(index) + i, uint32(source.row.length) - 1);
        source.problem.reduced.template near_offsets<V>(0, past, offsets);
        VectorOf<T> u;
#pragma unroll
        for (uint32 i = 0; i < V; ++i) u.elements[i] = load_aligned<T>(source.begin + offsets[i]);
        return join_bytes(u.raw, absent_elements<typename S::Operator>(), bytes);
    }
    template <class S> static __device__ __forceinline__ uint4 fetch_inside(const S& source, uint64 index, int32 bytes)
    {
        uint32 past[1] = {uint32(index)};
        int32 offset[1];
        source.problem.reduced.template near_offsets<1>(0, past, offset);
        return load_cached_if(bytes > 0, reinterpret_cast<const uint4*>(source.begin + offset[0]));
    }
    // In compact code, at any address.
    template <class S> static __device__ __forceinline__ uint4 fetch_edge(const S& source, uint64 index, int32 bytes)
    {
        using T = typename S::T;
        const auto at = [&](uint32 i) { return source.begin + source.problem.reduced.offset(index + i, false); };
        return load_anyhow<T, vector_elements<T>>(bytes / int32(sizeof(T)), at);
    }

private:
    // Whether a row of at most one leaf ends near where it begins.
    static __device__ __forceinline__ bool is_near(const ShapedProblem& p)
    {
        return p.far == 0 || p.reduced.is_near(0, leaf_bytes);
    }
};

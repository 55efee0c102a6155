// What a kernel is given, and one row of it: where its elements lie and what they share.
#pragma once
#include "operators/operator.cuh"
#include "base/ptx.cuh"
#include "tree/warp.cuh"

constexpr uint32 vector_bytes = 16;
constexpr uint32 steps = 8;  // vectors of a leaf that each lane loads
constexpr uint32 leaf_vectors = lanes * steps;
constexpr uint32 leaf_bytes = leaf_vectors * vector_bytes;
template <class T> constexpr uint32 vector_elements = vector_bytes / sizeof(T);
template <class T> constexpr uint32 leaf_elements = leaf_bytes / sizeof(T);

// How many leaves a row of so many elements has.
template <class T> __device__ __forceinline__ uint64 leaves_of(uint64 length)
{
    return (length + leaf_elements<T> - 1) / leaf_elements<T>;
}

// The argument of every entry: fields of eight bytes each, in the order of kernels.FIELDS.
struct Problem {
    const char* elements;         // of the first array
    char* result;                 // plane k of the results starts k * rows elements after it
    const char* second;           // of the second array, null if there is none
    char* workspace;
    const uint64* device_length;  // if not null, the length is read from here when the kernel runs
    uint64 length;                // of a row; with device_length its upper bound
    uint64 rows;
    uint64 count;                 // as the kernel says: tiles a block folds, or partials, or blocks that share a row
    uint64 initial[2];

    __device__ __forceinline__ uint64 actual_length() const
    {
        return device_length == nullptr ? length : min(*device_length, length);
    }
};

// One element, at any address; byte by byte where it is not aligned.
template <class T> __device__ __forceinline__ T load_element(const char* address)
{
    if (reinterpret_cast<uint64>(address) % alignof(T) == 0) return *reinterpret_cast<const T*>(address);
    union { T whole; char bytes[sizeof(T)]; } u;
#pragma unroll
    for (uint32 i = 0; i < sizeof(T); ++i) u.bytes[i] = address[i];
    return u.whole;
}

// How the elements of a second array lie. anyhow: at any addresses. a_step_apart: each a fixed step after the one before, all
// aligned. in_vectors: contiguous besides, and so that those that go with a whole vector of the first array are one load.
enum class SecondsLie { anyhow, a_step_apart, in_vectors };

// Where a launch's arrays begin. aligned: at multiples of 16 bytes, and where there is a second array, so that its
// elements that go with a vector of the first are one load; rows too, whose lengths are whole vectors. anywhere: at any
// address. Each kernel is compiled for one of them, because the code for all addresses is far more than that for
// aligned ones. The host chooses, by `Problem.aligned` and each launch's addresses. strided, in row operations:
// elements of a row lie a step apart; kept: what would be written is kept.
enum class Begin { aligned, anywhere, strided, kept };

// One row, or a whole array seen as one row: contiguous elements from `begin` on.
template <class Op, Begin Where = Begin::anywhere> struct Source {
    using Operator = Op;
    static constexpr bool is_aligned = Where == Begin::aligned;
    static constexpr bool may_be_cut = is_aligned;  // whether the last vector may lie in part past the end
    static constexpr bool waits_for_all = false;    // FoldedWhenThere
    static constexpr bool are_neighbours = true;    // whether the second array's elements are contiguous
    using T = typename Op::Input;
    using Second = typename Op::Second;
    const char* begin;
    const char* second;
    RowOf<Op> row;

    // With `with_pivot` an operator's pivot is read from memory, which must be after wait_for_prerequisites; without it the
    // caller sets it.
    __device__ __forceinline__
    Source(const Problem& problem, const char* first, const char* other, uint64 length, bool with_pivot = true)
        : begin(first), second(other)
    {
        row.length = length;
        row.initial[0] = problem.initial[0];
        row.initial[1] = problem.initial[1];
        if (with_pivot) load_pivot(problem);
    }
    __device__ __forceinline__ void load_pivot(const Problem& problem)
    {
        if constexpr (!is_same<typename Op::Pivot, Unused>)
            if (row.length > 0) row.pivot = Op::pivot(load_element<T>(Op::pivot_is_given ? problem.second : begin));
    }

    __device__ __forceinline__ uint64 leaf_count() const { return leaves_of<T>(row.length); }

    // Where element `index` of the second array lies, how many bytes from one to the next, and whether that step is the same
    // everywhere and all are aligned.
    static constexpr SecondsLie seconds_lie = is_aligned ? SecondsLie::in_vectors : SecondsLie::a_step_apart;
    __device__ __forceinline__ const char* second_at(uint64 index) const { return second + index * sizeof(Second); }
    __device__ __forceinline__ int64 second_step() const { return sizeof(Second); }
    __device__ __forceinline__ bool seconds_are_placed() const
    {
        return reinterpret_cast<uint64>(second) % alignof(Second) == 0;
    }
    // Whether they lie in vectors as well.
    __device__ __forceinline__ bool seconds_are_vectors() const
    {
        return reinterpret_cast<uint64>(second) % (vector_elements<T> * sizeof(Second)) == 0;
    }

    __device__ __forceinline__ typename Op::Accumulator map(T x, Second y, uint64 index) const
    {
        return Op::map(ItemOf<Op>{x, y, index}, row);
    }
};

// A row without a place in memory, for what is folded in registers.
template <class Op> struct RowAlone {
    RowOf<Op> row;
};

// The same source, with a pivot that the compiler must take to be made here. Otherwise it converts the pivot, and so waits for
// it, before the loads that were issued since.
template <class S> __device__ __forceinline__ S with_pivot_from_here(S source)
{
    using P = decltype(source.row.pivot);
    if constexpr (!is_same<P, Unused>) {
        union { P pivot; uint32 words[(sizeof(P) + 3) / 4]; } u;
        u.pivot = source.row.pivot;
#pragma unroll
        for (uint32 i = 0; i < (sizeof(P) + 3) / 4; ++i) asm volatile("" : "+r"(u.words[i]));
        source.row.pivot = u.pivot;
    }
    return source;
}

// All elements of a contiguous array. Waits for the prerequisites if it has to read the pivot or the length.
template <class Op, Begin Where = Begin::anywhere>
__device__ __forceinline__ Source<Op, Where> whole_array(const Problem& problem)
{
    if (!is_same<typename Op::Pivot, Unused> || problem.device_length != nullptr) wait_for_prerequisites();
    return Source<Op, Where>(problem, problem.elements, problem.second, problem.actual_length());
}

// Writes the results of a row, the first of them to `results`. One thread calls it, after wait_for_prerequisites.
template <class Op>
__device__ __forceinline__ void
store_results(const Problem& problem, const RowOf<Op>& row, typename Op::Result* results, typename Op::Accumulator root)
{
#pragma unroll
    for (int k = 0; k < Op::results; ++k)
        results[k * problem.rows] = row.length == 0 ? Op::empty(row, k) : Op::finish(root, row, k);
}

// The same for row `number`.
template <class Op>
__device__ __forceinline__ void
store_result(const Problem& problem, const RowOf<Op>& row, uint64 number, typename Op::Accumulator root)
{
    store_results<Op>(problem, row, reinterpret_cast<typename Op::Result*>(problem.result) + number, root);
}

// What a kernel is given, and one row of it: where its elements lie and what they share.
#pragma once
#include "operator.cuh"
#include "ptx.cuh"

constexpr uint32 lanes = 32;
constexpr uint32 vector_bytes = 16;
constexpr uint32 steps = 8;  // vectors a lane loads of a leaf
constexpr uint32 leaf_vectors = lanes * steps;
constexpr uint32 leaf_bytes = leaf_vectors * vector_bytes;
template <class T> constexpr uint32 vector_elements = vector_bytes / sizeof(T);
template <class T> constexpr uint32 leaf_elements = leaf_bytes / sizeof(T);

// Leaves of a row of so many elements.
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
    const uint64* device_length;  // where the length is read when the kernel runs, null: it is `length`
    uint64 length;                // of a row; with device_length the most that it may be
    uint64 rows;
    uint64 count;                 // tiles a block folds, or partials, or blocks that share a row: as the kernel says
    uint64 initial[2];

    __device__ __forceinline__ uint64 actual_length() const
    {
        return device_length == nullptr ? length : min(*device_length, length);
    }
};

// One element, at any address: byte by byte where it is not at a multiple of what it is loaded by.
template <class T> __device__ __forceinline__ T load_element(const char* address)
{
    if (reinterpret_cast<uint64>(address) % alignof(T) == 0) return *reinterpret_cast<const T*>(address);
    union { T whole; char bytes[sizeof(T)]; } u;
#pragma unroll
    for (uint32 i = 0; i < sizeof(T); ++i) u.bytes[i] = address[i];
    return u.whole;
}

// How the elements of a second array lie: at any addresses; each a step after the one before, at multiples of their
// alignment; or as those of the first do whose vectors are whole, so that what goes with such a vector is one load.
enum class SecondsLie { anyhow, a_step_apart, in_vectors };

// One row, or a whole array seen as one: elements one after the other from `begin` on, at any address.
template <class Op> struct Source {
    using Operator = Op;
    using T = typename Op::Input;
    using Second = typename Op::Second;
    const char* begin;
    const char* second;
    RowOf<Op> row;

    // Without `with_pivot` the row's pivot is still to be set.
    __device__ __forceinline__
    Source(const Problem& problem, const char* first, const char* other, uint64 length, bool with_pivot = true)
        : begin(first), second(other)
    {
        row.length = length;
        row.initial[0] = problem.initial[0];
        row.initial[1] = problem.initial[1];
        if constexpr (!is_same<typename Op::Pivot, Unused>)
            if (with_pivot && length > 0) row.pivot = Op::pivot(load_element<T>(first));
    }

    __device__ __forceinline__ uint64 leaf_count() const { return leaves_of<T>(row.length); }

    // Where the second array's element of number `index` lies, how many bytes from one to the next, and whether that is the
    // same everywhere and keeps to their alignment.
    static constexpr SecondsLie seconds_lie = SecondsLie::a_step_apart;
    __device__ __forceinline__ const char* second_at(uint64 index) const { return second + index * sizeof(Second); }
    __device__ __forceinline__ int64 second_step() const { return sizeof(Second); }
    __device__ __forceinline__ bool seconds_are_placed() const
    {
        return reinterpret_cast<uint64>(second) % alignof(Second) == 0;
    }
    // Whether they lie in vectors, too.
    __device__ __forceinline__ bool seconds_are_vectors() const
    {
        return reinterpret_cast<uint64>(second) % (vector_elements<T> * sizeof(Second)) == 0;
    }

    __device__ __forceinline__ typename Op::Accumulator map(T x, Second y, uint64 index) const
    {
        return Op::map(ItemOf<Op>{x, y, index}, row);
    }
};

// The same source, with a pivot that the compiler takes for made here: else it converts it, and so waits for it, before the
// loads that were issued since.
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

// All elements of an array that is contiguous.
template <class Op> __device__ __forceinline__ Source<Op> whole_array(const Problem& problem)
{
    if (!is_same<typename Op::Pivot, Unused> || problem.device_length != nullptr) wait_for_prerequisites();
    return Source<Op>(problem, problem.elements, problem.second, problem.actual_length());
}

// Writes the results of row `number`, by the one thread that calls it.
template <class Op>
__device__ __forceinline__ void
store_result(const Problem& problem, const RowOf<Op>& row, uint64 number, typename Op::Accumulator root)
{
    auto* results = reinterpret_cast<typename Op::Result*>(problem.result) + number;
#pragma unroll
    for (int k = 0; k < Op::results; ++k)
        results[k * problem.rows] = row.length == 0 ? Op::empty(row, k) : Op::finish(root, row, k);
}

// Rows along any axis and of any stride: neighbouring threads take neighbouring rows, so that what lies side by side in memory
// is read side by side. A thread folds a run of a row's units in the order of the tree; a unit is what one lane has of a leaf
// elsewhere, up to eight vectors. Shared memory keeps what a thread has read; what does not fit is read again.
#pragma once
#include "rowops/held.cuh"

constexpr uint32 most_column_threads = 512;
constexpr uint64 of_columns = 32;  // in problem.cut

struct ColumnCut {
    uint32 column_bits, turns, kept;  // log2 of the rows of a block; units of a thread, and how many of them are kept
    __device__ __forceinline__ explicit ColumnCut(uint64 cut)
        : column_bits(uint32(cut) >> 6 & 7), turns(1u << (uint32(cut) >> 9 & 31)), kept(uint32(cut) >> 14) {}
};

// A binary counter of a thread, for any number of values in order.
template <class Op> struct ThreadCounter {
    typename Op::Accumulator digits[26];
    uint32 count = 0;

    __device__ __forceinline__ void push(typename Op::Accumulator value)
    {
        uint32 k = 0;
        for (uint32 rest = count++; rest & 1u; rest >>= 1, ++k) value = Op::combine(digits[k], value);
        digits[k] = value;
    }
    // What is missing past the right edge is absent.
    __device__ __forceinline__ typename Op::Accumulator result() const
    {
        auto value = Op::identity();
        bool is_first = true;
        for (uint32 k = 0; count >> k; ++k)
            if (count >> k & 1u) {
                value = is_first ? digits[k] : Op::combine(digits[k], value);
                is_first = false;
            }
        return value;
    }
};

constexpr uint32 words_at_once = 4;
using ColumnWords = uint32[words_at_once][most_column_threads / 2];

// The fold of the values of a column's groups of threads, which group 0 holds. Every thread of the block calls it.
template <class Op>
__device__ __forceinline__ typename Op::Accumulator
fold_groups(typename Op::Accumulator value, ColumnWords& words, uint32 column_bits)
{
    constexpr uint32 size = sizeof(typename Op::Accumulator) / 4;
    union U { typename Op::Accumulator whole; uint32 words[size]; __device__ U() {} };
    const uint32 group = threadIdx.x >> column_bits, groups = blockDim.x >> column_bits;
    const uint32 column = threadIdx.x & (1u << column_bits) - 1;
#pragma unroll 1
    for (uint32 reach = 1; reach < groups; reach *= 2) {
        const uint32 among = group & 2 * reach - 1, at = group / (2 * reach) << column_bits | column;
        U own, other;
        own.whole = value;
#pragma unroll
        for (uint32 first = 0; first < size; first += words_at_once) {
            if (among == reach)
#pragma unroll
                for (uint32 i = 0; i < words_at_once && first + i < size; ++i) words[i][at] = own.words[first + i];
            __syncthreads();
            if (among == 0)
#pragma unroll
                for (uint32 i = 0; i < words_at_once && first + i < size; ++i) other.words[first + i] = words[i][at];
            __syncthreads();
        }
        if (among == 0) value = Op::combine(value, other.whole);
    }
    return value;
}

// A thread's units: the vectors that a row has of them, and where they are kept.
template <class R> struct ColumnUnits {
    static constexpr uint32 V = Held<R>::V, arrays = keeps_second<R> ? 2 : 1;
    static constexpr uint32 at_once = V > 4 ? 2 : 4;  // vectors that are loaded together; more would take too many registers
    using Op = typename R::Op;
    using A = typename Op::Accumulator;
    uint32 first, span;  // number of its first unit; vectors of a unit

    static __device__ __forceinline__ uint32 begin_of(uint32 unit)
    {
        return unit / lanes * leaf_elements<typename R::Input> + unit % lanes * V;
    }
    __device__ __forceinline__ uint32 index_of(uint32 i, uint32 t) const { return begin_of(first + i) + t * lanes * V; }
    __device__ __forceinline__ uint4* kept(uint4* memory, uint32 i, uint32 t, uint32 array) const
    {
        return memory + ((i * span + t) * arrays + array) * blockDim.x + threadIdx.x;
    }

    // Folds unit `i`, and keeps it in `memory` if it `keeps` it.
    __device__ __forceinline__ A
    fold(const RowProblem<R>& problem, const RowPlace<R>& place, const HeldRow<Op>& source, uint32 i, uint32 length,
         bool keeps, uint4* memory) const
    {
        LaneCounter<Op, log2_of(steps)> counter;
        uint32 count = 0;
#pragma unroll 1
        for (uint32 t = 0; t < span && index_of(i, t) < length; t += at_once) {
            Held<R> held;
            const auto take = [&](uint32 k, uint32 at, int32 present) {
                if (keeps) {
                    *kept(memory, i, at, 0) = held.x[k];
                    if constexpr (arrays > 1) *kept(memory, i, at, 1) = held.y[k];
                }
                counter.push(fold_step<R, Begin::strided>(held, k, problem, source, index_of(i, at), present), count++);
            };
            if (t + at_once <= span && index_of(i, t + at_once - 1) + V <= length) {
                held.template load_strided_whole<at_once>(problem, place, [&](uint32 k) { return index_of(i, t + k); });
#pragma unroll
                for (uint32 k = 0; k < at_once; ++k) take(k, t + k, int32(V));
                continue;
            }
#pragma unroll 1
            for (uint32 at = t; at < min(t + at_once, span) && index_of(i, at) < length; ++at) {
                const int32 present = left_from(index_of(i, at), length);
                held.load_strided(0, problem, place, index_of(i, at), present);
                take(0, at, present);
            }
        }
        A value = Op::identity();
        bool is_first = true;
#pragma unroll
        for (int k = 0; k < log2_of(steps); ++k)
            if (count >> k & 1u) {
                value = select(is_first, counter.digits[k], Op::combine(counter.digits[k], value));
                is_first = false;
            }
        return select(count == steps, counter.result(), value);
    }
    // Writes unit `i` of a row, from what was kept of its first `length` elements if that was.
    __device__ __forceinline__ void
    write(const RowProblem<R>& problem, const RowPlace<R>& place, const typename R::Values& values, uint32 i, uint32 length,
          bool is_kept, uint4* memory) const
    {
        const uint32 whole = uint32(problem.length);
        Across<R::outputs> across;
#pragma unroll 1
        for (uint32 t = 0; t < span && index_of(i, t) < whole; ++t) {
            const uint32 index = index_of(i, t);
            Held<R> held;
            if (is_kept && index < length) {
                held.x[0] = *kept(memory, i, t, 0);
                if constexpr (arrays > 1) held.y[0] = *kept(memory, i, t, 1);
            } else if (index + V <= length) {
                held.template load_strided_whole<1>(problem, place, [&](uint32) { return index; });
            } else {
                held.load_strided(0, problem, place, index, left_from(index, length));
            }
            R::template write<Begin::strided>(problem, place, index, left_from(index, whole), length, held.x[0], held.second(0),
                                              values, across);
        }
    }
};

// A block has 2^column_bits rows, and as many threads for each as a power of two. The grid has a block for each such tile.
template <class R> __device__ __forceinline__ void column_rows(const RowProblem<R>& problem)
{
    extern __shared__ uint4 memory[];
    __shared__ ColumnWords words;
    __shared__ typename R::Values all_values[lanes];
    const ColumnCut cut(problem.cut);
    launch_dependents();
    const uint32 column = threadIdx.x & (1u << cut.column_bits) - 1, group = threadIdx.x >> cut.column_bits;
    const uint64 number = (uint64(blockIdx.x) << cut.column_bits) + column, row = min(number, problem.rows - 1);
    wait_for_prerequisites();
    RowPlace<R> place(problem, row);
    const typename R::Given given = R::given(problem, row);
    const uint32 length = R::length(problem, given, row), whole = uint32(problem.length);
    const uint32 vectors = (whole + Held<R>::V - 1) / Held<R>::V;
    const ColumnUnits<R> units{group * cut.turns, min((vectors + lanes - 1) / lanes, steps)};
    // Units begin one behind the other, so where one is past the end, so are those that follow it.
    const auto present = [&](uint32 i, uint32 n) { return i < cut.turns && units.begin_of(units.first + i) < n; };
    const auto source = held_row<R>(place, given, length);
    ThreadCounter<typename R::Op> counter;
#pragma unroll 1
    for (uint32 i = 0; present(i, length); ++i)
        counter.push(units.fold(problem, place, source, i, length, R::outputs > 0 && i < cut.kept, memory));
    const auto root = fold_groups<typename R::Op>(counter.result(), words, cut.column_bits);
    if (group == 0) all_values[column] = R::values(problem, given, row, place, source.row, root, number < problem.rows);
    if constexpr (R::outputs > 0) {
        __syncthreads();
        if (number >= problem.rows) return;
        const typename R::Values values = all_values[column];
        place.find_outputs(problem, row);
#pragma unroll 1
        for (uint32 i = 0; present(i, whole); ++i)
            units.write(problem, place, values, i, length, i < cut.kept, memory);
    }
}

// Rows along any axis and of any stride: neighbouring threads take neighbouring rows, so that what lies side by side in memory
// is read side by side. A thread folds a run of a row's units in the order of the tree; a unit is what one lane has of a leaf
// elsewhere, up to eight vectors. Shared memory keeps what a thread has read; what does not fit is read again.
#pragma once
#include "rowops/column_units.cuh"
#include "tree/cluster.cuh"

constexpr uint32 most_column_threads = 512;
constexpr uint64 of_columns = 32;  // in problem.cut

struct ColumnCut {
    uint32 column_bits, turns, kept, blocks;  // log2 of a block's rows; units of a thread, those that are kept; blocks of a row
    __device__ __forceinline__ explicit ColumnCut(uint64 cut)
        : column_bits(uint32(cut) >> 6 & 7), turns(1u << (uint32(cut) >> 9 & 31)), kept(uint32(cut) >> 14),
          blocks(uint32(cut >> 32)) {}
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

// The same across the blocks of a cluster, from its group 0 to that of rank 0; `blocks` are more than one.
template <class Op>
__device__ __forceinline__ typename Op::Accumulator
fold_blocks(typename Op::Accumulator value, ColumnWords& words, uint32 column_bits, uint32 rank, uint32 blocks)
{
#if __CUDA_ARCH__ >= 900
    constexpr uint32 size = sizeof(typename Op::Accumulator) / 4, places = most_column_threads / 2 / lanes;
    union U { typename Op::Accumulator whole; uint32 words[size]; __device__ U() {} };
    const bool is_first = threadIdx.x >> column_bits == 0;
    uint32 place = places;
#pragma unroll 1
    for (uint32 reach = 1; reach < blocks; reach *= 2) {
        const bool gives = is_first && (rank & 2 * reach - 1) == reach, takes = is_first && (rank & 2 * reach - 1) == 0;
        U own, other;
        own.whole = value;
#pragma unroll
        for (uint32 first = 0; first < size; first += words_at_once, ++place) {
            if (place == places) {  // all blocks have started, and nobody needs what these places held
                cluster_synchronise();
                place = 0;
            }
            const uint32 at = place * lanes + threadIdx.x;
#pragma unroll
            for (uint32 i = 0; i < words_at_once && first + i < size; ++i)
                if (gives) store_word_to_rank(&words[i][at], rank - reach, own.words[first + i]);
            cluster_synchronise();
#pragma unroll
            for (uint32 i = 0; i < words_at_once && first + i < size; ++i)
                if (takes) other.words[first + i] = words[i][at];
        }
        if (takes) value = Op::combine(value, other.whole);
    }
#endif
    return value;
}

// Gives what a column comes to, which rank 0 has, to the other blocks of its cluster; those threads that hold one call it.
template <class V> __device__ __forceinline__ void tell_blocks(const V& values, V* place, uint32 blocks)
{
#if __CUDA_ARCH__ >= 900
    union U { V whole; uint32 words[(sizeof(V) + 3) / 4]; __device__ U() {} } u;
    u.whole = values;
#pragma unroll 1
    for (uint32 rank = 1; rank < blocks; ++rank)
#pragma unroll
        for (uint32 i = 0; i < sizeof(V) / 4; ++i) store_word_to_rank(reinterpret_cast<uint32*>(place) + i, rank, u.words[i]);
#endif
}

// A block has 2^column_bits rows, and as many threads for each as a power of two; or a cluster of blocks has them, each a run of
// their units. The grid has a block or a cluster for each such tile.
template <class R> __device__ __forceinline__ void column_rows(const RowProblem<R>& problem)
{
    extern __shared__ uint4 memory[];
    __shared__ ColumnWords words;
    __shared__ typename R::Values all_values[lanes];
    const ColumnCut cut(problem.cut);
    launch_dependents();
    const uint32 column = threadIdx.x & (1u << cut.column_bits) - 1, group = threadIdx.x >> cut.column_bits;
    const uint64 number = (uint64(blockIdx.x / cut.blocks) << cut.column_bits) + column, row = min(number, problem.rows - 1);
    const uint32 rank = rank_in_cluster(cut.blocks), groups = blockDim.x >> cut.column_bits;
    wait_for_prerequisites();
    RowPlace<R> place(problem, row);
    const typename R::Given given = R::given(problem, row);
    const uint32 length = R::length(problem, given, row), whole = uint32(problem.length);
    const uint32 vectors = (whole + Held<R>::V - 1) / Held<R>::V;
    const ColumnUnits<R> units{(rank * groups + group) * cut.turns, min((vectors + lanes - 1) / lanes, steps)};
    // Units begin one behind the other, so where one is past the end, so are those that follow it.
    const auto present = [&](uint32 i, uint32 n) { return i < cut.turns && units.begin_of(units.first + i) < n; };
    const auto source = held_row<R>(place, given, length);
    ThreadCounter<typename R::Op> counter;
#pragma unroll 1
    for (uint32 i = 0; present(i, length); ++i)
        counter.push(units.fold(problem, place, source, i, length, R::outputs > 0 && i < cut.kept, memory));
    auto root = fold_groups<typename R::Op>(counter.result(), words, cut.column_bits);
    if (cut.blocks > 1) root = fold_blocks<typename R::Op>(root, words, cut.column_bits, rank, cut.blocks);
    if (group == 0 && rank == 0) {
        all_values[column] = R::values(problem, given, row, place, source.row, root, number < problem.rows);
        if (R::outputs > 0) tell_blocks(all_values[column], &all_values[column], cut.blocks);
    }
    if constexpr (R::outputs > 0) {
        if (cut.blocks > 1) cluster_synchronise();
        else __syncthreads();
        if (number >= problem.rows) return;
        const typename R::Values values = all_values[column];
        place.find_outputs(problem, row);
#pragma unroll 1
        for (uint32 i = 0; present(i, whole); ++i)
            units.write(problem, place, values, i, length, i < cut.kept, memory);
    }
}

// The top of the tree of each row of an array in parts: over the partials of all its chunks, which ranks contributed in equal
// shares. By one block a row or, where rows have few chunks, by one warp a row.
#pragma once
#include "whole/reduce_partials.cuh"

// `elements` are the shares of all ranks, one after the other, at multiples of four bytes; `length` is that of a row of the whole
// array, `count` its number of chunks. Rank r of R has the chunks from ceil(count r / R) to before ceil(count (r + 1) / R).
struct PartsProblem : Problem {
    uint64 chunk;   // elements of a chunk
    uint64 shares;  // how many ranks there are
    uint64 apart;   // bytes from one share to the next
    uint64 lead;    // bytes of a share before its first partial: 16 for a tag, or 0
    uint64 inner;   // how many rows lie side by side in memory: the product of the axes behind the reduced one
    uint64 tag[2];  // what each share must begin with, if it has a tag; never both 0 then
    // Where ranks cut as they like: each rank's first chunk, the number of all chunks, and how many whole ones each has.
    const uint64* table;
    // If not null, the word that a launch sets where a share has another tag, in place of an error. It is 0 before.
    uint64* verdict;
};

// Ends the launch with an error if a share is of another reduction, or its rank refused to take part, unless the host
// looks at the verdict. A result that looks right would be worse. All threads of the first block call it.
__device__ __forceinline__ void check_tags(const PartsProblem& problem)
{
    if ((problem.tag[0] | problem.tag[1]) == 0 || blockIdx.x != 0) return;
    for (uint64 share = threadIdx.x; share < problem.shares; share += blockDim.x) {
        const auto* words = reinterpret_cast<const uint32*>(problem.elements + share * problem.apart);
        const bool same = words[0] == uint32(problem.tag[0]) && words[1] == uint32(problem.tag[0] >> 32) &&
            words[2] == uint32(problem.tag[1]) && words[3] == uint32(problem.tag[1] >> 32);
        if (same) continue;
        if (problem.verdict == nullptr) asm volatile("trap;");
        *problem.verdict = 1;
    }
}

// The rank that chunk `number` is of: the last one whose first chunk is not behind it.
__device__ __forceinline__ uint64 rank_of_chunk(const PartsProblem& problem, uint64 number)
{
    uint64 low = 0, high = problem.shares;
    while (high - low > 1) {
        const uint64 middle = (low + high) / 2;
        if (problem.table[middle] <= number) low = middle;
        else high = middle;
    }
    return low;
}

// Which rank has chunk `number`, which chunk is that rank's first, and how many whole ones it has, where the formula
// says so. `Number` holds the count of chunks times that of ranks: a division of 64 bits takes some sixty instructions.
template <class Number>
__device__ __forceinline__ void
find_chunk(const PartsProblem& problem, uint64 number, uint64& share, uint64& first, uint64& held)
{
    const Number count = Number(problem.count), shares = Number(problem.shares);
    const Number of = Number(number) * shares / count;
    const Number begin = (count * of + shares - 1) / shares, end = (count * (of + 1) + shares - 1) / shares;
    share = of;
    first = begin;
    held = min(uint64(end), held) - min(first, held);
}

// Where the partial of chunk `number` of a row lies. A share has its whole chunks, a row's beside each other, or those of
// neighbouring rows where rows lie side by side; behind them the chunk of each row that the array ends within, if it has that, or
// that other ranks completed.
template <class Op>
__device__ __forceinline__ const uint32* place_of_chunk(const PartsProblem& problem, uint64 row, uint64 number)
{
    // Whole chunks of the share: at first of all, of which only the last chunk may be none.
    uint64 share = 0, first = 0, held = problem.count - (problem.count * problem.chunk > problem.length);
    if (problem.table != nullptr) {
        share = rank_of_chunk(problem, number);
        first = problem.table[share];
        held = problem.table[problem.shares + 1 + share];
    } else if (problem.shares > 1) {
        const bool narrow = (problem.count + 1) * (problem.shares + 1) >> 32 == 0;
        if (narrow) find_chunk<uint32>(problem, number, share, first, held);
        else find_chunk<uint64>(problem, number, share, first, held);
    }
    const uint64 local = number - first;
    uint64 place = problem.rows * held + row;
    if (local < held) {
        if (problem.inner == 1) place = row * held + local;
        else place = (row / problem.inner * held + local) * problem.inner + row % problem.inner;
    }
    const char* partials = problem.elements + share * problem.apart + problem.lead;
    return reinterpret_cast<const uint32*>(partials + place * sizeof(typename Op::Accumulator));
}

// The fold of those of a row's partials that one of `warps` warps takes, as fold_run_of_partials.
template <class Op>
__device__ __forceinline__ typename Op::Accumulator
fold_run_of_row(const PartsProblem& problem, uint64 row, uint32 warp, uint32 warps)
{
    const auto partial = [&problem, row](uint64 number) {
        return partial_at<Op>(place_of_chunk<Op>(problem, row, number), number * problem.chunk);
    };
    return fold_run_of_partials<Op>(partial, uint32(problem.count), warp, warps);
}

// Writes a row's results. The pivot, where operators have one, is made of the row's first element, which `second` has for each.
template <class Op>
__device__ __forceinline__ void store_row(const PartsProblem& problem, uint64 number, typename Op::Accumulator root)
{
    using T = typename Op::Input;
    RowOf<Op> row;
    row.length = problem.length;
    row.initial[0] = problem.initial[0];
    row.initial[1] = problem.initial[1];
    if constexpr (!is_same<typename Op::Pivot, Unused>)
        if (row.length > 0) row.pivot = Op::pivot(load_element<T>(problem.second + number * sizeof(T)));
    store_result<Op>(problem, row, number, root);
}

// A block of `Warps` warps a row; with one, each warp of the block has a row of its own.
template <class Op, int Warps> __device__ __forceinline__ void reduce_parts(const PartsProblem& problem)
{
    launch_dependents();
    wait_for_prerequisites();
    check_tags(problem);
    const uint32 warp = warp_of_block();
    if constexpr (Warps == 1) {
        const uint64 row = uint64(blockIdx.x) * (blockDim.x / lanes) + warp;
        if (row >= problem.rows) return;
        const auto root = fold_run_of_row<Op>(problem, row, 0, 1);
        if (threadIdx.x % lanes == 0) store_row<Op>(problem, row, root);
    } else {
        __shared__ BlockSlots<Op, Warps> shared;
        const auto root = block_fold<Op, Warps>(fold_run_of_row<Op>(problem, blockIdx.x, warp, Warps), shared, 0);
        if (threadIdx.x == 0) store_row<Op>(problem, blockIdx.x, root);
    }
}

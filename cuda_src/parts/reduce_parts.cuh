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
    // Each rank's first chunk, the number of all chunks, and how many whole ones each has: where ranks cut as they like, or are
    // many. Else null.
    const uint32* table;
    // If not null, the word that a launch sets where a share has another tag, in place of an error. It is 0 before.
    uint64* verdict;
};

// Whether a thread of the first block looks at the tag of a share.
__device__ __forceinline__ bool has_tag_of(const PartsProblem& problem, uint64 share)
{
    return (problem.tag[0] | problem.tag[1]) != 0 && blockIdx.x == 0 && share < problem.shares;
}

// The tag of a share, if this thread looks at it; else what it must be.
__device__ __forceinline__ uint4 tag_of(const PartsProblem& problem, uint64 share)
{
    const auto* address = reinterpret_cast<const uint4*>(problem.elements + share * problem.apart);
    const uint64 low = problem.tag[0], high = problem.tag[1];
    const uint4 due = make_uint4(uint32(low), uint32(low >> 32), uint32(high), uint32(high >> 32));
    return load_streaming_if(has_tag_of(problem, share), address, due);
}

// Ends the launch with an error if a share is of another reduction, or its rank refused to take part, unless the host
// looks at the verdict. A result that looks right would be worse. `tag` is that of the share with this thread's number, which
// was loaded before the partials, so that these do not wait for it. All threads of the first block call it.
__device__ __forceinline__ void check_tags(const PartsProblem& problem, uint4 tag)
{
    for (uint64 share = threadIdx.x; has_tag_of(problem, share); tag = tag_of(problem, share += blockDim.x)) {
        const uint64 low = uint64(tag.y) << 32 | tag.x, high = uint64(tag.w) << 32 | tag.z;
        if (low == problem.tag[0] && high == problem.tag[1]) continue;
        if (problem.verdict == nullptr) asm volatile("trap;");
        *problem.verdict = 1;
    }
}

// The most ranks whose chunks a block finds without a table. The same in parts/fold.py, MOST_WITHOUT_TABLE.
constexpr uint32 most_without_table = 256;

// Where a rank's chunks begin: chunk ceil(count rank / shares). A division of 64 bits takes some sixty instructions.
__device__ __forceinline__ uint32 first_chunk(const PartsProblem& problem, uint32 rank)
{
    const uint64 past = problem.count * rank + problem.shares - 1;
    const bool narrow = (problem.count + 1) * (problem.shares + 1) >> 32 == 0;
    return narrow ? uint32(past) / uint32(problem.shares) : uint32(past / problem.shares);
}

// Each rank's first chunk and the number of all: the table, or made here. All threads of the block call it, before the wait for
// prerequisites: it reads nothing that they write.
__device__ __forceinline__ const uint32* first_chunks(const PartsProblem& problem, uint32* shared)
{
    if (problem.table != nullptr) return problem.table;
    for (uint32 rank = threadIdx.x; rank <= problem.shares; rank += blockDim.x) shared[rank] = first_chunk(problem, rank);
    __syncthreads();
    return shared;
}

// One row's partials. A share has its whole chunks, a row's beside each other, or those of neighbouring rows where rows lie side by
// side; behind them the chunk of each row that the array ends within, if it has that, or that other ranks completed. What is the
// same for all of a row's chunks is computed once: this is inlined for each partial that a lane has in flight, and a kernel's
// code is fetched anew in most launches.
struct RowOfParts {
    const PartsProblem& problem;
    const uint32* firsts;
    uint64 row, before, beside;  // its number, and that before and behind the reduced axis
    uint32 whole;                // chunks, of all: the last one may be none

    __device__ __forceinline__ RowOfParts(const PartsProblem& problem, const uint32* firsts, uint64 row)
        : problem(problem), firsts(firsts), row(row), before(row), beside(0),
          whole(uint32(problem.count) - (problem.count * problem.chunk > problem.length))
    {
        if (problem.inner == 1) return;
        before = row / problem.inner;
        beside = row - before * problem.inner;
    }

    // How many whole chunks a share has.
    __device__ __forceinline__ uint32 held_by(uint32 share) const
    {
        if (problem.table != nullptr) return firsts[uint32(problem.shares) + 1 + share];
        return min(firsts[share + 1], whole) - min(firsts[share], whole);
    }

    // Where the partial of chunk `number` lies: in the share of the last rank whose first chunk is not behind it.
    template <class Op> __device__ __forceinline__ const uint32* place(uint32 number) const
    {
        uint32 share = 0, end = uint32(problem.shares);
#pragma unroll 1
        while (end - share > 1) {
            const uint32 middle = (share + end) / 2;
            if (firsts[middle] <= number) share = middle;
            else end = middle;
        }
        const uint32 local = number - firsts[share], held = held_by(share);
        const uint64 place = local < held ? (before * held + local) * problem.inner + beside : problem.rows * held + row;
        const char* partials = problem.elements + share * problem.apart + problem.lead;
        return reinterpret_cast<const uint32*>(partials + place * sizeof(typename Op::Accumulator));
    }

    // The fold of those partials that one of `warps` warps takes, as fold_run_of_partials.
    template <class Op> __device__ __forceinline__ typename Op::Accumulator fold(uint32 warp, uint32 warps) const
    {
        const auto partial = [this](uint32 number) { return partial_at<Op>(place<Op>(number), number * problem.chunk); };
        return fold_run_of_partials<Op>(partial, uint32(problem.count), warp, warps);
    }
};

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
    __shared__ uint32 made[most_without_table + 1];
    launch_dependents();
    const uint32* firsts = first_chunks(problem, made);
    wait_for_prerequisites();
    const uint4 tag = tag_of(problem, threadIdx.x);
    const uint32 warp = warp_of_block();
    if constexpr (Warps == 1) {
        const uint64 row = uint64(blockIdx.x) * (blockDim.x / lanes) + warp;
        if (row >= problem.rows) return check_tags(problem, tag);
        const auto root = RowOfParts(problem, firsts, row).template fold<Op>(0, 1);
        check_tags(problem, tag);
        if (threadIdx.x % lanes == 0) store_row<Op>(problem, row, root);
    } else {
        __shared__ BlockSlots<Op, Warps> shared;
        const auto run = RowOfParts(problem, firsts, blockIdx.x).template fold<Op>(warp, Warps);
        const auto root = block_fold<Op, Warps>(run, shared, 0);
        check_tags(problem, tag);
        if (threadIdx.x == 0) store_row<Op>(problem, blockIdx.x, root);
    }
}

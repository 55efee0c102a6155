// All chunks of a part in one launch, those that rows end within as well: a warp a leaf, one or several chunks a block.
//
// Two launches, of the whole chunks and of the rest, would run one after the other: the second waits for the first to end,
// though it needs nothing of it, and the first, of one block, takes as long as a launch takes at all.
#pragma once
#include "tree/block.cuh"
#include "tree/leaf.cuh"
#include "tree/overlap.cuh"

// `length` is that of each of `rows` rows, of contiguous elements; `count` is the log2 of a chunk's leaves.
struct ChunksProblem : Problem {
    uint64 chunk;   // elements of a chunk, a power of two of leaves
    uint64 chunks;  // of a row, the one that it ends within included; those of all rows are less than 2^31
    uint64 apart;   // bytes from one row to the next
};

// A chunk by its number among those of all rows.
struct NumberedChunk {
    uint32 row, of_row;

    __device__ __forceinline__ NumberedChunk(const ChunksProblem& problem, uint32 number)
        : row(number / uint32(problem.chunks)), of_row(number - row * uint32(problem.chunks)) {}

    template <class Op, Begin Where> __device__ __forceinline__ Source<Op, Where> source(const ChunksProblem& problem) const
    {
        const uint64 first = of_row * problem.chunk;
        const char* begin = problem.elements + row * problem.apart + first * sizeof(typename Op::Input);
        return {problem, begin, nullptr, min(problem.chunk, problem.length - first)};
    }
    // Where its partial is: those of whole chunks are a row's beside each other, the rests of all rows behind them, as
    // place_of_chunk in reduce_parts.cuh reads them.
    __device__ __forceinline__ uint64 place(const ChunksProblem& problem) const
    {
        const uint64 whole = problem.chunks - (problem.chunks * problem.chunk > problem.length);
        return of_row < whole ? row * whole + of_row : problem.rows * whole + row;
    }
};

// Blocks have at most `Warps` warps, and take the last chunks first; the next kernel's blocks are let in as in reduce_at_once.
template <class Op, int Warps, Begin Where> __device__ __forceinline__ void reduce_chunks(const ChunksProblem& problem)
{
    __shared__ typename Op::Accumulator slots[Warps];
    if (!lets_in_late(blockDim.x / lanes)) launch_dependents();
    const uint32 warp = warp_of_block(), lane = threadIdx.x % lanes, bits = uint32(problem.count), group = warp >> bits;
    const uint32 all = uint32(problem.rows * problem.chunks), at_once = blockDim.x / lanes >> bits;  // chunks of a block
    const uint32 member = warp & (1u << bits) - 1, number = (gridDim.x - 1 - blockIdx.x) * at_once + group;
    const auto source = NumberedChunk(problem, min(number, all - 1)).template source<Op, Where>(problem);
    auto value = leaf_fold<Op>(source, member, lane);
    launch_dependents();  // at the latest
    if (bits > 0) {
        if (lane == 0) slots[warp] = value;
        __syncthreads();
        if (all_agree(member == 0)) value = fold_few_warps<Op>(slots + warp, lane, 1u << bits);
    }
    if ((threadIdx.x & (lanes << bits) - 1) != 0) return;
    // Made anew: kept all along, the number would take registers that the elements need.
    const uint32 stored = (gridDim.x - 1 - block_anew()) * at_once + group;
    if (stored < all) store_result<Op>(problem, source.row, NumberedChunk(problem, stored).place(problem), value);
}

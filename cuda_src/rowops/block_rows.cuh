// Rows that a block, or a cluster of up to 16 blocks, holds in registers: a warp for each leaf.
#pragma once
#include "rowops/blocks.cuh"
#include "rowops/column_rows.cuh"
#include "rowops/split_rows.cuh"

constexpr uint64 of_single_rows = 128;  // in problem.cut

// problem.cut: blocks that share a row, a cluster if several. The grid has as many for each row. Of single rows, which are at most
// a leaf, each warp of a block has one: all its lanes find what it comes to, and nothing is shared.
template <class R, Begin Where> __device__ __forceinline__ void block_rows(const RowProblem<R>& problem)
{
    __shared__ RowMeeting<R> shared;
    const bool is_single = problem.cut & of_single_rows;
    const uint32 blocks = uint32(problem.cut) & 31, warps = blockDim.x / lanes, warp = warp_of_block();
    enter(shared, blocks);
    launch_dependents();
    const uint32 rank = rank_in_cluster(blocks), lane = threadIdx.x % lanes;
    const auto leaf_of = [&](uint32 of) { return is_single ? 0 : rank * warps + of; };  // of a warp
    const auto row_of = [&](uint32 of) { return is_single ? uint64(blockIdx.x) * warps + of : blockIdx.x / blocks; };
    const uint32 leaf = leaf_of(warp);
    const uint64 row = row_of(warp);
    wait_for_prerequisites();
    if (row >= problem.rows) return;  // of single rows
    RowPlace<R> place(problem, row);
    const typename R::Given given = R::given(problem, row);
    const uint32 length = R::length(problem, given, row);
    Held<R> held;
    load_leaf<R, Where, true>(held, problem, place, leaf, length, lane);
    const auto source = held_row<R>(place, given, length);
    const auto value = fold_leaf<R, Where>(held, problem, source, leaf, length, lane);
    // Asked for anew: kept all along, what is made of it would take registers that the elements need.
    uint32 thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    const uint64 same_row = row_of(thread / lanes);
    const auto values = is_single
        ? R::values(problem, given, same_row, place, source.row, value, thread % lanes == 0)
        : meet<R>(value, problem, place, given, same_row, length, shared, rank, blocks, warps);
    if constexpr (R::outputs > 0) {
        place.find_outputs(problem, same_row);
        const uint32 same_leaf = leaf_of(thread / lanes);
        // Where that won: of float32 long rows, in clusters, lost by it.
        if constexpr (Where == Begin::anywhere && R::in_blocks)
            if ((sizeof(typename R::Input) == 2 ? blocks == 1 : is_single) &&
                write_leaf_in_blocks<R>(problem, place, values, same_leaf, length)) return;
        write_leaf<R, Where>(held, problem, place, values, same_leaf, length, thread % lanes);
    }
}

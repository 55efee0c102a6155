// Rows of a few leaves, each leaf by a warp of its own, one or several rows a block: one launch, no workspace.
#pragma once
#include "tree/block.cuh"
#include "tree/overlap.cuh"
#include "rows/row_cut.cuh"
#include "rows/row_leaf.cuh"

// Blocks have at most 16 warps, and take the last rows first, as in whole arrays. The next kernel's blocks are let in at once
// or, in grids of few turns, when elements are loaded: these then come when this block has gone, and do not crowd
// (benchmarks/NOTES.md, "Blocks that crowd").
template <class Op, class Rows> __device__ __forceinline__ void reduce_at_once(const ShapedProblem& problem)
{
    __shared__ typename Op::Accumulator slots[16];  // strategy/row_bounds.py, _MOST_WARPS
    const RowCut cut(problem.count);
    if (!lets_in_late(blockDim.x / lanes)) launch_dependents();
    const uint32 warp = warp_of_block(), lane = threadIdx.x % lanes, group = cut.group(warp), member = cut.member(warp);
    const uint64 row = uint64(gridDim.x - 1 - blockIdx.x) * cut.rows() + group;
    if (!is_same<typename Op::Pivot, Unused> || problem.device_length != nullptr) wait_for_prerequisites();
    const ShapedSource<Op, Rows::where> source(problem, min(row, problem.rows - 1));
    const Placed placed = placed_in<Op, Rows>(problem);
    if constexpr (Rows::where != Begin::aligned) wait_for_prerequisites();  // aligned leaves are awaited as late as can be
    auto value = row_leaf_fold<Op, Rows>(source, member, placed, lane);
    launch_dependents();  // at the latest
    if (cut.warps > 1) {
        if (lane == 0) slots[warp] = value;
        __syncthreads();
        if (all_agree(member == 0)) value = fold_few_warps<Op>(slots + warp, lane, cut.warps);
    }
    if ((threadIdx.x & (lanes << cut.bits) - 1) != 0) return;
    // Made anew: kept all along, the number would take registers that the elements need.
    const uint64 its_row = uint64(gridDim.x - 1 - block_anew()) * cut.rows() + group;
    if (its_row < problem.rows) store_result<Op>(problem, ShapedSource<Op>(problem, its_row).row, its_row, value);
}

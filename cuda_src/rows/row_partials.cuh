// Folds the partials that several blocks have made of each row, where rows have so few that a warp folds a row or more.
#pragma once
#include "tree/grid.cuh"
#include "columns/shape.cuh"

// The most partials of a row that one warp folds. The same in row_strategy.WARP_FOLDS.
constexpr uint32 warp_folds = 4 * lanes;

// Folds the partials of up to four rows, from number `row` on, by one warp: at most 128 places in all, 32 times `of_a_row` for
// each row of `count` partials. All 32 lanes call it.
template <class Op>
__device__ __forceinline__ void fold_few_partials(const ShapedProblem& problem, uint64 row, uint32 count, uint32 of_a_row)
{
    constexpr uint32 in_flight = warp_folds / lanes;
    const uint32 lane = threadIdx.x % lanes, rows = uint32(min(problem.rows - row, uint64(in_flight / of_a_row)));
    auto* slots = grid_slots<Op>(problem.workspace) + row * count;
    grid_await<Op>(slots + rows * count - 1);
    uint32 places[in_flight];
#pragma unroll
    for (uint32 k = 0; k < in_flight; ++k) {
        const uint32 part = k % of_a_row * lanes + lane, its_row = k / of_a_row;
        places[k] = part < count && its_row < rows ? its_row * count + part : ~0u;
    }
    typename Op::Accumulator a[in_flight];
    grid_take_places<Op, in_flight>(a, slots, places);
    warp_fold_rows<Op, lanes, in_flight>(a, lane);
    auto root = a[0];
    for (uint32 mask = 1; mask < of_a_row; mask *= 2) root = Op::combine(root, shuffle_xor(root, mask));
    if (lane >= in_flight || lane % of_a_row != 0 || lane / of_a_row >= rows) return;
    const uint64 number = row + lane / of_a_row;
    store_result<Op>(problem, ShapedSource<Op>(problem, number).row, problem.place(number), root);
}

// Folds the partials of all rows as they come, as block `folder` of `folders`: each warp as many rows at once as it can. All
// threads of the block, which has `warps` warps, call it.
template <class Op>
__device__ __forceinline__ void
fold_partials_by_warps(const ShapedProblem& problem, uint32 folder, uint32 folders, uint32 warps)
{
    const uint32 count = uint32(problem.count), warp = warp_of_block();
    const uint32 of_a_row = count > 2 * lanes ? 4 : count > lanes ? 2 : 1, rows = 4 / of_a_row;
#pragma unroll 1
    for (uint64 row = (folder * warps + warp) * rows; row < problem.rows; row += folders * warps * rows)
        fold_few_partials<Op>(problem, row, count, of_a_row);
}

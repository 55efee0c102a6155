// Many rows of any length, each folded by one or several warps of a block in turns: one launch, no workspace.
#pragma once
#include "tree/block.cuh"
#include "tree/overlap.cuh"
#include "rows/row_cut.cuh"
#include "rows/row_leaf.cuh"

constexpr int row_warps = 8;  // of a block, at most

// Where the warps of a row collect the folds of their leaves, turn by turn, until there are as many as one warp folds.
template <class Op> struct RowSlots {
    typename Op::Accumulator of[2][row_warps / 2][lanes];  // two sets, so that consecutive folds need one barrier each
    SharedWarpCounter<Op> counters[row_warps];
};

// Folds a row in turns, each of its 2^bits warps a leaf in each. The warps meet when they have all leaves of a subtree:
// if they met in each turn, nothing would be loaded meanwhile. At any address the row may have fewer than 2^bits warps,
// `warps`, in one turn. All threads of the block call it; all lanes of the row's first warp hold the result.
template <class Op, class Rows, class S>
__device__ __forceinline__ typename Op::Accumulator
fold_in_turns(const S& source, Placed placed, RowSlots<Op>& shared, uint32 bits, uint32 warps, uint32 group, uint32 member,
              uint32 lane)
{
    constexpr bool are_powers = Rows::where == Begin::aligned || !Rows::are_contiguous;  // of two, the warps
    constexpr uint32 lane_bits = log2_of(lanes);
    const uint32 log_turns = bits > 0 ? lane_bits - bits : 0, turns = 1u << log_turns;  // until the warps meet
    const uint32 tiles = max(1u, uint32(source.leaf_count() + (1u << bits) - 1 >> bits));  // the same for every row of the block
    SharedWarpCounter<Op>& counter = shared.counters[group];
#pragma unroll 1
    for (uint32 i = 0; i < tiles; ++i) {
        auto value = row_leaf_fold<Op, Rows>(source, (uint64(i) << bits) + member, placed, lane);
        if (bits > 0) {
            const uint32 turn = i & turns - 1;
            auto& slots = shared.of[i >> log_turns & 1u][group];
            if (lane == 0) slots[(turn << bits) + member] = value;
            if (turn + 1 < turns && i + 1 < tiles) continue;
            __syncthreads();
            const uint32 there = are_powers ? turn + 1 << bits : (turn << bits) + min(warps, 1u << bits);
            if (all_agree(member == 0)) value = warp_fold<Op>(lane < there ? slots[lane] : Op::identity());
        }
        if (all_agree(member == 0)) counter.push(value, i >> log_turns, lane);
    }
    return all_agree(member == 0) ? counter.result(tiles + turns - 1 >> log_turns) : Op::identity();
}

// A power of two of warps for each row, several rows a block. At any address it takes the launches of reduce_at_once as
// well, as that does: the last rows first, and the next kernel's blocks as late in grids of few turns; but not of two
// arrays, for which a thread would lack registers. A block waits for the prerequisites when it knows what to load.
template <class Op, class Rows> __device__ __forceinline__ void reduce_rows(const ShapedProblem& problem)
{
    constexpr bool may_be_at_once = Rows::where != Begin::aligned && Rows::are_contiguous && !has_second<Op>;
    __shared__ RowSlots<Op> shared;
    if constexpr (!may_be_at_once) launch_dependents();
    const RowCut cut(problem.count);
    const auto at_once = [&] { return may_be_at_once && leaves_of<typename Op::Input>(problem.length) <= 1u << cut.bits; };
    const auto number = [&](uint32 block) { return at_once() ? gridDim.x - 1 - block : block; };
    if (may_be_at_once && !(at_once() && lets_in_late(blockDim.x / lanes))) launch_dependents();
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes, group = cut.group(warp), member = cut.member(warp);
    const uint64 row = uint64(number(blockIdx.x)) * cut.rows() + group;
    if (!is_same<typename Op::Pivot, Unused> || problem.device_length != nullptr) wait_for_prerequisites();
    const ShapedSource<Op, Rows::where> source(problem, min(row, problem.rows - 1));
    const Placed placed = placed_in<Op, Rows>(problem);
    wait_for_prerequisites();
    const auto root = fold_in_turns<Op, Rows>(source, placed, shared, cut.bits, cut.warps, group, member, lane);
    if (may_be_at_once) launch_dependents();  // at the latest
    if ((threadIdx.x & (lanes << cut.bits) - 1) != 0) return;
    // Made anew: kept all along, the number would take registers that the elements need.
    const uint64 its_row = uint64(number(block_anew())) * cut.rows() + group;
    if (its_row < problem.rows) store_result<Op>(problem, source.row, its_row, root);
}

// Many rows of any length, each folded by one or several warps of a block: one launch, no workspace.
#pragma once
#include "block.cuh"
#include "row_leaf.cuh"
#include "overlap.cuh"

// Where the W warps of a row collect the folds of their leaves, turn by turn, until there are as many as one warp folds.
template <class Op, int Warps, int W> struct RowSlots {
    static constexpr uint32 turns = W > 1 ? lanes / W : 1;
    typename Op::Accumulator of[2][Warps / W][turns * W];  // two sets, so that consecutive folds need one barrier each
    SharedWarpCounter<Op> counters[Warps / W];
};

// Folds a row in turns, each warp a leaf in each. The warps meet when they have all leaves of a subtree: if they met in each
// turn, nothing would be loaded meanwhile. All threads of the block call it; all lanes of the row's first warp hold the result.
template <class Op, class Rows, int Warps, int W, class S>
__device__ __forceinline__ typename Op::Accumulator
fold_in_turns(const S& source, Placed placed, RowSlots<Op, Warps, W>& shared, uint32 group, uint32 member, uint32 lane)
{
    constexpr uint32 turns = RowSlots<Op, Warps, W>::turns;
    const uint32 tiles = tile_count<Op, W>(source);  // the same for every row of the block: barriers are inside
    SharedWarpCounter<Op>& counter = shared.counters[group];
#pragma unroll 1
    for (uint32 i = 0; i < tiles; ++i) {
        auto value = row_leaf_fold<Op, Rows>(source, uint64(i) * W + member, placed, lane);
        if constexpr (W > 1) {
            auto& slots = shared.of[i / turns % 2][group];
            if (lane == 0) slots[i % turns * W + member] = value;
            if ((i + 1) % turns != 0 && i + 1 < tiles) continue;
            __syncthreads();
            if (all_agree(member == 0)) value = warp_fold<Op>(lane < (i % turns + 1) * W ? slots[lane] : Op::identity());
        }
        if (all_agree(member == 0)) counter.push(value, i / turns, lane);
    }
    return all_agree(member == 0) ? counter.result((tiles + turns - 1) / turns) : Op::identity();
}

// A leaf for each warp. Called like fold_in_turns, and leaves its result where that does.
template <class Op, class Rows, int Warps, int W, class S>
__device__ __forceinline__ typename Op::Accumulator
fold_at_once(const S& source, Placed placed, typename Op::Accumulator* slots, uint32 group, uint32 member, uint32 lane)
{
    auto value = row_leaf_fold<Op, Rows>(source, member, placed, lane);
    if (lane == 0) slots[group * W + member] = value;
    __syncthreads();
    if (all_agree(member == 0)) value = fold_warps<Op, W>(slots + group * W, lane);
    return value;
}

// Rows of any length, W warps for each, several rows a block. W is a power of two or, where a row has no more leaves than
// warps, any number. A block waits for the prerequisites when it knows what to load.
template <class Op, class Rows, int Warps, int W, bool InOneTurn>
__device__ __forceinline__ void reduce_rows(const ShapedProblem& problem)
{
    static_assert(InOneTurn || (W & (W - 1)) == 0, "each turn folds a subtree");
    constexpr int groups = Warps / W;
    if (!InOneTurn || !lets_in_late<Warps>()) launch_dependents();
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes, group = warp / W, member = warp % W;
    const uint64 row = uint64(blockIdx.x) * groups + group;
    if (!is_same<typename Op::Pivot, Unused> || problem.device_length != nullptr) wait_for_prerequisites();
    const ShapedSource<Op, Rows::where> source(problem, min(row, problem.rows - 1));
    const Placed placed = placed_in<Op, Rows>(problem);
    wait_for_prerequisites();
    typename Op::Accumulator root;
    if constexpr (InOneTurn) {
        __shared__ typename Op::Accumulator slots[Warps];
        root = fold_at_once<Op, Rows, Warps, W>(source, placed, slots, group, member, lane);
        launch_dependents();  // at the latest
    } else {
        __shared__ RowSlots<Op, Warps, W> shared;
        root = fold_in_turns<Op, Rows, Warps, W>(source, placed, shared, group, member, lane);
    }
    if (member == 0 && row < problem.rows && lane == 0) store_result<Op>(problem, source.row, row, root);
}

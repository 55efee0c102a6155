// Strategy `two_pass`: one kernel writes a partial for each tile, and a second one, of a single block, folds them.
#pragma once
#include "tree/grid.cuh"
#include "tree/overlap.cuh"

template <class Op, int Warps> __device__ __forceinline__ void reduce_first_pass(const Problem& problem)
{
    __shared__ BlockSlots<Op, Warps> shared;
    launch_dependents();
    const auto source = whole_array<Op>(problem);
    const auto value = block_fold_tile<Op, Warps>(source, blockIdx.x, shared, 0);
    if (threadIdx.x == 0) grid_slots<Op>(problem.workspace)[blockIdx.x].publish(value);
}

template <class Op, int Warps> __device__ __forceinline__ void reduce_second_pass(const Problem& problem)
{
    __shared__ BlockSlots<Op, Warps> shared;
    launch_dependents();
    wait_for_prerequisites();
    const auto source = whole_array<Op>(problem);
    const auto root = grid_fold<Op, Warps>(grid_slots<Op>(problem.workspace), {uint32(problem.count)}, shared, 0);
    if (threadIdx.x == 0) store_result<Op>(problem, source.row, 0, root);
}

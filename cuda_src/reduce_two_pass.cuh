// Strategy `two_pass`: one kernel writes a partial a tile, a second one of a single block folds them.
#pragma once
#include "grid.cuh"

template <class Op, int Warps>
__device__ __forceinline__ void reduce_first_pass(const void* elements, uint64 length, void* workspace)
{
    __shared__ BlockSlots<Op, Warps> shared;
    launch_dependents();
    wait_for_prerequisites();
    const Source<typename Op::Input> source{static_cast<const char*>(elements), length};
    const auto value = block_fold_tile<Op, Warps>(source, blockIdx.x, shared, 0);
    if (threadIdx.x == 0) grid_slots<Op>(workspace)[blockIdx.x].publish(value);
}

template <class Op, int Warps>
__device__ __forceinline__ void reduce_second_pass(void* result, uint64 length, void* workspace, uint32 partials)
{
    __shared__ BlockSlots<Op, Warps> shared;
    launch_dependents();
    wait_for_prerequisites();
    const auto value = grid_fold<Op, Warps>(grid_slots<Op>(workspace), partials, shared, 0);
    store_result<Op>(result, value, length);
}

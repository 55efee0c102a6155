// Strategies `block` and `cluster`: one cluster of 1 to 16 blocks, the whole grid, folds everything; no workspace.
#pragma once
#include "tree/grid.cuh"

// The cluster has at most `Blocks` blocks. Each, of at most `Warps` warps, folds one tile or, with InTurns, several
// consecutive ones: problem.count, a power of two. The blocks' results are folded in rank 0's shared memory. Without the code
// for several tiles a sum of up to a leaf takes a tenth less.
template <class Op, int Warps, int Blocks, bool InTurns, Begin Where>
__device__ __forceinline__ void reduce_cluster(const Problem& problem)
{
    __shared__ ClusterSlots<Op, Blocks> others;
    const uint32 blocks = Blocks == 1 ? 1 : gridDim.x, warps = blockDim.x / lanes;
    cluster_enter(others, blocks);
    launch_dependents();

    const auto source = whole_array<Op, Where>(problem);
    const uint32 rank = rank_in_cluster(blocks);
    typename Op::Accumulator value;
    if constexpr (InTurns) {
        __shared__ BlockSlots<Op, Warps> shared;
        const uint32 count = uint32(problem.count);
        value = block_fold_tiles<Op, Warps>(source, uint64(rank) * count, count, shared, warps);
    } else {
        __shared__ LaneSlots<Op, Warps> shared;
        const uint64 leaf = rank * warps + warp_of_block();
        value = block_fold_lanes<Op, Warps>(lane_fold<Op>(source, leaf, threadIdx.x % lanes), shared, warps);
    }
    value = cluster_fold(value, others, blocks);
    if (rank == 0 && threadIdx.x == 0) store_result<Op>(problem, source.row, 0, value);
}

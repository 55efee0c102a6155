// Strategy `tiles`: one tile a block, clusters of 1 to 16 blocks, and one cluster more that folds their partials.
//
// The cluster that folds is the grid's last, so it starts when the others have started, and is nearly done when the
// last tile arrives. It waits for the others and nobody waits for anything else: whatever the order in which blocks
// start, all goes on as long as the device has room for two clusters.
#pragma once
#include "grid.cuh"

template <class Op, int Warps, int Blocks> __device__ __forceinline__ void reduce_tiles(const Problem& problem)
{
    __shared__ BlockSlots<Op, Warps> shared;
    cluster_enter<Blocks>();
    launch_dependents();
    wait_for_prerequisites();

    auto* slots = grid_slots<Op>(problem.workspace);
    const auto source = whole_array<Op>(problem);
    const uint32 cluster = blockIdx.x / Blocks, last = gridDim.x / Blocks - 1, rank = rank_in_cluster<Blocks>();
    // Fewer than the grid has if the length is known only now.
    const uint32 clusters = problem.device_length == nullptr ? last : tile_count<Op, Warps * Blocks>(source);
    if (cluster == last && last > 0) {
        if (rank != 0) return;
        const auto root = grid_fold<Op, Warps>(slots, clusters, shared, 0);
        if (threadIdx.x == 0) store_result<Op>(problem, source.row, 0, root);
        return;
    }
    if (cluster >= clusters && last > 0) return;
    auto value = block_fold_tile<Op, Warps>(source, blockIdx.x, shared, 0);
    value = cluster_fold<Op, Blocks>(value);
    if (rank != 0 || threadIdx.x != 0) return;
    if (last == 0) store_result<Op>(problem, source.row, 0, value);
    else slots[cluster].publish(value);
}

// Strategy `tiles`: one tile a block, clusters of 1 to 16 blocks, and one cluster more that folds their partials.
//
// The cluster that folds is the grid's last, so it starts when the others have started, and is nearly done when the
// last tile arrives. It waits for the others and nobody waits for anything else: whatever the order in which blocks
// start, all goes on as long as the device has room for two clusters.
#pragma once
#include "grid.cuh"

// A grid larger than the device lets the next kernel's blocks come at once. In one whose blocks have a multiprocessor each,
// those would take places, and theirs in turn, beside blocks that work: there they come when the elements are loaded.
template <class Op, int Warps, int Blocks> __device__ __forceinline__ void reduce_tiles(const Problem& problem)
{
    __shared__ BlockSlots<Op, Warps> shared;
    cluster_enter<Blocks>();
    const bool has_room = gridDim.x <= multiprocessors();
    if (!has_room) launch_dependents();

    auto* slots = grid_slots<Op>(problem.workspace);
    const auto source = whole_array<Op>(problem);
    const uint32 cluster = blockIdx.x / Blocks, last = gridDim.x / Blocks - 1, rank = rank_in_cluster<Blocks>();
    // Fewer than the grid has if the length is known only now.
    const uint32 clusters = problem.device_length == nullptr ? last : tile_count<Op, Warps * Blocks>(source);
    if (cluster == last && last > 0) {
        launch_dependents();
        if (rank != 0) return;
        wait_for_prerequisites();
        const auto root = grid_fold<Op, Warps>(slots, clusters, shared, 0);
        if (threadIdx.x == 0) store_result<Op>(problem, source.row, 0, root);
        return;
    }
    if (cluster >= clusters && last > 0) return;
    prefetch_tile<Op, Warps>(source, blockIdx.x);
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    auto value = leaf_fold<Op>(source, uint64(blockIdx.x) * Warps + warp, lane);
    if (has_room) launch_dependents();
    value = block_fold<Op, Warps>(value, shared, 0);
    value = cluster_fold<Op, Blocks>(value);
    if (rank != 0 || threadIdx.x != 0) return;
    // The row anew: kept all along it would take registers that the elements need.
    if (last == 0) store_result<Op>(problem, whole_array<Op>(problem).row, 0, value);
    else slots[cluster].publish(value);
}

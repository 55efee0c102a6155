// Strategy `tiles`: one tile a block, in clusters of 1 to 16 blocks, and one or more clusters that fold their partials.
//
// The folding clusters are the grid's last, so they start when the others have started, and are nearly done when the last
// partial arrives. They wait for the others, and the last of them for all that fold; no other block waits for anything. So even
// if blocks started in another order, all would make progress as long as the device has room for one cluster more than those
// that fold.
#pragma once
#include "tree/grid.cuh"
#include "tree/overlap.cuh"

// Clusters that have a tile; fewer than were launched for tiles if the length is known only on the device.
template <class Op, uint32 Leaves> __device__ __forceinline__ uint32 clusters_in_use(const Problem& problem)
{
    using T = typename Op::Input;
    if (problem.device_length == nullptr) return uint32(problem.count);
    return max(1u, uint32((leaves_of<T>(problem.actual_length()) + Leaves - 1) / Leaves));
}

// The number of a cluster among the `count` that have a tile, the last tile first: its elements were written last and may still
// be in the L2 (benchmarks/NOTES.md, "The end first"). Clusters of several blocks stay in order, and so do blocks that fill a
// multiprocessor, which have no register to spare; nor have others for a division by another number than a power of two.
template <int Warps, int Blocks> __device__ __forceinline__ uint32 cluster_of(uint32 block, uint32 count)
{
    const uint32 number = Blocks == 1 && Warps < 32 ? tile_of(block, count, 256) : block / Blocks;
    return number < count ? count - 1 - number : number;
}

// What a block shares. Tiles of up to eight warps fold the lanes of all warps together, which larger ones lose by
// (benchmarks/NOTES.md, "One block, and one cluster").
template <class Op, int Warps, bool ByLanes = Warps <= 8 && folds_lanes_together<Op, Warps>> struct TileSlots {
    BlockSlots<Op, Warps> warps;
};
template <class Op, int Warps> struct TileSlots<Op, Warps, true> {
    BlockSlots<Op, Warps> warps;
    LaneSlots<Op, Warps> lanes;
};

// Folds a tile. Every thread of the block calls it, once; all lanes of warp 0 hold the result.
template <class Op, int Warps, class S, bool ByLanes>
__device__ __forceinline__ typename Op::Accumulator
tile_fold(const S& source, uint64 leaf, uint32 lane, TileSlots<Op, Warps, ByLanes>& shared)
{
    if constexpr (ByLanes) return block_fold_lanes<Op, Warps>(lane_fold<Op>(source, leaf, lane), shared.lanes);
    else return block_fold<Op, Warps>(leaf_fold<Op>(FoldedWhenThere<S>(source), leaf, lane), shared.warps, 0);
}

// Folds the partials of tiles like grid_fold_by; if AreFew, there are no more than one block takes with a thread for
// each. These, where they are more than a warp takes, have their lanes folded together, unless they are wide: in less
// code, and straight.
template <class Op, int Warps, bool AreFew, bool ByLanes>
__device__ __forceinline__ bool
tiles_fold(const Problem& problem, uint32 folder, uint32 folders, uint32 clusters, TileSlots<Op, Warps, ByLanes>& shared,
           typename Op::Accumulator& root)
{
    auto* slots = grid_slots<Op>(problem.workspace);
    if constexpr (AreFew && !ByLanes) {
        root = Op::identity();
        if (all_agree(threadIdx.x / lanes * lanes < clusters)) grid_take<Op, 1>(&root, slots, threadIdx.x, {clusters});
        root = warp_fold<Op>(root);
        if (lanes < clusters) root = block_fold<Op, Warps>(root, shared.warps, 0);
        return true;
    } else if constexpr (AreFew) {
        if (lanes < clusters) return grid_fold_lanes<Op, Warps>(slots, clusters, shared.lanes, root);
        if (all_agree(threadIdx.x < lanes)) {
            grid_take<Op, 1>(&root, slots, threadIdx.x, {clusters});
            root = warp_fold<Op>(root);
        }
        return true;
    } else {
        if constexpr (ByLanes)
            if (lanes < clusters && clusters <= Warps * lanes)
                return grid_fold_lanes<Op, Warps>(slots, clusters, shared.lanes, root);
        return grid_fold_by<Op, Warps>(folder, folders, slots, clusters, shared.warps, root);
    }
}

// The next kernel's blocks are let in at once or, in grids of few turns, when a tile is folded: any earlier they would come
// before this block has gone, and crowd (benchmarks/NOTES.md, "Blocks that crowd").
template <class Op, int Warps, int Blocks, Begin Where, bool AreFew = false>
__device__ __forceinline__ void reduce_tiles(const Problem& problem)
{
    __shared__ TileSlots<Op, Warps> shared;
    __shared__ ClusterSlots<Op, Blocks> others;
    cluster_enter(others);
    if (!lets_in_late(Warps)) launch_dependents();

    const uint32 most = uint32(problem.count), cluster = cluster_of<Warps, Blocks>(blockIdx.x, most);
    const uint32 rank = rank_in_cluster(Blocks), tile = cluster * Blocks + rank;
    const auto source = whole_array<Op, Where>(problem);
    if (cluster >= most) {
        launch_dependents();
        if (rank != 0) return;
        wait_for_prerequisites();
        const uint32 clusters = clusters_in_use<Op, Warps * Blocks>(problem), folders = gridDim.x / Blocks - most;
        typename Op::Accumulator root;
        if (!tiles_fold<Op, Warps, AreFew>(problem, cluster - most, folders, clusters, shared, root)) return;
        if (threadIdx.x == 0) store_result<Op>(problem, source.row, 0, root);
        return;
    }
    if (problem.device_length != nullptr && gridDim.x > Blocks && cluster >= tile_count<Op, Warps * Blocks>(source)) return;
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;  // warp_of_block would take too many registers
    auto value = tile_fold(source, uint64(tile) * Warps + warp, lane, shared);
    launch_dependents();  // at the latest
    value = cluster_fold(value, others);
    if (rank_in_cluster(Blocks) != 0 || threadIdx.x != 0) return;
    // Makes the row and the number anew: kept all along they would take registers that the elements need.
    if (gridDim.x == Blocks) store_result<Op>(problem, whole_array<Op, Where>(problem).row, 0, value);
    else grid_slots<Op>(problem.workspace)[cluster_of<Warps, Blocks>(block_anew(), uint32(problem.count))].publish(value);
}

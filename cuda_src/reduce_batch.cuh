// Few long rows: each is cut into tiles, one a block, in clusters of 1 to 16 blocks. A row of one cluster is folded in that
// cluster's shared memory; the partials of longer rows are folded by other blocks as they come.
#pragma once
#include "grid.cuh"
#include "overlap.cuh"
#include "row_leaf.cuh"
#include "row_partials.cuh"

// One leaf of a row by one warp, which waits for the prerequisites here, as late as it can. All 32 lanes call it.
template <class Op, class Rows, class S>
__device__ __forceinline__ typename Op::Accumulator late_leaf_fold(const S& source, uint64 leaf, uint32 lane)
{
    if constexpr (Rows::where == Begin::aligned || (Rows::are_contiguous && !has_second<Op>)) {
        return leaf_fold<Op>(source, leaf, lane);
    } else {
        const Placed placed = placed_in<Op, Rows>(source.problem);
        wait_for_prerequisites();
        return row_leaf_fold<Op, Rows>(source, leaf, placed, lane);
    }
}

// Folds a tile of a row in each block of a cluster. All threads of the cluster call it; warp 0 of the first block holds the
// fold of all these tiles. The next kernel's blocks have been let in already or, in grids of few turns, are let in here: when
// elements are loaded or, where other blocks have yet to fold what is published, when the tile is folded. These then come when
// this block has gone, and do not crowd (benchmarks/NOTES.md, "Blocks that crowd").
template <class Op, class Rows, int Warps, int Blocks, bool IsShared>
__device__ __forceinline__ typename Op::Accumulator
batch_fold(const ShapedProblem& problem, uint32 row, uint32 tile, BlockSlots<Op, Warps>& shared,
           ClusterSlots<Op, Blocks>& others)
{
    const uint32 warp = warp_of_block(), lane = threadIdx.x % lanes;
    if (!is_same<typename Op::Pivot, Unused> || problem.device_length != nullptr) wait_for_prerequisites();
    const ShapedSource<Op, Rows::where> source(problem, row);
    auto value = late_leaf_fold<Op, Rows>(source, uint64(tile) * Warps + warp, lane);
    if (!IsShared) launch_dependents();
    value = block_fold<Op, Warps>(value, shared, 0);
    if (IsShared) launch_dependents();
    return cluster_fold(value, others);
}

// The number of a cluster among the `count` that fold tiles, the last one first, as in whole arrays. Clusters of several blocks
// stay in order, and so do operators that do not fold a leaf at once: norms and squares of float32 would spill.
template <class Op, int Warps, int Blocks> __device__ __forceinline__ uint32 cluster_in_batch(uint32 block, uint32 count)
{
    constexpr bool in_runs = Blocks == 1 && Op::folds_leaves;
    const uint32 number = in_runs ? tile_of(block, count, places<Warps>()) : block / Blocks;
    return number < count ? count - 1 - number : number;
}

// Where several clusters share a row, the grid's last clusters fold what these publish, each by its first block: equally many
// clusters for each row or, if there are fewer of them than rows, each warp some rows (row_policy._batch decides which). They
// start when all others have started, and no other block waits for them.
template <class Op, class Rows, int Warps, int Blocks, bool IsShared>
__device__ __forceinline__ void reduce_batch(const ShapedProblem& problem)
{
    __shared__ BlockSlots<Op, Warps> shared;
    __shared__ ClusterSlots<Op, Blocks> others;
    cluster_enter(others);
    if (!lets_in_late<Warps>()) launch_dependents();
    const uint32 clusters = IsShared ? uint32(problem.count) : 1, folding = uint32(problem.rows) * clusters;  // of a row, of all
    const uint32 cluster = cluster_in_batch<Op, Warps, Blocks>(blockIdx.x, folding), rank = rank_in_cluster<Blocks>();
    if constexpr (!IsShared) {
        const auto root = batch_fold<Op, Rows, Warps, Blocks, false>(problem, cluster, rank, shared, others);
        if (rank != 0 || threadIdx.x != 0) return;
        store_result<Op>(problem, ShapedSource<Op>(problem, cluster).row, cluster, root);
    } else {
        auto* slots = grid_slots<Op>(problem.workspace);
        if (cluster < folding) {
            const uint32 row = cluster / clusters, tile = (cluster - row * clusters) * Blocks + rank;
            const auto value = batch_fold<Op, Rows, Warps, Blocks, true>(problem, row, tile, shared, others);
            // Makes the number anew: kept all along it would take a register that the elements need.
            if (rank == 0 && threadIdx.x == 0) slots[cluster_in_batch<Op, Warps, Blocks>(block_anew(), folding)].publish(value);
        } else if (rank == 0) {
            launch_dependents();
            wait_for_prerequisites();
            const uint32 number = cluster - folding, all = gridDim.x / Blocks - folding, rows = uint32(problem.rows);
            if (all < rows) return fold_partials_by_warps<Op, Warps>(problem, number, all);
            const uint32 folders = all / rows, row = number / folders, folder = number - row * folders;
            typename Op::Accumulator root;
            if (!grid_fold_by<Op, Warps>(folder, folders, slots + uint64(row) * clusters, clusters, shared, root)) return;
            const ShapedSource<Op> source(problem, row);
            if (threadIdx.x == 0) store_result<Op>(problem, source.row, row, root);
        }
    }
}

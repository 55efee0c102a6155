// Few long rows: each is cut into tiles, one a block, in clusters of up to 16 blocks. A row of one cluster is folded in that
// cluster's shared memory; the partials of longer rows are folded by other blocks as they come.
#pragma once
#include "tree/grid.cuh"
#include "tree/overlap.cuh"
#include "rows/row_cut.cuh"
#include "rows/row_leaf.cuh"
#include "rows/row_partials.cuh"
#include "rows/staged_leaves.cuh"

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

// Where the `number`-th of `count` tiles lies that are taken from `groups` runs of them in turn, all of one length, or one longer.
// So tiles that read the same sectors, because rows of memory lie across the tree, are read while these are in the L2. There are
// less than 2^16 groups.
__device__ __forceinline__ uint32 tile_of_group(uint32 number, uint32 count, uint32 groups)
{
    const uint32 each = count / groups, rest = count - each * groups;
    const uint32 place = number / groups, group = number - place * groups;
    if (place < each) return group * each + group * rest / groups + place;
    return ((group + 1) * groups + rest - 1) / rest * each + group;  // the last of the group-th longer one
}

// The number of a cluster among the `count` that fold tiles, the last one first, as in whole arrays. Clusters of several blocks
// stay in order, and so do operators that do not fold a leaf at once: norms and squares of float32 would spill.
template <class Op> __device__ __forceinline__ uint32 cluster_in_batch(uint32 block, uint32 count, const RowCut& cut)
{
    uint32 number = block;
    if (cut.blocks > 1) number = block / cut.blocks;
    else if constexpr (Op::folds_leaves) number = tile_of(block, count, cut.places * multiprocessors());
    return number < count ? count - 1 - number : number;
}

// The same of strided rows, whose tiles are taken from `problem.run` groups in turn if that is more than one, and no `StagedCut`.
template <class Op, class Rows>
__device__ __forceinline__ uint32 cluster_of_rows(const ShapedProblem& problem, uint32 block, uint32 count, const RowCut& cut)
{
    if constexpr (!Rows::are_contiguous)
        if (problem.run > 1 && problem.run >> 32 == 0 && block < count)
            return count - 1 - tile_of_group(block, count, uint32(problem.run));
    return cluster_in_batch<Op>(block, count, cut);
}

// Folds the partials of all rows as they come, as cluster `number` of `all`. Where these are fewer than rows, each warp
// folds some rows, else equally many clusters each row (`_batch` in strategy/rows.py decides which). All threads of a
// block call it.
template <class Op, int Warps>
__device__ __forceinline__ void
fold_batch_partials(const ShapedProblem& problem, const RowCut& cut, uint32 number, uint32 all, BlockSlots<Op, Warps>& shared)
{
    const uint32 rows = uint32(problem.rows), clusters = cut.parts;
    if (all < rows) {
        const RowFolders by{clusters, number, all, cut.warps, true};
        return fold_row_partials<Op, Warps>(problem, by, shared, [&](uint64 row, typename Op::Accumulator root) {
            store_result<Op>(problem, ShapedSource<Op>(problem, row).row, row, root);
        });
    }
    const uint32 folders = all / rows, row = number / folders, folder = number - row * folders;
    auto* slots = grid_slots<Op>(problem.workspace) + uint64(row) * clusters;
    typename Op::Accumulator root;
    if (!grid_fold_by<Op, Warps>(folder, folders, slots, clusters, shared, root, cut.warps)) return;
    const ShapedSource<Op> source(problem, row);
    if (threadIdx.x == 0) store_result<Op>(problem, source.row, row, root);
}

// Blocks have at most `Warps` warps. Where several clusters share a row, the grid's last clusters fold what these publish,
// each by its first block: they start when all others have started, and no other block waits for them.
//
// The next kernel's blocks are let in at once or, in grids of few turns, when elements are loaded or, where other blocks have
// yet to fold what is published, when the tile is folded. These then come when this block has gone, and do not crowd
// (benchmarks/NOTES.md, "Blocks that crowd").
template <class Op, class Rows, int Warps> __device__ __forceinline__ void reduce_batch(const ShapedProblem& problem)
{
    __shared__ BlockSlots<Op, Warps> shared;
    __shared__ ClusterSlots<Op, most_in_cluster> others;
    const RowCut cut(problem.count);
    const bool is_shared = cut.parts > 1;
    constexpr bool stages = !Rows::are_contiguous && may_be_staged<Op>;
    const StagedCut staged(stages ? problem.run : 0);
    __shared__ StagedRings<Op, stages> rings;
    __shared__ uint32 of_strided;  // the cluster's number, for the first thread, which is long to make
    cluster_enter(others, cut.blocks);
    if (!lets_in_late(blockDim.x / lanes)) launch_dependents();
    uint32 folding = is_shared ? uint32(problem.rows) * cut.parts : gridDim.x / cut.blocks;  // clusters that fold tiles
    if (staged.leaves > 0) folding = staged.blocks;
    const uint32 cluster = cluster_of_rows<Op, Rows>(problem, blockIdx.x, folding, cut), rank = rank_in_cluster(cut.blocks);
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;  // warp_of_block would take too many registers
    if (!Rows::are_contiguous && threadIdx.x == 0) of_strided = cluster;
    if (cluster >= folding) {
        launch_dependents();
        wait_for_prerequisites();
        if (rank != 0) return;
        return fold_batch_partials<Op>(problem, cut, cluster - folding, gridDim.x / cut.blocks - folding, shared);
    }
    if (!is_same<typename Op::Pivot, Unused> || problem.device_length != nullptr) wait_for_prerequisites();
    const uint32 sharing = staged.leaves > 0 ? staged.blocks / uint32(problem.rows) : cut.parts;  // of a row
    const uint32 row = is_shared ? cluster / sharing : cluster, part = is_shared ? cluster - row * sharing : 0;
    uint32 leaf = (part * cut.blocks + rank) * cut.warps + warp;
    const ShapedSource<Op, Rows::where> source(problem, row);
    auto* slots = grid_slots<Op>(problem.workspace) + uint64(row) * cut.parts;
    LeavesLeft left{leaf, ~0u};
    if constexpr (stages)
        if (staged.leaves > 0) {
            wait_for_prerequisites();
            left = fold_staged<Op>(source, staged, part, rings, slots);
        }
    typename Op::Accumulator value;
#pragma unroll 1
    for (leaf = left.first;; ++leaf) {
        if (stages && leaf == left.end) return;
        value = late_leaf_fold<Op, Rows>(source, leaf, lane);
        if (!stages || staged.leaves == 0) break;
        if (lane == 0) slots[leaf].publish(value);
    }
    if (!is_shared) launch_dependents();
    value = block_fold<Op, Warps>(value, shared, 0, cut.warps);
    if (is_shared) launch_dependents();
    value = cluster_fold(value, others, cut.blocks);
    if (rank_in_cluster(cut.blocks) != 0 || threadIdx.x != 0) return;
    // Makes the number anew: kept all along it would take a register that the elements need.
    const uint32 number = Rows::are_contiguous ? cluster_in_batch<Op>(block_anew(), folding, cut) : of_strided;
    if (is_shared) grid_slots<Op>(problem.workspace)[number].publish(value);
    else store_result<Op>(problem, ShapedSource<Op>(problem, number).row, number, value);
}

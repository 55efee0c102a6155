// A whole array at any address, in place of `block`, `cluster` and `tiles`: one kernel for the launches of all three,
// which need not be as fast as aligned ones, but are to be compiled once.
#pragma once
#include "tree/grid.cuh"
#include "tree/overlap.cuh"

// How many of the grid's tiles, of a leaf a warp, an array has that may be shorter than its upper bound.
__device__ __forceinline__ uint32 tiles_in_use(uint64 leaves, uint32 warps)
{
    return max(1u, uint32((leaves + warps - 1) / warps));
}

// Which of `count` tiles a block takes: the last first, and in runs, as `cluster_of` in reduce_tiles has it.
__device__ __forceinline__ uint32 tile_from_end(uint32 block, uint32 count) { return count - 1 - tile_of(block, count, 256); }

// Blocks have at most `Warps` warps, and a tile as many leaves as the block has warps. If problem.count is 1 the grid
// is one cluster of at most `Blocks` blocks, a tile each; else it counts the tiles, a block each, behind which come the
// blocks that fold partials as in reduce_tiles. There the next kernel's blocks are let in as late as in reduce_tiles
// too: in grids of few turns they would crowd.
template <class Op, int Warps, int Blocks> __device__ __forceinline__ void reduce_anywhere(const Problem& problem)
{
    __shared__ BlockSlots<Op, Warps> shared;
    __shared__ ClusterSlots<Op, Blocks> others;
    const uint32 most = uint32(problem.count), warps = blockDim.x / lanes, blocks = most == 1 ? gridDim.x : 1;
    cluster_enter(others, blocks);
    if (most == 1 || !lets_in_late(warps)) launch_dependents();

    const auto source = whole_array<Op>(problem);
    if (most > 1 && blockIdx.x >= most) {
        launch_dependents();
        wait_for_prerequisites();
        const uint32 tiles = tiles_in_use(source.leaf_count(), warps);
        typename Op::Accumulator root;
        auto* slots = grid_slots<Op>(problem.workspace);
        if (!grid_fold_by<Op, Warps>(blockIdx.x - most, gridDim.x - most, slots, tiles, shared, root, warps)) return;
        if (threadIdx.x == 0) store_result<Op>(problem, source.row, 0, root);
        return;
    }
    const uint32 tile = most == 1 ? rank_in_cluster(blocks) : tile_from_end(blockIdx.x, most);
    if (most > 1 && tile >= tiles_in_use(source.leaf_count(), warps)) return;
    // An array that begins at a 16-byte boundary has another kernel, unless a second array does not.
    constexpr bool meets_no_aligned = !has_second<Op>;
    const uint64 leaf = uint64(tile) * warps + threadIdx.x / lanes;  // warp_of_block would take too many registers
    auto value = leaf_fold<Op, joins_whole_leaves<Op>, false, meets_no_aligned>(source, leaf, threadIdx.x % lanes);
    value = block_fold<Op, Warps>(value, shared, 0, blockDim.x / lanes);
    launch_dependents();  // at the latest
    // Made anew, as the row and the numbers are: kept all along they would take registers that the elements need.
    if (uint32(problem.count) > 1) {
        if (threadIdx.x == 0) grid_slots<Op>(problem.workspace)[tile_from_end(block_anew(), uint32(problem.count))].publish(value);
        return;
    }
    value = cluster_fold(value, others, gridDim.x);
    if (threadIdx.x == 0 && rank_in_cluster(gridDim.x) == 0) store_result<Op>(problem, whole_array<Op>(problem).row, 0, value);
}

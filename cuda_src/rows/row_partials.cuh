// Folds the partials that several blocks have made of each row: by warps where rows have few, else by blocks.
#pragma once
#include "tree/grid.cuh"
#include "columns/shape.cuh"

// The most partials of a row that one warp folds. The same in strategy/base.py, WARP_FOLDS.
constexpr uint32 warp_folds = 4 * lanes;

constexpr uint32 most_folders = 512;  // blocks that fold partials of columns, or runs of them: MOST_FOLDERS in strategy/columns.py

// Who folds the partials of all rows, `count` of each: block `number` of `all`, of `warps` warps. Each warp folds as
// many rows at once as it can or, not `by_warps`, each block a row.
struct RowFolders {
    static constexpr bool in_runs = false;
    uint32 count, number, all, warps;
    bool by_warps;
};

// The same of `rows` runs of partials, whose first lies in slot `first`. The last run may have fewer, if there are only
// `partials`, and no two runs to a warp.
struct RunFolders : RowFolders {
    static constexpr bool in_runs = true;
    uint64 rows, first, partials;
};

// Folds `batches` times 128 partials in the order of their numbers, from batch `first` on, `chunks` times 32 of them
// for each of 4 / chunks rows, of which `rows` exist; only one batch if those are several. Those past a row's last are
// absent. All 32 lanes of a warp call it; lane l holds the fold of row l % 4 / chunks.
template <class Op>
__device__ __forceinline__ typename Op::Accumulator
fold_batches(Slot<typename Op::Accumulator>* slots, uint32 count, uint32 first, uint32 batches, uint32 chunks, uint32 rows)
{
    constexpr uint32 in_flight = warp_folds / lanes;
    const uint32 lane = threadIdx.x % lanes;
    WarpCounter<Op> counter;
#pragma unroll 1
    for (uint32 i = 0;; ++i) {
        uint32 places[in_flight];
#pragma unroll
        for (uint32 k = 0; k < in_flight; ++k) {
            const uint32 part = (first + i) * warp_folds + k % chunks * lanes + lane, row = k / chunks;
            places[k] = part < count && row < rows ? row * count + part : ~0u;
        }
        typename Op::Accumulator a[in_flight];
        grid_take_places<Op, in_flight>(a, slots, places);
        warp_fold_rows<Op, lanes, in_flight>(a, lane);
        auto value = a[0];
#pragma unroll 1
        for (uint32 mask = 1; mask < chunks; mask *= 2) value = Op::combine(value, shuffle_xor(value, mask));
        if (batches == 1) return value;
        counter.push(value, lane);
        if (i + 1 == batches) return counter.result();
    }
}

// Folds the partials of all rows as they come; store(row, root) takes what becomes of each. All threads of the block call it.
// Each step stands once, whoever folds: code is what takes time to compile and to fetch.
template <class Op, int Warps, class Folders, class Store>
__device__ __forceinline__ void
fold_row_partials(const ShapedProblem& problem, const Folders& by, BlockSlots<Op, Warps>& shared, Store store)
{
    const auto all_rows = [&] {
        if constexpr (Folders::in_runs) return by.rows;
        else return problem.rows;
    };
    const uint32 warp = warp_of_block(), lane = threadIdx.x % lanes, count = by.count;
    const uint32 chunks = by.by_warps && count <= lanes ? 1 : by.by_warps && count <= 2 * lanes ? 2 : 4, at_once = 4 / chunks;
    const uint32 step = by.by_warps ? by.all * by.warps * at_once : by.all;
    uint32 batches = 1;  // for each warp; 2^40 bytes make 2^25 partials at most
    if (!by.by_warps)
        while (batches * warp_folds * by.warps < count) batches *= 2;
    uint32 turn = 0;
#pragma unroll 1
    for (uint64 row = by.by_warps ? (by.number * by.warps + warp) * at_once : by.number; row < all_rows(); row += step) {
        const uint32 rows = by.by_warps ? uint32(min(all_rows() - row, uint64(at_once))) : 1;
        auto* slots = grid_slots<Op>(problem.workspace) + row * count;
        uint32 there = rows * count;
        if constexpr (Folders::in_runs) {
            slots += by.first;
            there = uint32(min(uint64(there), by.partials - row * count));
        }
        grid_await<Op>(slots + there - 1);
        if (!by.by_warps) __syncthreads();  // all have seen the last partial before a warp takes it, which leaves its slot empty
        const uint32 present = Folders::in_runs ? min(count, there) : count, first = by.by_warps ? 0 : warp * batches;
        auto root = fold_batches<Op>(slots, present, first, batches, chunks, rows);
        if (!by.by_warps) root = block_fold<Op, Warps>(root, shared, turn++, by.warps);
        const uint32 its_row = by.by_warps ? lane / chunks : 0;
        if (by.by_warps ? lane >= 4 || lane % chunks != 0 || its_row >= rows : threadIdx.x != 0) continue;
        store(row + its_row, root);
    }
}

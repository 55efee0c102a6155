// How the host has cut columns, and which of them a block has.
#pragma once
#include "columns/column_loads.cuh"
#include "columns/column_meeting.cuh"

// Who folds the partials that several blocks have made of each row. nobody: a block makes the whole row's. cluster: these blocks
// are a cluster, whose first one does. warps: each warp those of a row, or of some rows. blocks: each block those of a row.
enum class FoldedBy : uint32 { nobody, cluster, warps, blocks };

// How the host has cut the columns: `Problem::count`, which row_strategy.RowStrategy.count makes. All but `parts` are logarithms.
struct ColumnCut {
    uint32 parts;    // blocks that share a row's vectors
    uint32 columns;  // of a block, side by side
    uint32 vectors;  // of each of them, that the block's threads fold in a turn
    uint32 turns;    // of the block
    FoldedBy by;

    __device__ __forceinline__ explicit ColumnCut(uint64 word)
        : parts(uint32(word)), columns(uint32(word >> 32) & 255), vectors(uint32(word >> 40) & 255), turns(uint32(word >> 48) & 15),
          by(FoldedBy(word >> 56))
    {}

    // Blocks that fold partials come after those that make them. strategy/columns.py computes the same number.
    __device__ __forceinline__ uint32 folders(uint64 rows) const
    {
        constexpr uint64 most = 512;
        if (by != FoldedBy::warps && by != FoldedBy::blocks) return 0;
        return uint32(min(by == FoldedBy::warps ? (rows + column_warps - 1) / column_warps : rows, most));
    }
};

__device__ __forceinline__ uint64 quotient(uint64 a, uint64 b)
{
    return a < b ? 0 : (a | b) >> 32 == 0 ? uint32(a) / uint32(b) : a / b;
}

// The columns of a block, and which part of their lanes it has. Threads that stand side by side have C neighbouring rows each,
// or fewer where a run of rows that lie side by side ends. `MayJoin`: they may be parts of rows.
template <int C, bool MayJoin> struct ColumnTile {
    const ShapedProblem& problem;
    uint64 first;         // of the block's threads side by side, counted over all runs
    uint32 threads, part; // how many of them have rows

    __device__ __forceinline__ ColumnTile(const ShapedProblem& p, const ColumnCut& cut, uint32 block) : problem(p)
    {
        constexpr uint32 width = log2_of(C);
        const uint64 all = has_one_run() ? of_a_run() : of_a_run() * quotient(MayJoin ? p.columns() : p.rows, p.kept.size[0]);
        const uint32 beside = cut.columns - width, tiles = uint32(((all - 1) >> beside) + 1);  // at most a grid's blocks
        uint32 tile = block;
        part = 0;
        if (cut.parts > 1) {  // parts of the same columns are neighbours in a cluster, else those of other columns
            const bool in_cluster = cut.by == FoldedBy::cluster;
            const uint32 by = in_cluster ? cut.parts : tiles, which = block / by, past = block - which * by;
            tile = in_cluster ? which : past;
            part = in_cluster ? past : cut.parts - 1 - which;
        }
        first = uint64(tile) << beside;
        threads = uint32(min(all - first, uint64(1u << beside)));
    }

    // The first row of the thread with this number, and how many it has.
    __device__ __forceinline__ uint64 row(uint32 thread, int& rows) const
    {
        const uint64 number = first + thread, inner = problem.kept.size[0];
        const uint64 run = has_one_run() ? 0 : quotient(number, of_a_run()), column = (number - run * of_a_run()) * C;
        rows = int(min(inner - column, uint64(C)));
        return run * inner + column;
    }

private:
    __device__ __forceinline__ bool has_one_run() const { return problem.kept.count <= 1; }
    __device__ __forceinline__ uint64 of_a_run() const { return (problem.kept.size[0] + C - 1) / C; }
};

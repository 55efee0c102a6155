// Columns: the elements of a row lie a stride apart and neighbouring rows beside each other, so that a thread loads a
// vector across C rows and folds each of them in the order of the tree.
#pragma once
#include "column_cluster.cuh"
#include "columns_ahead.cuh"
#include "columns_wide.cuh"
#include "overlap.cuh"
#include "row_partials.cuh"

// Writes the results of C neighbouring rows from number `row` on, of which `available` exist. One thread calls it.
template <class Op, int C>
__device__ __forceinline__ void
store_columns(const ShapedProblem& problem, const RowOf<Op>* rows, uint64 row, int available, const typename Op::Accumulator* a)
{
    using R = typename Op::Result;
#pragma unroll
    for (int k = 0; k < Op::results; ++k) {
        auto* results = reinterpret_cast<R*>(problem.result) + k * problem.rows + row;
        R values[C];
#pragma unroll
        for (int c = 0; c < C; ++c) values[c] = rows[c].length == 0 ? Op::empty(rows[c], k) : Op::finish(a[c], rows[c], k);
        if constexpr (C * sizeof(R) <= vector_bytes) {
            if (available == C && reinterpret_cast<uint64>(results) % (C * sizeof(R)) == 0) {
                ColumnVector<R, C> v;
#pragma unroll
                for (int c = 0; c < C; ++c) v.elements[c] = values[c];
                *reinterpret_cast<decltype(v.whole)*>(results) = v.whole;
                continue;
            }
        }
#pragma unroll
        for (int c = 0; c < C; ++c)
            if (c < available) results[c] = values[c];
    }
}

// Rows of at most a leaf, C of them folded by each thread: nothing is exchanged. They may lie in any way, as far as the compiler
// knows: with code for rows along one axis alone, sums of float32 spill.
template <class Op, int C, int Lanes, int Steps>
__device__ __forceinline__ void reduce_columns_alone(const ShapedProblem& problem)
{
    launch_dependents();
    wait_for_prerequisites();
    const uint64 inner = problem.kept.size[0], beside = (inner + C - 1) / C;
    const uint64 number = uint64(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64 outer = beside > number ? 0 : number >> 32 == 0 ? uint32(number) / uint32(beside) : number / beside;
    const uint64 column = (number - outer * beside) * C, row = outer * inner + column;
    if (row >= problem.rows) return;
    const int available = int(min(inner - column, uint64(C)));
    const Columns<Op, AnyAxes, C, Lanes, Steps> source(problem, row, available, available == C);
    typename Op::Accumulator a[C];
    if (source.length > 0) source.template fold_lanes<Lanes>(0, 0, a);
    store_columns<Op, C>(problem, source.rows, row, available, a);
}

// Who folds the partials that several blocks have made of each row. nobody: a block makes the whole row's. cluster: these blocks
// are a cluster, whose first one does. warps: each warp those of a row, or of some rows. blocks: each block those of a row.
enum class FoldedBy { nobody, cluster, warps, blocks };
__host__ __device__ constexpr bool by_others(FoldedBy by) { return by == FoldedBy::warps || by == FoldedBy::blocks; }

// Blocks that fold partials come after those that make them. column_tiles.folders computes the same number.
template <int Warps, FoldedBy By> __device__ __forceinline__ uint32 folders_of(const ShapedProblem& problem)
{
    constexpr uint64 most = 512;
    static_assert(by_others(By), "there are partials in memory");
    return uint32(min(By == FoldedBy::warps ? (problem.rows + Warps - 1) / Warps : problem.rows, most));
}

// Folds the partials of all rows as they come, as block `folder` of `folders`. All threads of the block call it.
template <class Op, class Kept, int Warps, FoldedBy By>
__device__ __forceinline__ void fold_column_partials(const ShapedProblem& problem, uint32 folder, uint32 folders)
{
    if constexpr (By == FoldedBy::warps) {
        fold_partials_by_warps<Op, Warps>(problem, folder, folders);
    } else {
        const uint32 count = uint32(problem.count);
        __shared__ BlockSlots<Op, Warps> shared;
        uint32 turn = 0;
#pragma unroll 1
        for (uint64 row = folder; row < problem.rows; row += folders) {
            auto* slots = grid_slots<Op>(problem.workspace) + row * count;
            grid_await<Op>(slots + count - 1);
            __syncthreads();  // all have seen the last partial before a warp takes it, which leaves its slot empty
            const auto root = grid_fold<Op, Warps>(slots, {count}, shared, turn++);
            if (threadIdx.x == 0) store_result<Op>(problem, ShapedSource<Op>(problem, row).row, row, root);
        }
    }
}

// The rows of a block, which lie side by side, and which part of their lanes it has.
struct ColumnTile {
    uint64 first_row;
    int rows;
    uint32 part;
};

// This block's tile: X threads stand side by side, with C rows each. Rows side by side are divided evenly among blocks, but
// for the last, so that none has few. Tiles of neighbouring rows are neighbours, or else parts of the same rows, in a cluster.
template <int X, int C, FoldedBy By> __device__ __forceinline__ ColumnTile column_tile(const ShapedProblem& problem)
{
    const uint64 inner = problem.kept.size[0], side_by_side = (inner + C - 1) / C;
    const uint32 column_tiles = uint32((side_by_side + X - 1) / X);  // at most a grid's blocks
    const uint32 width = (uint32((side_by_side + column_tiles - 1) / column_tiles) + 3) / 4 * 4 * C;
    const uint32 parts = uint32(problem.count), tile = By == FoldedBy::cluster ? blockIdx.x / parts : blockIdx.x;
    const uint32 group = tile / column_tiles, part = By == FoldedBy::cluster ? blockIdx.x % parts : group % parts;
    const uint64 first_column = uint64(tile % column_tiles) * width;
    const uint64 outer = By == FoldedBy::cluster ? group : group / parts;
    return {outer * inner + first_column, int(min(inner - first_column, uint64(width))), part};
}

// Publishes or stores what the thread has of its column, if it has one; `length` is that of the rows.
template <class Op, class Kept, FoldedBy By, class Meeting, class Cluster>
__device__ __forceinline__ void
end_columns(const ShapedProblem& problem, const ColumnTile& tile, const Meeting& meeting, const Cluster& cluster, int column,
            uint64 length)
{
    const bool has_column = meeting.has_column() && column < tile.rows;
    if (By != FoldedBy::cluster && !has_column) return;
    auto value = has_column && length > 0 ? meeting.result() : Op::identity();
    if constexpr (By == FoldedBy::cluster)
        if (!cluster.meet(value, has_column, column)) return;
    const uint64 row = tile.first_row + column, parts = problem.count;
    if (by_others(By)) grid_slots<Op>(problem.workspace)[row * parts + tile.part].publish(value);
    else store_result<Op>(problem, ShapedSource<Op>(problem, row, length).row, row, value);
}

// X threads of a block stand side by side, with C rows each, and those behind each other divide the lanes of the tree among
// them, K lanes each, a power of two. `count` blocks share the lanes of all leaves of a row, and those of neighbouring rows are
// neighbours, because these lie side by side. A block waits for the prerequisites when it knows what to load. If not `IsEarly`,
// the next kernel's blocks are let in when elements are loaded: in a short grid they would otherwise crowd on the
// multiprocessors with the most room (benchmarks/NOTES.md, "How columns are cut").
template <class Op, class Kept, int Warps, int X, int C, int Lanes, int Steps, int K, bool IsEarly, FoldedBy By, CopiedBy Copied>
__device__ __forceinline__ void reduce_columns_together(const ShapedProblem& problem)
{
    using A = typename Op::Accumulator;
    constexpr int threads = Warps * lanes, depth = threads / X;  // threads behind each other
    using Meeting = ColumnMeeting<Op, Warps, X, C, K, Steps == 1>;
    __shared__ typename Meeting::Shared met;
    if (IsEarly) launch_dependents();
    if (!is_same<typename Op::Pivot, Unused> || problem.device_length != nullptr) wait_for_prerequisites();
    if constexpr (by_others(By)) {
        const uint32 folders = folders_of<Warps, By>(problem), tiles = gridDim.x - folders;
        if (blockIdx.x >= tiles) {
            launch_dependents();
            wait_for_prerequisites();
            return fold_column_partials<Op, Kept, Warps, By>(problem, blockIdx.x - tiles, folders);
        }
    }

    Meeting meeting{met};
    const ColumnTile tile = column_tile<X, C, By>(problem);
    using Cluster = ColumnCluster<Op, By == FoldedBy::cluster ? Meeting::columns : 1>;
    __shared__ typename Cluster::Shared others;
    const Cluster cluster{others, uint32(problem.count)};
    if constexpr (By == FoldedBy::cluster) cluster.enter(tile.rows);
    if constexpr (are_wide<Op, C>) {
        using Wide = WideColumns<Op, Kept, C, Lanes, Steps, K, X, threads>;
        __shared__ typename Wide::Shared shared;
        const Wide source(problem, shared, tile.first_row, tile.rows, uint64(tile.part) * depth * K);
        const bool neighbouring = source.together();
        wait_for_prerequisites();
        if (source.length > 0) source.fold(meeting);
        if (!IsEarly) launch_dependents();
        // Computes the tile anew: kept all along it would take registers that the elements need.
        end_columns<Op, Kept, By>(
            problem, column_tile<X, C, By>(problem), meeting, cluster, meeting.column(neighbouring), problem.actual_length());
    } else {
        using Ahead = ColumnsAhead<Op, Kept, C, Lanes, Steps, K, X, threads, Copied>;
        __shared__ typename Ahead::Places places;
        const int first_behind = warp_of_block() * lanes / X;  // the warp's
        const int mine = min(int(threadIdx.x % X) * C, (tile.rows - 1) / C * C);
        const Ahead source(problem, places, tile.first_row, tile.rows, mine, uint64(tile.part) * depth * K + first_behind);
        wait_for_prerequisites();
        if (source.length > 0) source.fold([&](A* a, uint32 j) { meeting.add(a, j); });
        if (!IsEarly) launch_dependents();
        // As above, but beside a second array it takes more registers to compute the tile anew.
        const ColumnTile same = has_second<Op> ? tile : column_tile<X, C, By>(problem);
        end_columns<Op, Kept, By>(problem, same, meeting, cluster, meeting.column(true), problem.actual_length());
    }
}

// The rows lie as `Kept` says. With K = 0, no lanes for each thread to share, each thread works alone.
template <class Op, class Kept, int Warps, int X, int C, int Lanes, int Steps, int K, bool IsEarly, FoldedBy By, CopiedBy Copied>
__device__ __forceinline__ void reduce_columns(const ShapedProblem& problem)
{
    if constexpr (K == 0) reduce_columns_alone<Op, C, Lanes, Steps>(problem);
    else reduce_columns_together<Op, Kept, Warps, X, C, Lanes, Steps, K, IsEarly, By, Copied>(problem);
}

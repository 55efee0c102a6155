// Columns: the elements of a row lie apart and neighbouring rows beside each other, so that a thread loads a vector across C rows
// and folds each of them in the order of the tree. One launch for any number of rows, of any length.
#pragma once
#include "tree/cluster.cuh"
#include "columns/column_tile.cuh"
#include "columns/columns.cuh"
#include "tree/overlap.cuh"
#include "rows/row_partials.cuh"

// Writes the results of C neighbouring rows from number `row` on, of which `available` exist. One thread calls it.
template <class Op, int C>
__device__ __forceinline__ void
store_columns(const ShapedProblem& problem, const RowOf<Op>* rows, uint64 row, int available, const typename Op::Accumulator* a)
{
    using R = typename Op::Result;
    const int64 apart = problem.permuted == 0 ? 1 : problem.result_stride[0];
#pragma unroll
    for (int k = 0; k < Op::results; ++k) {
        auto* results = reinterpret_cast<R*>(problem.result) + k * problem.rows + problem.place(row);
        R values[C];
#pragma unroll
        for (int c = 0; c < C; ++c) values[c] = rows[c].length == 0 ? Op::empty(rows[c], k) : Op::finish(a[c], rows[c], k);
        constexpr uint32 bytes = C * sizeof(R);
        if constexpr (bytes <= vector_bytes && (bytes & (bytes - 1)) == 0) {  // accumulators as results may have others
            if (apart == 1 && available == C && reinterpret_cast<uint64>(results) % (C * sizeof(R)) == 0) {
                ColumnVector<R, C> v;
#pragma unroll
                for (int c = 0; c < C; ++c) v.elements[c] = values[c];
                *reinterpret_cast<decltype(v.whole)*>(results) = v.whole;
                continue;
            }
        }
#pragma unroll
        for (int c = 0; c < C; ++c)
            if (c < available) results[c * apart] = values[c];
    }
}

// How the partials of columns that are parts of rows are folded: in runs, each by a warp, if there are many, and then each row's
// runs, or partials, by a block, or few by a warp. The blocks for runs come first. strategy/joined_columns.py counts the same.
struct JoinedFolders {
    RowFolders runs, rows;

    __device__ __forceinline__ JoinedFolders(const ShapedProblem& p, uint32 parts)
    {
        const uint32 partials = uint32(p.joined) * parts, run = uint32(p.run), count = (partials - 1) / run + 1;
        const bool by_warps = count <= warp_folds;
        const uint64 all = p.rows * count;
        runs = {all, run, 0, run > 1 ? ColumnCut::folders(all, true) : 0, column_warps, true, 0, p.rows * partials};
        rows = {p.rows, count, 0, ColumnCut::folders(p.rows, by_warps), column_warps, by_warps, run > 1 ? all * run : 0, ~0ull};
    }
};

// Folds partials of columns, and where columns are parts of rows those of the rows. All threads of folding block `number` call it.
template <class Op> __device__ __forceinline__ void fold_columns(const ShapedProblem& problem, const ColumnCut& cut, uint32 number)
{
    __shared__ BlockSlots<Op, column_warps> shared;
    const uint64 length = problem.actual_length() * problem.joined;
    RowFolders by{problem.rows, cut.parts, number, cut.folders(problem.rows), column_warps, cut.by == FoldedBy::warps, 0, ~0ull};
    auto* runs = grid_slots<Op>(problem.workspace);
    bool is_run = false;
    if (problem.joined > 1) {
        const JoinedFolders folders(problem, cut.parts);
        is_run = number < folders.runs.all;
        by = is_run ? folders.runs : folders.rows;
        by.number = is_run ? number : number - folders.runs.all;
        runs += folders.rows.first;
    }
    fold_row_partials<Op, column_warps>(problem, by, shared, [&](uint64 row, typename Op::Accumulator root) {
        if (is_run) return runs[row].publish(root);
        const uint64 column = row * problem.joined;  // the row's first
        store_result<Op>(problem, ShapedSource<Op>(problem, column, length).row, problem.place(column), root);
    });
}

// Publishes or stores what the block has of each column, joined in a cluster with what the others have; `value_of` gives it. All
// threads of the block call it.
template <class Op, int C, class ValueOf>
__device__ __forceinline__ void
end_columns(const ShapedProblem& problem, const ColumnCut& cut, const ColumnTile<C>& tile, ColumnMeeting<Op, C>& met,
            uint64 length, ValueOf value_of)
{
#if __CUDA_ARCH__ >= 900
    const bool in_cluster = cut.by == FoldedBy::cluster;
    const uint32 pitch = 1u << cut.columns, rank = in_cluster ? cluster_rank() : 0;
    if (in_cluster) {
        if (rank != 0) cluster_wait();  // every block of the cluster has started
        else cluster_await(met.barrier);
    }
#endif
#pragma unroll 1
    for (uint32 column = threadIdx.x; column < tile.threads * C; column += blockDim.x) {
        auto value = value_of(column);
#if __CUDA_ARCH__ >= 900
        if (rank != 0) {
            store_to_rank(&met.of_ranks[rank * pitch + column], 0, value, &met.barrier);
            continue;
        }
        if (in_cluster) value = met.folded(value, met.of_ranks + column, cut.parts, pitch);
#endif
        int rows;
        const uint64 row = tile.row(column / C, rows) + column % C;
        if (int(column % C) >= rows) continue;
        if (problem.joined > 1) value = moved_by<Op>(value, (row - quotient(row, problem.joined) * problem.joined) * length, 0);
        if (cut.by == FoldedBy::warps || cut.by == FoldedBy::blocks || problem.joined > 1)
            grid_slots<Op>(problem.workspace)[row * cut.parts + tile.part].publish(value);
        else store_result<Op>(problem, ShapedSource<Op>(problem, row, length).row, problem.place(row), value);
    }
}

// The threads of a block that stand side by side have C columns each; those behind each other divide a turn's vectors among
// them. A block waits for the prerequisites when it knows what to load.
template <class Op, int C, int N, bool IsStraight, Begin Where>
__device__ __forceinline__ void reduce_columns(const ShapedProblem& problem)
{
    using Thread = Columns<Op, C, N, IsStraight, Where>;
    using A = typename Op::Accumulator;
    __shared__ ColumnMeeting<Op, C> met;
    const ColumnCut cut(problem.count);
    if (!lets_in_late(column_warps)) launch_dependents();
    uint32 tiles = gridDim.x - cut.folders(problem.rows);
    if (problem.joined > 1) {
        const JoinedFolders folders(problem, cut.parts);
        tiles -= folders.runs.all + folders.rows.all;
    }
    if (blockIdx.x >= tiles) {
        launch_dependents();
        wait_for_prerequisites();
        return fold_columns<Op>(problem, cut, blockIdx.x - tiles);
    }
    const ColumnTile<C> tile(problem, cut, blockIdx.x);
#if __CUDA_ARCH__ >= 900
    if (cut.by == FoldedBy::cluster) cluster_enter(met.barrier, (cut.parts - 1) * tile.threads * C * sizeof(A));
#endif
    const uint32 beside = cut.columns - log2_of(C), behind = threadIdx.x >> beside;
    const uint32 log_depth = 31 - __clz(int(blockDim.x >> beside)), log_each = cut.vectors - min(cut.vectors, log_depth);
    const uint32 all = uint32(min((problem.length - 1) / Thread::V + 1, uint64(leaf_vectors)));  // of a leaf
    const uint32 log_steps = all > lanes ? 32 - __clz(int((all - 1) / lanes)) : 0, turns = 1u << cut.turns;
    int rows;
    const uint64 row = tile.row(min(threadIdx.x & (1u << beside) - 1, tile.threads - 1), rows);
    if (!is_same<typename Op::Pivot, Unused> || problem.device_length != nullptr) wait_for_prerequisites();
    const Thread thread(problem, row, rows, problem.actual_length());
    wait_for_prerequisites();
    const uint32 pitch = 1u << cut.columns, own = threadIdx.x;  // the block's column that the thread folds, where there are turns
    uint32 parts = 1;
#pragma unroll 1
    for (uint32 turn = 0; turn < turns; ++turn) {  // the last elements first: they were written last
        const uint64 number = (uint64(tile.part) << cut.turns) + (turns - 1 - turn), vector = (number << log_depth) + behind;
        A a[C];
        thread.fold(a, met.waiting, vector << log_each, 1u << log_each, log_steps);
        if (turn + 1 == turns) launch_dependents();  // at the latest
        if (log_depth == 0 && turns == 1 && cut.parts == 1 && problem.joined == 1) {  // columns of one thread each
            if (threadIdx.x < tile.threads) store_columns<Op, C>(problem, thread.rows, row, rows, a);
            return;
        }
        __syncthreads();  // no thread has rounds that wait
        parts = met.bring(a, beside);
        __syncthreads();
        if (turns > 1) {
            if (own < tile.threads * C) met.add(met.folded(met.brought[own], met.brought + own, parts, pitch), turn, own, pitch);
            __syncthreads();  // all that was brought has been folded
        }
    }
    const auto end = [&](const ColumnCut& by, const ColumnTile<C>& its) {
        end_columns<Op, C>(problem, by, its, met, problem.actual_length(), [&](uint32 column) {
            if (by.turns > 0) return met.digits[(by.turns << by.columns) + column];
            return met.folded(met.brought[column], met.brought + column, parts, 1u << by.columns);
        });
    };
    // Of several axes both are made anew: kept all along, they would take registers that the elements need. With wide
    // accumulators more would be spilled, and with elements of 4 bytes by norm2 and minmax of integers, not of floats.
    if constexpr (!IsStraight && sizeof(A) <= 8 && sizeof(typename Op::Input) != 4) {
        const ColumnCut anew(word_anew(problem.count));
        end(anew, {problem, anew, block_anew()});
    } else {
        end(cut, tile);
    }
}

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

// What a folding block folds: partials of columns or, where columns are parts of rows, those of the rows, in runs, each by a warp,
// if there are many, and then each row's runs, or partials. The blocks for runs come first. strategy/joined_columns.py counts so.
struct ColumnFolders : RunFolders {
    bool are_runs;

    __device__ __forceinline__ ColumnFolders(const ShapedProblem& p, const ColumnCut& cut, uint32 block)
        : RunFolders{{cut.parts, block, uint32(p.folders), column_warps, cut.by == FoldedBy::warps}, p.rows, 0, ~0ull},
          are_runs(false)
    {
        if (p.joined == 1) return;
        const uint32 run = uint32(p.run), partials = uint32(p.joined) * cut.parts;
        count = (partials - 1) / run + 1;
        by_warps = count <= warp_folds;
        if (run == 1) return;
        const uint64 runs = p.rows * count;
        const uint32 by_them = uint32(min((runs + column_warps - 1) / column_warps, uint64(most_folders)));
        are_runs = block < by_them;
        first = are_runs ? 0 : runs * run;
        rows = are_runs ? runs : p.rows;
        count = are_runs ? run : count;
        number = are_runs ? block : block - by_them;
        all = are_runs ? by_them : all - by_them;
        by_warps = are_runs || by_warps;
        if (are_runs) this->partials = p.rows * partials;
    }
};

// Folds what `ColumnFolders` says. All threads of folding block `number` call it. That lies in shared memory, and is read anew each
// time, because registers are for partials. Kernels for one axis, whose columns are rows, do without.
template <class Op, bool MayJoin>
__device__ __forceinline__ void fold_columns(const ShapedProblem& problem, const ColumnCut& cut, uint32 number, uint32 folders)
{
    __shared__ BlockSlots<Op, column_warps> shared;
    if constexpr (!MayJoin) {
        const RowFolders by{cut.parts, number, folders, column_warps, cut.by == FoldedBy::warps};
        return fold_row_partials<Op, column_warps>(problem, by, shared, [&](uint64 row, typename Op::Accumulator root) {
            store_result<Op>(problem, ShapedSource<Op>(problem, row).row, problem.place(row), root);
        });
    }
    __shared__ uint64 place[(sizeof(ColumnFolders) + 7) / 8];
    if (threadIdx.x == 0) *reinterpret_cast<ColumnFolders*>(place) = ColumnFolders(problem, cut, number);
    __syncthreads();
    const volatile auto& by = *reinterpret_cast<const volatile ColumnFolders*>(place);
    fold_row_partials<Op, column_warps>(problem, by, shared, [&](uint64 row, typename Op::Accumulator root) {
        if (by.are_runs) {
            grid_slots<Op>(problem.workspace)[by.rows * by.count + row].publish(root);
        } else {
            const uint64 column = row * problem.joined, length = problem.actual_length() * problem.joined;
            store_result<Op>(problem, ShapedSource<Op>(problem, column, length).row, problem.place(column), root);
        }
    });
}

// Publishes or stores what the block has of each column, joined in a cluster with what the others have; `value_of` gives it. All
// threads of the block call it.
template <class Op, int C, bool MayJoin, class ValueOf>
__device__ __forceinline__ void
end_columns(const ShapedProblem& problem, const ColumnCut& cut, const ColumnTile<C, MayJoin>& tile,
            ColumnMeeting<Op, C>& met, uint64 length, ValueOf value_of)
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
        if (cut.by == FoldedBy::warps || cut.by == FoldedBy::blocks) {
            if constexpr (MayJoin) value = moved_by<Op>(value, problem.part(row) * length, 0);
            grid_slots<Op>(problem.workspace)[row * cut.parts + tile.part].publish(value);
        } else {
            store_result<Op>(problem, ShapedSource<Op>(problem, row, length).row, problem.place(row), value);
        }
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
    constexpr bool may_join = !IsStraight;
    const uint32 folders = may_join ? uint32(problem.folders) : cut.folders(problem.rows), tiles = gridDim.x - folders;
    if (blockIdx.x >= tiles) {
        launch_dependents();
        wait_for_prerequisites();
        return fold_columns<Op, may_join>(problem, cut, blockIdx.x - tiles, folders);
    }
    const ColumnTile<C, may_join> tile(problem, cut, blockIdx.x);
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
        const bool alone = may_join ? cut.by == FoldedBy::nobody : cut.parts == 1;  // the same, but for registers
        const bool a_step_apart = uint32(problem.permuted) == 0;  // results of neighbouring columns
        if (log_depth == 0 && turns == 1 && alone && a_step_apart) {  // columns of one thread each
            if constexpr (sizeof(A) > 8 && sizeof(typename Op::Input) == 2) {  // where they lie, made anew: as below
                const ColumnCut anew(word_anew(problem.count));
                const ColumnTile<C, may_join> its(problem, anew, block_anew());
                const uint64 first = its.row(threadIdx.x, rows);
                if (threadIdx.x < its.threads) store_columns<Op, C>(problem, thread.rows, first, rows, a);
            } else if (threadIdx.x < tile.threads) store_columns<Op, C>(problem, thread.rows, row, rows, a);
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
    const auto end = [&](const ColumnCut& by, const ColumnTile<C, may_join>& its) {
        end_columns<Op, C, may_join>(problem, by, its, met, problem.actual_length(), [&](uint32 column) {
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

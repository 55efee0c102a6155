// Columns: the elements of a row lie a stride apart and neighbouring rows beside each other, so that a thread loads a
// vector across C rows and folds each of them in the order of the tree.
#pragma once
#include "columns.cuh"
#include "reduce_batch.cuh"

// Writes the results of C neighbouring rows from number `row` on, or of the first of them, by the one thread that calls it.
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

// Rows of a leaf at most, each by one thread that has C of them: nothing is exchanged.
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
    const Columns<Op, C, Lanes, Steps> source(problem, row, available);
    typename Op::Accumulator a[C];
    if (source.length > 0) source.template fold_lanes<Lanes>(0, 0, a);
    store_columns<Op, C>(problem, source.rows, row, available, a);
}

// Folds the partials of the block's rows, `count` each, a warp a row.
template <class Op, int Warps>
__device__ __forceinline__ void
fold_column_partials(const ShapedProblem& problem, Slot<typename Op::Accumulator>* slots, uint64 first_row, int rows, uint32 count)
{
    constexpr int in_flight = 4;
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;
#pragma unroll 1
    for (int i = warp; i < rows; i += Warps) {
        auto* mine = slots + (first_row + i) * count;
        WarpCounter<Op> counter;
#pragma unroll 1
        for (uint32 at = 0; at < count; at += in_flight * lanes) {
            typename Op::Accumulator a[in_flight];
            grid_take<Op, in_flight>(a, mine, at + lane, count);
            counter.push(warp_fold_array<Op, in_flight>(a, lane), lane);
        }
        const auto root = counter.result();
        const ShapedSource<Op, AnyAxes> source(problem, first_row + i);
        if (lane == 0) store_result<Op>(problem, source.row, first_row + i, root);
    }
}

// Of a block's threads X stand side by side, with C rows each, and those behind each other divide the lanes of the tree
// among them. `count` blocks share a row, each with `tile` consecutive leaves, a power of two and at most
// 2^(Levels - 1) turns.
template <class Op, int Warps, int X, int C, int Lanes, int Steps, int Levels>
__device__ __forceinline__ void reduce_columns_together(const ShapedProblem& problem)
{
    using A = typename Op::Accumulator;
    constexpr int threads = Warps * lanes, depth = threads / X;     // threads behind each other
    constexpr int K = depth >= Lanes ? 1 : Lanes / depth;           // lanes of the tree that each has
    constexpr int at_once = depth >= Lanes ? depth / Lanes : 1;     // leaves in one turn
    constexpr int folded = X >= int(lanes) ? depth : Warps;         // parts of a row that meet in shared memory
    constexpr int columns = X * C;
    constexpr int sides = Levels > 1 ? 2 : 1;  // the next turn's parts may come while this one's are folded
    __shared__ A slots[sides][folded][columns];
    __shared__ A digits[Levels][columns];  // a binary counter for each row, which one thread keeps
    launch_dependents();
    wait_for_prerequisites();

    const uint64 inner = problem.kept.size[0];
    const uint32 parts = uint32(problem.count), part = blockIdx.x % parts, group = blockIdx.x / parts;
    const uint32 column_tiles = uint32((inner + columns - 1) / columns);  // at most a grid's blocks
    const uint64 first_column = uint64(group % column_tiles) * columns;
    const uint64 first_row = group / column_tiles * inner + first_column;
    const int block_rows = int(min(inner - first_column, uint64(columns)));
    const int beside = threadIdx.x % X, behind = threadIdx.x / X;
    const int mine = min(beside * C, (block_rows - 1) / C * C);
    const Columns<Op, C, Lanes, Steps> source(problem, first_row + mine, min(block_rows - mine, C));

    // An array of 2^40 bytes has 2^28 leaves.
    const uint32 leaves = uint32(leaves_of<typename Op::Input>(source.length)), tile = uint32(problem.tile);
    const uint32 first_leaf = min(part * tile, leaves), turns = (min(tile, leaves - first_leaf) + at_once - 1) / at_once;
#pragma unroll 1
    for (uint32 turn = 0; turn < turns; ++turn) {
        A a[C];
        source.template fold_lanes<K>(first_leaf + turn * at_once + behind * K / Lanes, behind * K % Lanes, a);
        auto& side = slots[turn % sides];
#pragma unroll
        for (int c = 0; c < C; ++c) {
#pragma unroll
            for (int mask = X; mask < int(lanes); mask *= 2) a[c] = Op::combine(a[c], shuffle_xor(a[c], mask));
            side[X >= int(lanes) ? behind : threadIdx.x / lanes][beside * C + c] = a[c];
        }
        __syncthreads();  // and so this side is free again after the next turn's
#pragma unroll 1
        for (int column = threadIdx.x; column < columns; column += threads) {
            A fold[folded];
#pragma unroll
            for (int i = 0; i < folded; ++i) fold[i] = side[i][column];
            A value = fold_array<Neighbours<Op, Steps == 1>, folded>(fold);
            int k = 0;
            for (; turn >> k & 1u; ++k) value = combine_neighbours<Op>(digits[k][column], value);
            digits[k][column] = value;
        }
    }
    auto* partials = batch_slots<Op>(problem, gridDim.x / parts);
#pragma unroll 1
    for (int column = threadIdx.x; column < block_rows; column += threads) {
        const uint64 row = first_row + column;
        A value = Op::identity();
        for (int k = 0; turns >> k; ++k)
            if (turns >> k & 1u) value = combine_neighbours<Op>(digits[k][column], value);
        if (parts > 1) partials[row * parts + part].publish(value);
        else store_result<Op>(problem, ShapedSource<Op, AnyAxes>(problem, row, source.length).row, row, value);
    }
    if (parts > 1 && is_last_block(batch_tickets(problem) + group, parts))
        fold_column_partials<Op, Warps>(problem, partials, first_row, block_rows, parts);
}

// Without levels each thread works alone.
template <class Op, int Warps, int X, int C, int Lanes, int Steps, int Levels>
__device__ __forceinline__ void reduce_columns(const ShapedProblem& problem)
{
    if constexpr (Levels == 0) reduce_columns_alone<Op, C, Lanes, Steps>(problem);
    else reduce_columns_together<Op, Warps, X, C, Lanes, Steps, Levels>(problem);
}

// Columns: the elements of a row lie a stride apart and neighbouring rows beside each other, so that a thread loads a
// vector across the rows and folds each of its rows in the order of the tree.
//
// Of a block's threads X stand side by side, with C rows each, and those behind each other divide the lanes of the tree
// among them. Rows shorter than a leaf have `Lanes` lanes of `Steps` steps, each a power of two; else 32 and 8.
#pragma once
#include "reduce_batch.cuh"

// A vector of C elements side by side.
template <class T, int C> union ColumnVector {
    T elements[C];
    typename Word<sizeof(T) * C>::type whole;
};

template <class Op, int C, int Lanes, int Steps> struct Columns {
    using T = typename Op::Input;
    using A = typename Op::Accumulator;
    static constexpr uint32 V = vector_elements<T>;
    const char* begin;
    const char* other;
    RowOf<Op> rows[C];
    const ShapedProblem& problem;
    uint64 length;
    bool aligned;

    // The thread's rows are number `row` and the C - 1 after it; those from `available` on are copies of the last.
    __device__ __forceinline__ Columns(const ShapedProblem& p, uint64 row, int available) : problem(p)
    {
        length = p.actual_length();
        begin = p.elements + p.kept.offset(row, false);
        if constexpr (!is_same<typename Op::Second, Unused>) other = p.second + p.kept.offset(row, true);
        aligned = available == C && (reinterpret_cast<uint64>(begin) | uint64(p.reduced.stride[0])) % (C * sizeof(T)) == 0;
#pragma unroll
        for (int c = 0; c < C; ++c) rows[c] = Source<Op>(p, begin + min(c, available - 1) * sizeof(T), nullptr, length).row;
    }

    __device__ __forceinline__ ColumnVector<T, C> load(uint64 index, int available) const
    {
        ColumnVector<T, C> v;
        const char* address = begin + int64(index) * problem.reduced.stride[0];
        if (aligned) {
            v.whole = __ldg(reinterpret_cast<const decltype(v.whole)*>(address));
        } else {
#pragma unroll
            for (int c = 0; c < C; ++c)
                v.elements[c] = *reinterpret_cast<const T*>(address + min(c, available - 1) * sizeof(T));
        }
        return v;
    }

    __device__ __forceinline__ A map(T x, uint64 index, int c, int available) const
    {
        if constexpr (is_same<typename Op::Second, Unused>) {
            return Op::map(ItemOf<Op>{x, {}, index}, rows[c]);
        } else {
            const auto* y = reinterpret_cast<const typename Op::Second*>(
                other + int64(index) * problem.reduced.second_stride[0] + min(c, available - 1) * problem.kept.second_stride[0]);
            return Op::map(ItemOf<Op>{x, *y, index}, rows[c]);
        }
    }

    // The slot level of one step: elements index to index + V - 1, already loaded.
    template <uint32 First, uint32 Count>
    __device__ __forceinline__ A fold_slots(const ColumnVector<T, C>* v, uint64 index, int c, int available) const
    {
        if constexpr (Count == 1) {
            if (index + First >= length) return Op::identity();
            return map(v[First].elements[c], index + First, c, available);
        } else {
            const A a = fold_slots<First, Count / 2>(v, index, c, available);
            return combine_neighbours<Op>(a, fold_slots<First + Count / 2, Count / 2>(v, index, c, available));
        }
    }

    // Lanes lane to lane + K - 1 of one leaf of all the thread's rows, K a power of two: step by step, lane by lane.
    template <int K> __device__ __forceinline__ void fold_lanes(uint64 leaf, uint32 lane, int available, A* a) const
    {
        constexpr int vectors = K * Steps, wanted = V >= 8 ? 1 : 8 / V, together = vectors < wanted ? vectors : wanted;
        constexpr int rounds = vectors / together;
        LaneCounter<Op, log2_of(rounds)> counters[C];
#pragma unroll 1
        for (uint32 round = 0; round < rounds; ++round) {
            const auto first = [&](int t) {
                const uint32 number = round * together + t;
                return leaf * leaf_elements<T> + (lane + number / Steps) * V + number % Steps * (lanes * V);
            };
            ColumnVector<T, C> v[together][V];  // all in flight at once
#pragma unroll
            for (int t = 0; t < together; ++t)
#pragma unroll
                for (uint32 s = 0; s < V; ++s)
                    v[t][s] = load(first(t) + s < length ? first(t) + s : length - 1, available);
#pragma unroll
            for (int c = 0; c < C; ++c) {
                A part[together];
#pragma unroll
                for (int t = 0; t < together; ++t) part[t] = fold_slots<0, V>(v[t], first(t), c, available);
                counters[c].push(fold_array<Op, together>(part), round);
            }
        }
#pragma unroll
        for (int c = 0; c < C; ++c) a[c] = counters[c].digits[log2_of(rounds)];
    }
};

// Folds the partials of the block's rows, `count` each, a warp a row.
template <class Op, int Warps>
__device__ __forceinline__ void
fold_column_partials(const ShapedProblem& problem, Slot<typename Op::Accumulator>* slots, uint64 first_row, int rows, uint32 count)
{
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;
#pragma unroll 1
    for (int i = warp; i < rows; i += Warps) {
        auto* mine = slots + (first_row + i) * count;
        WarpCounter<Op> counter;
#pragma unroll 1
        for (uint32 at = 0; at < count; at += lanes) {
            typename Op::Accumulator value;
            grid_take<Op, 1>(&value, mine, at + lane, count);
            counter.push(warp_fold<Op>(value), lane);
        }
        const auto root = counter.result();
        const ShapedSource<Op, AnyAxes> source(problem, first_row + i);
        if (lane == 0) store_result<Op>(problem, source.row, first_row + i, root);
    }
}

// `count` blocks share a row, each with `tile` consecutive leaves, a power of two and at most 2^(Levels - 1) turns.
template <class Op, int Warps, int X, int C, int Lanes, int Steps, int Levels>
__device__ __forceinline__ void reduce_columns(const ShapedProblem& problem)
{
    using A = typename Op::Accumulator;
    constexpr int threads = Warps * lanes, depth = threads / X;     // threads behind each other
    constexpr int K = depth >= Lanes ? 1 : Lanes / depth;           // lanes of the tree that each has
    constexpr int at_once = depth >= Lanes ? depth / Lanes : 1;     // leaves in one turn
    constexpr int folded = X >= int(lanes) ? depth : Warps;         // parts of a row that meet in shared memory
    constexpr int columns = X * C;
    __shared__ A slots[folded][columns];
    __shared__ A digits[Levels][columns];  // a binary counter for each row
    launch_dependents();
    wait_for_prerequisites();

    const uint64 inner = problem.kept.size[0], column_tiles = (inner + columns - 1) / columns;
    const uint32 parts = uint32(problem.count), part = blockIdx.x % parts;
    const uint64 group = blockIdx.x / parts, first_column = group % column_tiles * columns;
    const uint64 first_row = group / column_tiles * inner + first_column;
    const int block_rows = int(min(inner - first_column, uint64(columns)));
    const int beside = threadIdx.x % X, behind = threadIdx.x / X;
    const int mine = min(beside * C, (block_rows - 1) / C * C), available = min(block_rows - mine, C);
    const Columns<Op, C, Lanes, Steps> source(problem, first_row + mine, available);

    const uint64 leaves = leaves_of<typename Op::Input>(source.length), first_leaf = min(uint64(part) * problem.tile, leaves);
    const uint32 turns = uint32((min(problem.tile, leaves - first_leaf) + at_once - 1) / at_once);
#pragma unroll 1
    for (uint32 turn = 0; turn < turns; ++turn) {
        A a[C];
        const uint64 leaf = first_leaf + turn * at_once + behind * K / Lanes;
        source.template fold_lanes<K>(leaf, behind * K % Lanes, available, a);
#pragma unroll
        for (int c = 0; c < C; ++c) {
#pragma unroll
            for (int mask = X; mask < int(lanes); mask *= 2) a[c] = Op::combine(a[c], shuffle_xor(a[c], mask));
            slots[X >= int(lanes) ? behind : threadIdx.x / lanes][beside * C + c] = a[c];
        }
        __syncthreads();
#pragma unroll 1
        for (int column = threadIdx.x; column < columns; column += threads) {
            A fold[folded];
#pragma unroll
            for (int i = 0; i < folded; ++i) fold[i] = slots[i][column];
            A value = fold_array<Op, folded>(fold);
            int k = 0;
            for (; turn >> k & 1u; ++k) value = combine_neighbours<Op>(digits[k][column], value);
            digits[k][column] = value;
        }
        __syncthreads();
    }
    auto* partials = batch_slots<Op>(problem, gridDim.x / parts);
#pragma unroll 1
    for (int column = threadIdx.x; column < block_rows; column += threads) {
        const uint64 row = first_row + column;
        A value = Op::identity();
        for (int k = 0; turns >> k; ++k)
            if (turns >> k & 1u) value = combine_neighbours<Op>(digits[k][column], value);
        if (parts > 1) partials[row * parts + part].publish(value);
        else store_result<Op>(problem, ShapedSource<Op, AnyAxes>(problem, row).row, row, value);
    }
    if (parts > 1 && is_last_block(problem, group, parts))
        fold_column_partials<Op, Warps>(problem, partials, first_row, block_rows, parts);
}

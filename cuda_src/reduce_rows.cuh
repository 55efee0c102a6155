// Many rows, each by a part of a warp, a warp, or some warps of a block: one launch, no workspace.
#pragma once
#include "block.cuh"
#include "shape.cuh"

// The lane level for N rows at once over groups of G lanes, N and G powers of two: a[i] holds the i-th row's part. The
// lanes trade halves of what they hold, so that the shuffles shrink with each level. Afterwards, with H = min(G, N),
// a[j] of lane l is the fold of row j * H + l % H of its group.
template <class Op, int G, int N>
__device__ __forceinline__ void warp_fold_rows(typename Op::Accumulator* a, uint32 lane)
{
    constexpr int H = G < N ? G : N;
#pragma unroll
    for (int mask = 1; mask < H; mask *= 2) {
        const bool upper = lane & mask;
#pragma unroll
        for (int i = 0; i < N / (2 * mask); ++i) {
            const auto kept = select(upper, a[2 * i + 1], a[2 * i]), given = select(upper, a[2 * i], a[2 * i + 1]);
            a[i] = Op::combine(kept, shuffle_xor(given, mask));
        }
    }
#pragma unroll
    for (int mask = H; mask < G; mask *= 2)
#pragma unroll
        for (int j = 0; j < N / H; ++j) a[j] = Op::combine(a[j], shuffle_xor(a[j], mask));
}

// N rows at once, each by G lanes in S steps, when every vector is whole: N * S loads in flight, without a branch.
template <class Op, int G, int N, int S, class SourceOf>
__device__ __forceinline__ void fold_whole_rows(SourceOf source_of, typename Op::Accumulator* a, uint32 lane)
{
    constexpr uint32 V = vector_elements<typename Op::Input>;
    uint4 v[N * S];
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const auto source = source_of(i);
        const auto* vectors = reinterpret_cast<const uint4*>(source.begin) + lane % G;
#pragma unroll
        for (int t = 0; t < S; ++t)
            v[i * S + t] = load_streaming_if((t * lanes + lane % G) * V < source.row.length, vectors + t * lanes,
                                             make_uint4(0, 0, 0, 0));
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const auto source = source_of(i);
        typename Op::Accumulator part[S];
#pragma unroll
        for (int t = 0; t < S; ++t) {
            const uint32 index = (t * lanes + lane % G) * V;
            part[t] = fold_if<Op>(index < source.row.length, source, v[i * S + t], index);
        }
        a[i] = fold_array<Op, S>(part);
    }
}

// The same for any vectors, fetched element by element or, inside of the array, by the blocks that they lie in.
template <class Op, class Rows, bool ByElement, int G, int N, int S, class SourceOf>
__device__ __forceinline__ void fold_any_rows(SourceOf source_of, typename Op::Accumulator* a, uint32 lane)
{
    constexpr uint32 V = vector_elements<typename Op::Input>;
    uint4 v[N * S];
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const auto source = source_of(i);
#pragma unroll
        for (int t = 0; t < S; ++t) {
            const uint64 index = (t * lanes + lane % G) * V;
            const int32 bytes = present_bytes<Op>(source, index);
            if constexpr (ByElement) v[i * S + t] = Rows::fetch_elements(source, index, bytes);
            else v[i * S + t] = Rows::fetch_inside(source, index, bytes);
        }
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const auto source = source_of(i);
        typename Op::Accumulator part[S];
#pragma unroll
        for (int t = 0; t < S; ++t) {
            const uint64 index = (t * lanes + lane % G) * V;
            part[t] = fold_vector_part<Op>(source, v[i * S + t], index, present_bytes<Op>(source, index));
        }
        a[i] = fold_array<Op, S>(part);
    }
}

// One row by G lanes, in little code: for the few at the array's edges. Every lane of the group holds the result.
template <class Op, class Rows, int G, int S, class S1>
__device__ __forceinline__ typename Op::Accumulator fold_edge_row(const S1& source, uint32 lane)
{
    constexpr uint32 V = vector_elements<typename Op::Input>;
    typename Op::Accumulator part[S];
#pragma unroll
    for (int t = 0; t < S; ++t) {
        const uint64 index = (t * lanes + lane % G) * V;
        const int32 bytes = present_bytes<Op>(source, index);
        part[t] = fold_present<Op>(source, Rows::fetch_edge(source, index, bytes), index, bytes);
    }
    return warp_fold<Op, G>(fold_array<Op, S>(part));
}

// Rows of at most one leaf: G lanes of a warp fold a row in S steps (S > 1 only with G = 32), and a warp has as many
// rows as make eight vectors a lane, all in flight at once.
template <class Op, class Rows, int Warps, int G, int S>
__device__ __forceinline__ void reduce_short_rows(const ShapedProblem& problem)
{
    constexpr int N = steps / S, groups = lanes / G, H = G < N ? G : N;
    launch_dependents();
    wait_for_prerequisites();
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    const uint64 first_row = (uint64(blockIdx.x) * Warps + warp) * (N * groups);
    if (first_row >= problem.rows) return;
    const auto row_of = [&](int i) { return min(first_row + i * groups + lane / G, problem.rows - 1); };
    const auto source_of = [&](int i) { return ShapedSource<Op, typename Rows::Kept>(problem, row_of(i)); };

    typename Op::Accumulator a[N];
    if (Rows::can_be_whole && Rows::whole(problem, problem.actual_length() * sizeof(typename Op::Input))) {
        fold_whole_rows<Op, G, N, S>(source_of, a, lane);
    } else if (Rows::template by_element<typename Op::Input>(problem)) {
        fold_any_rows<Op, Rows, true, G, N, S>(source_of, a, lane);
    } else if (__all_sync(0xffffffffu, Rows::inside(source_of(0)) && Rows::inside(source_of(N - 1)))) {
        fold_any_rows<Op, Rows, false, G, N, S>(source_of, a, lane);
    } else {
#pragma unroll 1
        for (int i = 0; i < N; ++i) {
            const uint64 row = first_row + i * groups + lane / G;
            const auto source = source_of(i);
            const auto value = fold_edge_row<Op, Rows, G, S>(source, lane);
            if (lane % G == 0 && row < problem.rows) store_result<Op>(problem, source.row, row, value);
        }
        return;
    }
    warp_fold_rows<Op, G, N>(a, lane);
    if (lane % G >= H) return;
#pragma unroll
    for (int j = 0; j < N / H; ++j) {
        const uint64 row = first_row + (j * H + lane % H) * groups + lane / G;
        if (row < problem.rows) store_result<Op>(problem, ShapedSource<Op, typename Rows::Kept>(problem, row).row, row, a[j]);
    }
}

// One leaf of a row by one warp; every lane holds the result. `whole` says that its vectors are, if it is.
template <class Op, class Rows, class S>
__device__ __forceinline__ typename Op::Accumulator row_leaf_fold(const S& source, uint64 leaf, bool whole, uint32 lane)
{
    using T = typename Op::Input;
    constexpr uint32 V = vector_elements<T>;
    const uint64 first = leaf * leaf_elements<T>;
    if (first >= source.row.length) return Op::identity();
    const auto index_of = [&](uint32 t) { return first + (t * lanes + lane) * V; };
    typename Op::Accumulator a[steps];
    if (Rows::can_be_whole && whole) {
        const auto* vectors = reinterpret_cast<const uint4*>(source.begin + first * sizeof(T)) + lane;
        const uint32 bytes = uint32(min((source.row.length - first) * sizeof(T), uint64(leaf_bytes)));
        return warp_fold<Op>(lane_fold_aligned<Op>(source, vectors, first, bytes, lane));
    }
    if (!Rows::can_be_whole || Rows::inside(source)) {
        constexpr uint32 at_once = steps / 4;
#pragma unroll
        for (uint32 base = 0; base < steps; base += at_once) {
            uint4 v[at_once];
#pragma unroll
            for (uint32 t = 0; t < at_once; ++t)
                v[t] = Rows::fetch_inside(source, index_of(base + t), present_bytes<Op>(source, index_of(base + t)));
#pragma unroll
            for (uint32 t = 0; t < at_once; ++t) {
                const uint64 index = index_of(base + t);
                a[base + t] = fold_present<Op>(source, v[t], index, present_bytes<Op>(source, index));
            }
            __syncwarp();  // orders nothing: it keeps the compiler from holding all steps in registers at once
        }
        return warp_fold<Op>(fold_array<Op, steps>(a));
    }
    if constexpr (Rows::can_be_whole) {
        LaneCounter<Op, log2_of(steps)> counter;
#pragma unroll 1
        for (uint32 t = 0; t < steps; ++t) {
            const int32 bytes = present_bytes<Op>(source, index_of(t));
            counter.push(fold_present<Op>(source, Rows::fetch_edge(source, index_of(t), bytes), index_of(t), bytes), t);
        }
        a[0] = counter.digits[log2_of(steps)];
    }
    return warp_fold<Op>(a[0]);
}

// Rows of any length, W warps each, several rows a block.
template <class Op, class Rows, int Warps, int W>
__device__ __forceinline__ void reduce_rows(const ShapedProblem& problem)
{
    constexpr int groups = Warps / W;
    __shared__ typename Op::Accumulator slots[2][Warps];
    launch_dependents();
    wait_for_prerequisites();
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes, group = warp / W, member = warp % W;
    const uint64 row = uint64(blockIdx.x) * groups + group;
    const bool whole = Rows::whole(problem, problem.actual_length() * sizeof(typename Op::Input));
    const ShapedSource<Op, typename Rows::Kept> source(problem, min(row, problem.rows - 1));
    const uint32 tiles = tile_count<Op, W>(source);  // the same for every row of the block: barriers may be inside
    WarpCounter<Op> counter;
#pragma unroll 1
    for (uint32 i = 0; i < tiles; ++i) {
        auto value = row_leaf_fold<Op, Rows>(source, uint64(i) * W + member, whole, lane);
        if constexpr (W > 1) {
            if (lane == 0) slots[i & 1u][warp] = value;
            __syncthreads();
            if (member == 0) value = warp_fold<Op, W>(slots[i & 1u][group * W + lane % W]);
        }
        if (member == 0) counter.push(value, lane);
    }
    if (member != 0 || row >= problem.rows) return;
    const auto root = counter.result();
    if (lane == 0) store_result<Op>(problem, source.row, row, root);
}

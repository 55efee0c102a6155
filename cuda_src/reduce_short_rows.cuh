// Many rows of at most one leaf, each by a part of a warp: one launch, no workspace.
#pragma once
#include "block.cuh"
#include "shape.cuh"

// N rows at once, each by G lanes in S steps, `AtOnce` vectors of a lane in flight: `fetch` loads the vector at an element of
// a source and `fold` folds it.
template <class Op, int G, int N, int S, int AtOnce, class SourceOf, class Fetch, class Fold>
__device__ __forceinline__ void
fold_short_rows(SourceOf source_of, Fetch fetch, Fold fold, typename Op::Accumulator* a, uint32 lane)
{
    const auto index_of = [=](int t) { return (t * lanes + lane % G) * vector_elements<typename Op::Input>; };
    typename Op::Accumulator part[N * S];
#pragma unroll
    for (int first = 0; first < N * S; first += AtOnce) {
        uint4 v[AtOnce];
#pragma unroll
        for (int k = 0; k < AtOnce; ++k) v[k] = fetch(source_of((first + k) / S), index_of((first + k) % S));
#pragma unroll
        for (int k = first; k < first + AtOnce; ++k) {
            part[k] = fold(source_of(k / S), v[k - first], index_of(k % S));
            if (k % S == S - 1) a[k / S] = fold_array<Op, S>(part + k / S * S);
        }
        if (AtOnce < N * S) __syncwarp();  // orders nothing: it keeps the compiler from holding all vectors at once
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

// Whether all blocks that the warp's rows touch lie inside of the array. Rows may lie in any order, so each is asked.
template <class Rows, int N, class SourceOf> __device__ __forceinline__ bool all_inside(SourceOf source_of)
{
    bool inside = true;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const auto source = source_of(i);
        inside = inside && Rows::inside(source, 0, source.row.length);
    }
    return __all_sync(0xffffffffu, inside);
}

// Rows of at most one leaf: G lanes of a warp fold a row in S steps (S > 1 only with G = 32), and a warp has as many
// rows as make eight vectors a lane, all in flight at once.
template <class Op, class Rows, int Warps, int G, int S>
__device__ __forceinline__ void reduce_short_rows(const ShapedProblem& problem)
{
    using RowSource = ShapedSource<Op, typename Rows::Kept>;
    constexpr int N = steps / S, groups = lanes / G, H = G < N ? G : N;
    launch_dependents();
    wait_for_prerequisites();
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    const uint64 first_row = (uint64(blockIdx.x) * Warps + warp) * (N * groups);
    if (first_row >= problem.rows) return;
    const auto row_of = [&](int i) { return min(first_row + i * groups + lane / G, problem.rows - 1); };
    const uint32 length = uint32(problem.actual_length());  // a leaf at most
    const auto source_of = [&](int i) { return RowSource(problem, row_of(i), length); };

    typename Op::Accumulator a[N];
    const auto fold_part = [](const RowSource& source, uint4 raw, uint32 index) {
        return fold_vector_part<Op>(source, raw, index, present_bytes<Op>(source, index));
    };
    if (Rows::can_be_whole && Rows::whole(problem, uint64(length) * sizeof(typename Op::Input))) {
        constexpr uint32 V = vector_elements<typename Op::Input>;
        const auto vector_of = [](const RowSource& source, uint32 index) {
            return reinterpret_cast<const uint4*>(source.begin) + index / V;
        };
        if (length == G * S * V) {  // no vector is absent: half as many instructions
            fold_short_rows<Op, G, N, S, steps>(
                source_of, [&](const RowSource& source, uint32 index) { return load_streaming(vector_of(source, index)); },
                fold_vector<Op, RowSource>, a, lane);
        } else {
            fold_short_rows<Op, G, N, S, steps>(
                source_of,
                [&](const RowSource& source, uint32 index) {
                    return load_streaming_if(index < source.row.length, vector_of(source, index));
                },
                [](const RowSource& source, uint4 raw, uint32 index) {
                    return fold_if<Op>(index < source.row.length, source, raw, index);
                },
                a, lane);
        }
    } else if (Rows::template by_element<typename Op::Input>(problem)) {
        const auto fetch = [](const RowSource& source, uint32 index) {
            return Rows::fetch_elements(source, index, present_bytes<Op>(source, index));
        };
        fold_short_rows<Op, G, N, S, steps / 2>(source_of, fetch, fold_part, a, lane);
    } else if (all_inside<Rows, N>(source_of)) {
        const auto fetch = [](const RowSource& source, uint32 index) {
            return Rows::fetch_inside(source, index, present_bytes<Op>(source, index));
        };
        fold_short_rows<Op, G, N, S, steps / 2>(source_of, fetch, fold_part, a, lane);
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
        if (row < problem.rows) store_result<Op>(problem, RowSource(problem, row, length).row, row, a[j]);
    }
}

// Many rows of at most one leaf, each folded by a part of a warp: one launch, no workspace.
#pragma once
#include "short_rows_anywhere.cuh"

// Rows of up to so many vectors are loaded through the L1. Each byte is still read once; but where so many results are written
// between the loads, the memory handles both better in this way, by 8 percent for rows of one vector and by 2 for rows of
// eight. Rows of 64 vectors lose 4 percent by it (benchmarks/NOTES.md).
constexpr int cached_row_vectors = 8;

template <int G>
__device__ __forceinline__ uint4 load_of_row(bool wanted, const uint4* vector, uint4 v = make_uint4(0, 0, 0, 0))
{
    if constexpr (G <= cached_row_vectors) return load_cached_if(wanted, vector, v);
    else return load_streaming_if(wanted, vector, v);
}

// Folds N rows of whole vectors at once, each by G lanes in S steps, all vectors in flight: a[i] becomes the lane's part of the
// i-th row, pivots[i] its pivot. `All` says that all of a lane's vectors are present; otherwise absent ones hold elements that
// change nothing, if the operator has such, or are left out.
template <class Op, int G, int N, int S, bool All, class SourceOf>
__device__ __forceinline__ void
fold_whole_rows(SourceOf source_of, typename Op::Accumulator* a, typename Op::Pivot* pivots, uint32 lane)
{
    constexpr uint32 V = vector_elements<typename Op::Input>;
    constexpr bool through_l1 = G <= cached_row_vectors;
    const uint64 length = source_of(0).row.length;  // every row's
    const auto present = [=](uint32 t) { return All || (t * lanes + lane % G) * V < length; };
    uint4 v[N * S];
#pragma unroll
    for (int k = 0; k < N * S; ++k) {
        const auto source = source_of(k / S);
        const auto* address = reinterpret_cast<const uint4*>(source.begin) + k % S * lanes + lane % G;
        v[k] = load_of_row<G>(present(k % S), address, absent_elements<Op>());
    }
    Seconds<Op> y[N * S];
#pragma unroll
    for (int i = 0; i < N; ++i) load_present_seconds<Op, S, through_l1>(y + i * S, source_of(i), 0, lane % G, present);
#pragma unroll
    for (int i = 0; i < N; ++i) pivots[i] = pivot_of<Op, G>(source_of, i, v[i * S], lane);
#pragma unroll
    for (int i = 0; i < N; ++i) {
        auto source = source_of(i);
        source.row.pivot = pivots[i];
        if constexpr (All || fills_absent<Op>) a[i] = fold_vectors<Op, S>(source, v + i * S, y + i * S, 0, lane % G);
        else a[i] = fold_present_vectors<Op, S>(source, v + i * S, y + i * S, 0, lane % G, present);
    }
}

// Rows of at most one leaf: G lanes of a warp fold a row in S steps (S > 1 only with G = 32). A warp has as many rows as make
// eight vectors a lane, of both arrays together, all in flight at once; half as many where each vector is a row and makes a
// result, because more loads between the stores serve the memory less well.
template <class Op, class Rows, int Warps, int G, int S>
__device__ __forceinline__ void reduce_short_rows(const ShapedProblem& problem)
{
    using RowSource = ShapedSource<Op, typename Rows::Kept, Rows::where>;
    constexpr int most = has_second<Op> ? steps / 2 : steps;
    constexpr int N = G == 1 ? most / 2 : S < most ? most / S : 1, groups = lanes / G, H = G < N ? G : N;
    launch_dependents();
    wait_for_prerequisites();
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    const uint64 first_row = (uint64(blockIdx.x) * Warps + warp) * (N * groups);
    if (first_row >= problem.rows) return;
    const uint32 last = uint32(min(problem.rows - 1 - first_row, uint64(N * groups - 1)));
    const uint32 length = uint32(problem.actual_length());  // a leaf at most
    // The group's i-th row; past the last row, the last one.
    const auto source_of = [&](int i, bool with_pivot = false) {
        return RowSource(problem, first_row, min(i * groups + lane / G, last), length, with_pivot);
    };

    typename Op::Accumulator a[N];
    typename Op::Pivot pivots[N];
    if constexpr (Rows::where == Begin::aligned) {
        const bool all = length == G * S * vector_elements<typename Op::Input>;  // half as many instructions
        if (all) fold_whole_rows<Op, G, N, S, true>(source_of, a, pivots, lane);
        else fold_whole_rows<Op, G, N, S, false>(source_of, a, pivots, lane);
    } else {
        if (!fold_rows_anywhere<Op, Rows, G, N, S>(problem, source_of, a, pivots, first_row, last, lane)) return;
    }
    warp_fold_rows<Op, G, N>(a, lane);
#pragma unroll
    for (int i = 0; i < N; ++i) pivots[i / H] = select(i % H == lane % H, pivots[i], pivots[i / H]);
    if (lane % G >= H) return;
#pragma unroll
    for (int j = 0; j < N / H; ++j) {
        const uint32 past = (j * H + lane % H) * groups + lane / G;
        auto source = RowSource(problem, first_row, past, length, false);
        source.row.pivot = pivots[j];
        if (past <= last) store_result<Op>(problem, source.row, first_row + past, a[j]);
    }
}

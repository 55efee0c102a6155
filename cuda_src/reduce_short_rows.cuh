// Many rows of at most one leaf, each folded by a part of a warp: one launch, no workspace.
#pragma once
#include "block.cuh"
#include "rows_ahead.cuh"

// The pivot of the row that a lane's group of G lanes folds. The row's first element is in the first vector of the group's lane
// 0, so a shuffle brings it: a load of its own would take another round trip to the L2. A pivot that is given is loaded.
template <class Op, int G, class SourceOf>
__device__ __forceinline__ typename Op::Pivot pivot_of(SourceOf source_of, int row, uint4 first_vector, uint32 lane)
{
    using T = typename Op::Input;
    if constexpr (is_same<typename Op::Pivot, Unused>) {
        return {};
    } else if constexpr (Op::pivot_is_given) {
        return source_of(row, true).row.pivot;
    } else {
        union { uint4 raw; uint32 words[vector_bytes / 4]; T first; } u;
        u.raw = first_vector;
#pragma unroll
        for (uint32 i = 0; i < (sizeof(T) + 3) / 4; ++i) u.words[i] = shuffle_from(u.words[i], lane / G * G);
        return Op::pivot(u.first);
    }
}

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

// Folds N rows at once, each by G lanes in S steps, `AtOnce` vectors of a lane in flight: `fetch` loads the vector at an
// element of a source and `fold` folds it. a[i] becomes the lane's part of the i-th row, pivots[i] its pivot.
template <class Op, int G, int N, int S, int AtOnce, class SourceOf, class Fetch, class Fold>
__device__ __forceinline__ void
fold_short_rows(SourceOf source_of, Fetch fetch, Fold fold, typename Op::Accumulator* a, typename Op::Pivot* pivots, uint32 lane)
{
    const auto index_of = [=](int t) { return (t * lanes + lane % G) * vector_elements<typename Op::Input>; };
    typename Op::Accumulator part[N * S];
#pragma unroll
    for (int first = 0; first < N * S; first += AtOnce) {
        uint4 v[AtOnce];
#pragma unroll
        for (int k = 0; k < AtOnce; ++k) v[k] = fetch(source_of((first + k) / S), index_of((first + k) % S));
#pragma unroll
        for (int k = first; k < first + AtOnce; ++k)
            if (k % S == 0) pivots[k / S] = pivot_of<Op, G>(source_of, k / S, v[k - first], lane);
#pragma unroll
        for (int k = first; k < first + AtOnce; ++k) {
            auto source = source_of(k / S);
            source.row.pivot = pivots[k / S];
            part[k] = fold(source, v[k - first], index_of(k % S));
            if (k % S == S - 1) a[k / S] = fold_array<Op, S>(part + k / S * S);
        }
        if (AtOnce < N * S) __syncwarp();  // orders nothing: it keeps the compiler from holding all vectors at once
    }
}

// The same for rows of whole vectors, all in flight at once. `All` says that all of a lane's vectors are present; otherwise
// absent ones hold elements that change nothing, if the operator has such, or are left out.
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

// One row by G lanes, in compact code: for the few at the array's edges. All 32 lanes call it, each group with a row of its
// own; every lane of the group holds the result.
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

// Whether all 16-byte blocks that the warp's rows touch lie inside the array. Rows may lie in any order, so each is checked.
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

// Rows of at most one leaf: G lanes of a warp fold a row in S steps (S > 1 only with G = 32). A warp has as many rows as make
// eight vectors a lane, of both arrays together, all in flight at once; half as many where each vector is a row and makes a
// result, because more loads between the stores serve the memory less well.
template <class Op, class Rows, int Resident, int Warps, int G, int S>
__device__ __forceinline__ void reduce_short_rows(const ShapedProblem& problem)
{
    using RowSource = ShapedSource<Op, typename Rows::Kept>;
    constexpr int most = has_second<Op> ? steps / 2 : steps;
    constexpr int N = G == 1 ? most / 2 : S < most ? most / S : 1, groups = lanes / G, H = G < N ? G : N;
    constexpr int few = sizeof(typename Op::Accumulator) > 8 ? 2 : 4, at_once = N * S < few ? N * S : few;  // of several loads
    launch_dependents();
    // Grids that would be one turn (wave) by their number of warps, but are two because only `Resident` blocks fit on a
    // multiprocessor, lose by it (benchmarks/NOTES.md, "Half of a leaf before the wait").
    const bool touches = G < int(lanes) || gridDim.x <= uint32(Resident) * multiprocessors() || gridDim.x > places<Warps>();
    start_on_short_rows<Op, Rows, Warps>(problem, N * groups, touches);
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
    const bool placed = seconds_are_placed<Op>(problem);
    if (Rows::can_be_whole && placed && Rows::whole(problem, uint64(length) * sizeof(typename Op::Input))) {
        const bool all = length == G * S * vector_elements<typename Op::Input>;  // half as many instructions
        if (!has_second<Op> || !seconds_are_vectors<Op>(problem)) {
            if (all) fold_whole_rows<Op, G, N, S, true>(source_of, a, pivots, lane);
            else fold_whole_rows<Op, G, N, S, false>(source_of, a, pivots, lane);
        } else if constexpr (has_second<Op>) {
            const auto in_vectors = [&](int i) { return SecondsInVectors<RowSource>(source_of(i)); };
            if (all) fold_whole_rows<Op, G, N, S, true>(in_vectors, a, pivots, lane);
            else fold_whole_rows<Op, G, N, S, false>(in_vectors, a, pivots, lane);
        }
    } else if (placed && Rows::template by_element<typename Op::Input>(problem)) {
        const auto fetch = [](const RowSource& source, uint32 index) {
            return Rows::fetch_elements(source, index, present_bytes<Op>(source, index));
        };
        const auto fold = [](const RowSource& source, uint4 raw, uint32 index) {
            return fold_filled<Op>(source, raw, index, present_bytes<Op>(source, index));
        };
        fold_short_rows<Op, G, N, S, at_once>(source_of, fetch, fold, a, pivots, lane);
    } else if (!are_words<typename Op::Input> && placed && all_inside<Rows, N>(source_of)) {
        const auto fetch = [](const RowSource& source, uint32 index) {
            return Rows::fetch_inside(source, index, present_bytes<Op>(source, index));
        };
        const auto fold = [](const RowSource& source, uint4 raw, uint32 index) {
            return fold_vector_part<Op>(source, raw, index, present_bytes<Op>(source, index));
        };
        fold_short_rows<Op, G, N, S, at_once>(source_of, fetch, fold, a, pivots, lane);
    } else {
#pragma unroll 1
        for (int i = 0; i < N; ++i) {
            const uint32 past = i * groups + lane / G;
            const auto source = with_seconds_anyhow<Op>(source_of(i, true));
            const auto value = fold_edge_row<Op, Rows, G, S>(source, lane);
            if (lane % G == 0 && past <= last) store_result<Op>(problem, source.row, first_row + past, value);
        }
        return;
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

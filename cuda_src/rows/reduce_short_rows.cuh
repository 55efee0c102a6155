// Many rows of at most one leaf, each folded by a part of a warp: one launch, no workspace.
#pragma once
#include "rows/short_rows_anywhere.cuh"
#include "rows/wide_rows.cuh"

// Rows of up to 2^3 vectors are loaded through the L1. Each byte is still read once; but where so many results are written
// between the loads, the memory handles both better in this way, by 8 percent for rows of one vector and by 2 for rows of
// eight. Rows of 64 vectors lose 4 percent by it (benchmarks/NOTES.md).
constexpr uint32 cached_row_levels = 3;

// Loads a lane's vectors of aligned rows as far as they exist, and the second elements beside them, all in flight at once. What
// is put in place of the others has no meaning.
template <class Op, bool ThroughL1, int Bits, class SourceOf>
__device__ __forceinline__ void
load_vectors(uint4* v, Seconds<Op>* y, const LaneVectors<Bits, true>& held, SourceOf source_of)
{
#pragma unroll
    for (int k = 0; k < held.count; ++k) {
        const auto* address = reinterpret_cast<const uint4*>(source_of(k).begin);
        v[k] = ThroughL1 ? load_cached_where(held.has(k), address) : load_streaming_where(held.has(k), address);
    }
#pragma unroll
    for (int k = 0; k < held.count; ++k) y[k] = seconds_if<Op, ThroughL1>(held.has(k) != 0, source_of(k), 0);
}

// Folds a lane's vectors of aligned rows: a[k] becomes the fold of vector k, pivots[k] the pivot of its row. Rows of one vector
// have only half as many in flight, because more loads between the stores of results serve the memory less well.
template <class Op, int Bits>
__device__ __forceinline__ void
fold_aligned_vectors(const LaneVectors<Bits, true>& held, typename Op::Accumulator* a, typename Op::Pivot* pivots,
                     typename Op::Pivot last)
{
    using RowSource = Source<Op, Begin::aligned>;
    constexpr int count = 1 << Bits;
    constexpr uint32 V = vector_elements<typename Op::Input>;
    const auto& problem = held.problem;
    const char *at[count], *second_at[count] = {};
    const uint32 member = member_of(problem, held.lane);
    held.template find<false>(at, problem.elements + member * vector_bytes, lanes * vector_bytes);
    if constexpr (has_second<Op>) {
        constexpr uint32 size = Seconds<Op>::bytes;
        held.template find<true>(second_at, problem.second + member * size, lanes * size);
    }
    const auto source_of = [&](int k) { return RowSource(problem, at[k], second_at[k], problem.length, false); };
    wait_for_prerequisites();
    if constexpr (Op::pivot_is_given) last = Source<Op>(problem, problem.elements, nullptr, problem.length).row.pivot;
    uint4 v[count];
    Seconds<Op> y[count];
    if (problem.levels <= cached_row_levels) load_vectors<Op, true>(v, y, held, source_of);
    else load_vectors<Op, false>(v, y, held, source_of);
    find_pivots<Op, Bits>(pivots, v, held, last);
    const auto fold_half = [&](int first) {
#pragma unroll
        for (int k = first; k < first + count / 2; ++k) {
            auto source = source_of(k);
            source.row.pivot = pivots[k];
            a[k] = fold_vectors<Op, 1>(source, v + k, y + k, held.step(k) * lanes * V, member);
        }
    };
    fold_half(0);
    if (problem.held_bits >= Bits) fold_half(count / 2);
    else if (problem.levels > 0)  // of rows that are not there
#pragma unroll
        for (int k = count / 2; k < count; ++k) a[k] = Op::identity();
    if (problem.in_part) {
        uint32 present = held.present;
        asm volatile("" : "+r"(present));  // or the compiler keeps predicates that the loads would need
#pragma unroll
        for (int k = 0; k < count; ++k) a[k] = select((present & 1u << k) != 0, a[k], Op::identity());
    }
}

// Stores what the levels leave: the results of a lane's rows in a pass.
template <class Op, int Most, int Bits, bool Aligned>
__device__ __forceinline__ void
store_rows(typename Op::Accumulator* a, typename Op::Pivot* pivots, const LaneVectors<Bits, Aligned>& held, uint32 length)
{
    const auto& problem = held.problem;
    uint32 among = problem.among, idle = problem.idle, count = problem.results;
    if constexpr (!Aligned) {
        const uint32 bits = min(uint32(problem.held_bits), uint32(Bits));
        constexpr bool may_be_few = sizeof(typename Op::Input) <= 2 && sizeof(typename Op::Accumulator) <= 8;  // one row to a warp
        const uint32 exchanged = may_be_few ? bits : Bits;
        among = (1u << min(uint32(problem.lane_bits), exchanged - held.step_bits)) - 1;
        idle = ((1u << problem.lane_bits) - 1) & ~among;
        count = (1u << bits) >> min(uint32(problem.levels), uint32(Bits));
    }
    if (held.lane & idle) return;
    constexpr int unrolled = Op::results == 1 && sizeof(typename Op::Accumulator) <= 8 ? Most : 1;  // else too much code
    Source<Op> source(problem, nullptr, nullptr, length, false);
    uint32 past = (held.lane & among) << problem.group_bits;
    auto* results = reinterpret_cast<typename Op::Result*>(problem.result) + (held.row + past);
#pragma unroll(unrolled)
    for (int j = 0; j < Most; ++j) {
        source.row.pivot = pivots[0];
        if (past < held.left) store_results<Op>(problem, source.row, results, a[0]);
        if (j + 1 >= count) break;
        const uint32 further = (among + 1) << problem.group_bits;
        past += further, results += further;
#pragma unroll
        for (int k = 0; k + 1 < Most; ++k) a[k] = a[k + 1], pivots[k] = pivots[k + 1];
    }
}

// Rows of at most one leaf. A warp has as many rows as make eight vectors a lane, of both arrays together, all in flight at
// once; half as many where each vector is a row, and where warps are so few that what each of them executes is what counts.
// Where that would take more code or registers, it takes them in passes. The next kernel's blocks are let in when rows are folded
// (benchmarks/NOTES.md, "Blocks that crowd").
template <class Op, class Rows> __device__ __forceinline__ void reduce_short_rows(const ShortRowsProblem& problem)
{
    constexpr bool aligned = Rows::where == Begin::aligned, wide = sizeof(typename Op::Accumulator) > 8;
    constexpr uint32 V = vector_elements<typename Op::Input>;
    constexpr int Bits = !aligned ? (wide ? 1 : 2) : has_second<Op> ? 2 : 3;
    constexpr bool in_one_pass = Bits == log2_of(steps);
    const uint32 lane = threadIdx.x % lanes;
    const uint64 warp = uint64(blockIdx.x) * problem.warps + threadIdx.x / lanes;
    const uint64 first_row = (warp << problem.row_bits) + group_of(problem, lane);  // the group's
    if constexpr (!aligned) wait_for_prerequisites();
    const uint32 length = uint32(aligned ? problem.length : problem.actual_length());
    if constexpr (may_be_wide<Op, Rows>)
        if (problem.step_bits > 0 && reduce_wide_rows<Op, Rows>(problem, warp << problem.row_bits, length, lane)) return;
    const uint32 vectors = (length + V - 1) / V;
    const bool in_part = aligned ? problem.in_part != 0 : vectors != 1u << problem.levels;
    const bool placed = aligned || seconds_are_placed<Op>(problem);
    bool by_element = false;
    if constexpr (!aligned) by_element = Rows::template by_element<typename Op::Input>(problem);

    LaneCounter<Op, 3 - Bits> parts;  // of a row that takes several passes
    parts.clear();
    typename Op::Pivot pivot = {};
    if constexpr (Op::pivot_is_given && !aligned) pivot = Source<Op>(problem, problem.elements, nullptr, length).row.pivot;
    uint32 done = 0;
#pragma unroll 1
    do {
        const uint64 row = first_row + (done >> problem.step_bits << problem.group_bits);
        const LaneVectors<Bits, aligned> held(problem, lane, row, done, vectors, in_part, blockIdx.x < problem.whole_blocks);
        typename Op::Accumulator a[1 << Bits];
        typename Op::Pivot pivots[1 << Bits];
        if constexpr (aligned) {
            fold_aligned_vectors<Op, Bits>(held, a, pivots, pivot);
        } else {
            VectorsAnywhere<Op, Rows, Bits> found(held, length);
            found.fold_fastest(a, pivots, pivot, placed, by_element);
        }
        fold_levels<Op>(a, pivots, held);
        done += 1u << Bits;
        if (!in_one_pass && held.step_bits < problem.step_bits) {
            a[0] = parts.push(a[0], held.first_step >> Bits);
            pivot = pivots[0];
            if (done & ((1u << problem.step_bits) - 1)) continue;
        }
        launch_dependents();
        a[0] = fold_last_levels<Op>(a[0], held);
        store_rows<Op, aligned ? 1 << (Bits - 1) : 1 << Bits>(a, pivots, held, length);
    } while (!in_one_pass && done < 1u << problem.held_bits);
}

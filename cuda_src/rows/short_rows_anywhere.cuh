// The vectors of short rows that may begin at any address, or whose elements do not lie one after the other.
#pragma once
#include "rows/short_rows.cuh"

// A lane's vectors in a pass, and the rows that they belong to.
template <class Op, class Rows, int Bits> struct VectorsAnywhere {
    using T = typename Op::Input;
    using RowSource = ShapedSource<Op>;
    static constexpr int count = 1 << Bits;
    // Of small elements with narrow accumulators; others lose by the registers that it takes.
    static constexpr bool loads_edges = Rows::are_contiguous && sizeof(T) <= 2 && sizeof(typename Op::Accumulator) <= 8;

    const LaneVectors<Bits, false>& held;
    uint32 length;
    const char *at[count], *second_at[count] = {};

    __device__ __forceinline__
    VectorsAnywhere(const LaneVectors<Bits, false>& held, uint32 length) : held(held), length(length)
    {
        held.template find<false>(at, held.problem.elements, 0);
        if constexpr (has_second<Op>) held.template find<true>(second_at, held.problem.second, 0);
#pragma unroll
        for (int k = 0; k < count; ++k)  // in place of rows that do not exist, the first one of all
            if (!held.has_row(k)) at[k] = held.problem.elements, second_at[k] = held.problem.second;
    }
    __device__ __forceinline__ RowSource source(int k, typename Op::Pivot pivot) const
    {
        RowSource source(held.problem, at[k], second_at[k], length);
        source.row.pivot = pivot;
        return source;
    }
    __device__ __forceinline__ uint32 index(uint32 step) const
    {
        return (step * lanes + member_of(held.problem, held.lane)) * vector_elements<T>;
    }
    __device__ __forceinline__ int32 bytes(bool present, uint32 index) const
    {
        return present ? min(int32(length - index) * int32(sizeof(T)), int32(vector_bytes)) : 0;
    }

    // Whether all 16-byte blocks that the warp's rows touch lie inside the array. Rows may lie in any order: the
    // lowest and the highest of each lane's are checked.
    __device__ __forceinline__ bool all_inside() const
    {
        const char *lowest = at[0], *highest = at[0];
#pragma unroll
        for (int k = 1; k < count; ++k) {
            const char* row = held.has_row(k) ? at[k] : at[0];
            lowest = row < lowest ? row : lowest;
            highest = row > highest ? row : highest;
        }
        const bool inside = Rows::template all_inside<T>(held.problem, lowest, highest + length * sizeof(T));
        return __all_sync(0xffffffffu, !held.has_row(0) || inside);
    }

    // Folds them, all in flight at once: `fetch` loads a vector, of which so many bytes exist, and `fold` folds it.
    template <class Fetch, class Fold>
    __device__ __forceinline__ void
    fold(typename Op::Accumulator* a, typename Op::Pivot* pivots, typename Op::Pivot last, Fetch fetch, Fold fold) const
    {
        uint4 v[count];
#pragma unroll
        for (int k = 0; k < count; ++k) {
            const uint32 i = index(held.step(k));
            v[k] = fetch(source(k, {}), i, bytes(held.has(k) != 0, i));
        }
        find_pivots<Op, Bits>(pivots, v, held, last);
#pragma unroll
        for (int k = 0; k < count; ++k) {
            const uint32 i = index(held.step(k));
            const int32 present = bytes(held.has(k) != 0, i);
            a[k] = Op::identity();
            // Rows of 65 to 96 vectors, say, have nothing in the last of four steps, in any lane.
            if (sizeof(typename Op::Input) >= 4 || __any_sync(0xffffffffu, present > 0)) a[k] = fold(source(k, pivots[k]), v[k], i, present);
        }
    }

    template <class S>
    static __device__ __forceinline__ uint4 fetch_at_edge(const S& source, uint32 index, int32 bytes, const EdgeBlocks& edges)
    {
        if constexpr (!loads_edges) return Rows::fetch_edge(source, index, bytes);
        else return load_shifted(source.begin + index * sizeof(T), bytes, [&](bool wanted, const uint4* block) {
            return wanted ? edges.block(block) : make_uint4(0, 0, 0, 0);
        });
    }

    // The same one after the other, in compact code: for the few rows at the array's edges, and where a second array's elements
    // lie anyhow. Values and rows change places in turn, because a register has no number.
    __device__ __forceinline__ void fold_anyhow(typename Op::Accumulator* a, typename Op::Pivot* pivots)
    {
#pragma unroll
        for (int k = 0; k < count; ++k) a[k] = Op::identity(), pivots[k] = {};
        const ShortRowsProblem& p = held.problem;
        EdgeBlocks edges;
        if constexpr (loads_edges) edges.load(p.elements + p.low, p.elements + p.high, held.lane);
#pragma unroll 1
        for (int k = 0; k < count; ++k) {
            auto first = source(0, {});
            first.load_pivot(held.problem);
            const auto anyhow = with_seconds_anyhow<Op>(first);
            const uint32 i = index(held.step(k));
            const int32 present = bytes(held.has(k) != 0, i);
            const auto value = fold_present<Op>(anyhow, fetch_at_edge(anyhow, i, present, edges), i, present);
#pragma unroll
            for (int j = 0; j + 1 < count; ++j) {
                a[j] = a[j + 1], pivots[j] = pivots[j + 1], at[j] = at[j + 1];
                if constexpr (has_second<Op>) second_at[j] = second_at[j + 1];
            }
            a[count - 1] = value;
            pivots[count - 1] = first.row.pivot;
        }
    }

    // Folds them in the fastest way that is allowed.
    __device__ __forceinline__ void
    fold_fastest(typename Op::Accumulator* a, typename Op::Pivot* pivots, typename Op::Pivot last, bool placed, bool by_element)
    {
        if (placed && by_element)
            fold(a, pivots, last, Rows::template fetch_elements<RowSource>, fold_filled<Op, RowSource>);
        else if (Rows::template has_inside<T> && placed && all_inside())
            fold(a, pivots, last, Rows::template fetch_inside<RowSource>, fold_vector_part<Op, RowSource>);
        else fold_anyhow(a, pivots);
    }
};

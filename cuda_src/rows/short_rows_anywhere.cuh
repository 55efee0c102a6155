// The vectors of short rows that may begin at any address, or whose elements do not lie one after the other.
#pragma once
#include "rows/short_rows.cuh"

// A lane's vectors in a pass, and the rows that they belong to.
template <class Op, class Rows, int Bits> struct VectorsAnywhere {
    using T = typename Op::Input;
    using RowSource = ShapedSource<Op>;
    static constexpr int count = 1 << Bits;
    static constexpr bool joins = Rows::are_contiguous && joins_seconds<Op> && is_same<typename Op::Pivot, Unused>;

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

    // Whether `inside` holds of the beginnings of the lowest and of the highest row, whose order may be any, in each lane.
    template <class Inside> __device__ __forceinline__ bool all_rows(const char* const (&rows)[count], Inside inside) const
    {
        const char *lowest = rows[0], *highest = rows[0];
#pragma unroll
        for (int k = 1; k < count; ++k) {
            const char* row = held.has_row(k) ? rows[k] : rows[0];
            lowest = row < lowest ? row : lowest;
            highest = row > highest ? row : highest;
        }
        return __all_sync(0xffffffffu, !held.has_row(0) || inside(lowest, highest));
    }

    // Whether all 16-byte blocks that the warp's rows touch lie inside the array.
    __device__ __forceinline__ bool all_inside() const
    {
        return all_rows(at, [&](const char* lowest, const char* highest) {
            return Rows::template all_inside<T>(held.problem, lowest, highest + length * sizeof(T));
        });
    }

    // The same of the second array, whose rows are contiguous too: what goes with a vector can be joined as vectors are.
    __device__ __forceinline__ bool are_joined() const
    {
        using Second = typename Op::Second;
        const ShortRowsProblem& p = held.problem;
        if (!joins || p.reduced.second_stride[0] != sizeof(Second)) return false;
        return all_rows(second_at, [&](const char* lowest, const char* highest) {
            return lowest - vector_bytes >= p.second + p.second_low &&
                highest + (length * sizeof(Second) + vector_bytes) <= p.second + p.second_high;
        });
    }

    // Folds them, all in flight at once: `fetch` loads a vector, of which so many bytes exist, and `fold` folds it. Operators that
    // join the second array's have half of both in flight, for all would take more registers; if not `joined`, what goes with a
    // vector is loaded by itself.
    template <class Fetch, class Fold>
    __device__ __forceinline__ void
    fold(typename Op::Accumulator* a, typename Op::Pivot* pivots, typename Op::Pivot last, bool joined, Fetch fetch, Fold fold) const
    {
        constexpr int at_once = joins ? count / 2 : count;
        uint4 v[count];
        Seconds<Op> y[count];
        const auto load = [&](int first) {
#pragma unroll
            for (int k = first; k < first + at_once; ++k) {
                const uint32 i = index(held.step(k));
                v[k] = fetch(source(k, {}), i, bytes(held.has(k) != 0, i));
            }
            if constexpr (joins) {
                if (!joined) return;
#pragma unroll
                for (int k = first; k < first + at_once; ++k) {
                    const uint32 i = index(held.step(k));
                    y[k] = join_seconds<Op>(second_at[k] + i * sizeof(T), bytes(held.has(k) != 0, i));
                }
            }
        };
        load(0);
        find_pivots<Op, Bits>(pivots, v, held, last);
#pragma unroll
        for (int k = 0; k < count; ++k) {
            if (k > 0 && k % at_once == 0) {
                __syncwarp();  // orders nothing: it keeps the compiler from loading the second half before the first is folded
                load(k);
            }
            const uint32 i = index(held.step(k));
            const int32 present = bytes(held.has(k) != 0, i);
            a[k] = Op::identity();
            // Rows of 65 to 96 vectors, say, have nothing in the last of four steps, in any lane.
            if (sizeof(typename Op::Input) < 4 && !__any_sync(0xffffffffu, present > 0)) continue;
            const RowSource its = source(k, pivots[k]);
            if constexpr (joins) {
                if (!joined) y[k] = seconds_of<Op>(its, i, present);
                a[k] = fold_vector_part<Op>(its, v[k], y[k], i, present);
            } else {
                a[k] = fold(its, v[k], i, present);
            }
        }
    }

    static __device__ __forceinline__ typename Op::Accumulator
    fold_inside(const RowSource& source, uint4 raw, uint64 index, int32 bytes)
    {
        return fold_vector_part<Op>(source, raw, index, bytes);
    }

    // The same one after the other, in compact code: for the few rows at the array's edges, and where a second array's elements
    // lie anyhow. Values and rows change places in turn, because a register has no number.
    __device__ __forceinline__ void fold_anyhow(typename Op::Accumulator* a, typename Op::Pivot* pivots)
    {
#pragma unroll
        for (int k = 0; k < count; ++k) a[k] = Op::identity(), pivots[k] = {};
#pragma unroll 1
        for (int k = 0; k < count; ++k) {
            auto first = source(0, {});
            first.load_pivot(held.problem);
            const auto anyhow = with_seconds_anyhow<Op>(first);
            const uint32 i = index(held.step(k));
            const int32 present = bytes(held.has(k) != 0, i);
            const auto value = fold_present<Op>(anyhow, Rows::fetch_edge(anyhow, i, present), i, present);
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
            fold(a, pivots, last, false, Rows::template fetch_elements<RowSource>, fold_filled<Op, RowSource>);
        else if (Rows::template has_inside<T> && placed && all_inside())
            fold(a, pivots, last, are_joined(), Rows::template fetch_inside<RowSource>, fold_inside);
        else fold_anyhow(a, pivots);
    }
};

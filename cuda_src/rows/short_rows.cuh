// How a warp shares out rows of at most one leaf among its lanes, whatever their length: which vectors a lane holds of which
// rows, where they lie, and the levels of the tree that follow.
#pragma once
#include "columns/shape.cuh"

// The argument of the entry. A warp's lanes are grouped, each group for a row at a time. Rows of up to 32 vectors take as many
// lanes, rounded up to a power of two, each with one vector; longer ones take all lanes in up to eight steps. All rows of a
// launch are alike in this, so the host says it (kernels.short_row_values), and branches on it are the whole launch's.
struct ShortRowsProblem : ShapedProblem {
    uint8 levels;         // of the tree above the slots of a row
    uint8 lane_bits;      // those that lanes fold: log2 of a group's lanes
    uint8 step_bits;      // and those that steps do: log2 of the vectors of a row that a lane folds
    uint8 group_bits;     // log2 of a warp's groups, by so many rows the group's next one is further
    uint8 held_bits;      // log2 of the vectors that a lane holds of all its rows
    uint8 row_bits;       // log2 of a warp's rows
    uint8 warps;          // of a block
    uint8 in_part;        // whether rows lack some of the vectors that lanes and steps have places for
    uint32 whole_blocks;  // the blocks whose warps all have so many rows
    // Of aligned rows, which others compute.
    uint8 present;  // the vectors of a lane in a pass, as bits
    uint8 among;    // the bits of a lane's number that tell which of the group's results it holds,
    uint8 idle;     // and those that are set where it holds what another lane does
    uint8 results;  // how many it holds
    // Where aligned rows lie along one axis, the bytes from a lane's vector to that whose number has bit j set besides.
    int64 apart[3], second_apart[3];
    int64 low_second, high_second;  // what bounds the second array's bytes, relative to `second`
};

// The lane's group, and its number in the group.
__device__ __forceinline__ uint32 group_of(const ShortRowsProblem& problem, uint32 lane) { return lane >> problem.lane_bits; }
__device__ __forceinline__ uint32 member_of(const ShortRowsProblem& problem, uint32 lane)
{
    return lane & ((1u << problem.lane_bits) - 1);
}

// The vectors that a lane holds at once in a pass over its group's rows: 2^Bits of them, number k being that of the row
// k >> step_bits and the step k % 2^step_bits. If a row has more steps than that, the pass has part of one.
template <int Bits, bool Aligned> struct LaneVectors {
    static constexpr int count = 1 << Bits;
    const ShortRowsProblem& problem;
    uint32 lane;
    uint64 row;                    // the group's first one in this pass
    uint32 step_bits, first_step;  // of a row in this pass
    uint32 rows, left;             // how many there are of the group in this pass, and of all from `row` on: at least so many
    uint32 present;                // bit k: whether vector k exists, as a whole or in part

    // Of rows of so many `vectors`; in_part: whether these are fewer than there are places for. `first` is the number of the
    // lane's first vector among all that it holds of its rows. `whole`: whether the warp has as many rows as it may.
    __device__ __forceinline__
    LaneVectors(const ShortRowsProblem& p, uint32 lane, uint64 row, uint32 first, uint32 vectors, bool in_part, bool whole)
        : problem(p), lane(lane), row(row), step_bits(Bits < 3 ? min(uint32(p.step_bits), uint32(Bits)) : p.step_bits),
          first_step(first & ((1u << p.step_bits) - 1)), left(leaf_vectors)
    {
        const uint32 bits = Bits < 3 ? min(uint32(p.held_bits), uint32(Bits)) : p.held_bits;
        rows = 1u << (bits - step_bits);
        present = Aligned ? p.present : (1u << (1u << bits)) - 1;
        if (!whole || in_part) {
            left = uint32(max(min(int64(p.rows - row), int64(leaf_vectors)), int64(0)));
            rows = min((left + (1u << p.group_bits) - 1) >> p.group_bits, rows);
            const int32 before = int32(first_step * lanes + member_of(p, lane));
            const uint32 all = uint32(max(int32(vectors) - before + int32(lanes - 1), 0)) / lanes;
            const uint32 firsts = 0x011155ffu >> (8 * step_bits) & 0xffu;  // the first steps of all rows
            present = ((1u << (rows << step_bits)) - 1) & firsts * ((1u << min(all, 1u << step_bits)) - 1);
        }
    }
    __device__ __forceinline__ uint32 step(int k) const { return first_step + (uint32(k) & ((1u << step_bits) - 1)); }
    __device__ __forceinline__ uint32 has(int k) const { return present & 1u << k; }
    __device__ __forceinline__ bool has_row(int k) const { return uint32(k) >> step_bits < rows; }

    // Where the row of each vector begins, and `step_bytes` further for each step: in the first or the second array, in which
    // row 0 begins at `begin`.
    template <bool OfSecond>
    __device__ __forceinline__ void find(const char* (&at)[count], const char* begin, uint32 step_bytes) const
    {
        const KeptAxes& axes = problem.kept;
        if (uint32(axes.count) <= 1) {
            const int64 stride = OfSecond ? axes.second_stride[0] : axes.stride[0];
            at[0] = begin + (int64(row) * stride + first_step * step_bytes);
#pragma unroll
            for (int j = 0; j < Bits; ++j) {
                int64 apart = OfSecond ? problem.second_apart[j] : problem.apart[j];
                if (step_bytes == 0 && j < step_bits) apart = 0;
#pragma unroll
                for (int k = 0; k < 1 << j; ++k) at[(1 << j) + k] = at[k] + apart;
            }
        } else {
            uint32 past[count];
            int64 offsets[count];
#pragma unroll
            for (int k = 0; k < count; ++k) past[k] = uint32(k) >> step_bits << problem.group_bits;
            axes.far_offsets<count>(row, past, OfSecond, offsets);
#pragma unroll
            for (int k = 0; k < count; ++k) at[k] = begin + (offsets[k] + step(k) * step_bytes);
#pragma unroll
            for (int i = 0; i < count; ++i)  // copies here, or ptxas makes them on the other path
                asm volatile("mov.b64 %0, %1;" : "=l"(at[i]) : "l"(at[i]));
        }
    }
};

// The pivot of a row whose first vector the group's first lane holds: a shuffle brings it, because a load of its own would take
// another round trip to the L2. All 32 lanes call it.
template <class Op, int Bits, bool Aligned>
__device__ __forceinline__ typename Op::Pivot bring_pivot(uint4 raw, const LaneVectors<Bits, Aligned>& held)
{
    using T = typename Op::Input;
    union { uint4 raw; uint32 words[vector_bytes / 4]; T first; } u;
    u.raw = raw;
    const uint32 first_lane = held.lane & ~0u << held.problem.lane_bits;
#pragma unroll
    for (uint32 i = 0; i < (sizeof(T) + 3) / 4; ++i) u.words[i] = shuffle_from(u.words[i], first_lane);
    return Op::pivot(u.first);
}

// The pivot of each vector's row; `last` is that of a row that an earlier pass began. All 32 lanes call it.
template <class Op, int J, int Bits, bool Aligned>
__device__ __forceinline__ void
find_pivots(typename Op::Pivot* pivots, const uint4* v, const LaneVectors<Bits, Aligned>& held, typename Op::Pivot last)
{
    if constexpr (is_same<typename Op::Pivot, Unused>) {
    } else if constexpr (Op::pivot_is_given) {
#pragma unroll
        for (int k = 0; k < held.count; ++k) pivots[k] = last;
    } else if constexpr (J == Bits) {
        pivots[0] = bring_pivot<Op>(v[0], held);
        if (held.first_step > 0) pivots[0] = last;
        find_pivots<Op, J - 1>(pivots, v, held, last);
    } else if constexpr (J >= 0) {  // of the vector in the middle, then of those in the middle of the halves, and so on
        constexpr int apart = 1 << J;
        if (J < held.step_bits) {
#pragma unroll
            for (int k = apart; k < held.count; k += 2 * apart) pivots[k] = pivots[k - apart];
        } else {
#pragma unroll
            for (int k = apart; k < held.count; k += 2 * apart) pivots[k] = bring_pivot<Op>(v[k], held);
        }
        find_pivots<Op, J - 1>(pivots, v, held, last);
    }
}

// The step levels and the lane levels of what a lane holds in a pass: a[k] is the fold of vector k. While there are steps, a
// lane folds neighbours itself; after that lanes exchange halves of what they hold, so that the number of shuffles halves at
// each level as well, until there is one value left or no level. `pivots` go with the values. All 32 lanes call it.
// Afterwards, with H lanes that have exchanged, a[j] of lane l is the fold of row j * H + l % H of its group.
template <class Op, int J = 0, int Bits, bool Aligned>
__device__ __forceinline__ void
fold_levels(typename Op::Accumulator* a, typename Op::Pivot* pivots, const LaneVectors<Bits, Aligned>& held)
{
    constexpr int half = 1 << (Bits - 1 - J);
    if (J < held.step_bits) {
#pragma unroll
        for (int i = 0; i < half; ++i) {
            a[i] = combine_neighbours<Op>(a[2 * i], a[2 * i + 1]);
            pivots[i] = pivots[2 * i];
        }
    } else if (J < held.problem.levels) {
        const uint32 mask = (1u << J) >> held.step_bits;
        const bool upper = held.lane & mask;
#pragma unroll
        for (int i = 0; i < half; ++i) {
            const auto kept = select(upper, a[2 * i + 1], a[2 * i]), given = select(upper, a[2 * i], a[2 * i + 1]);
            a[i] = Op::combine(kept, shuffle_xor(given, mask));
            pivots[i] = select(upper, pivots[2 * i + 1], pivots[2 * i]);
        }
    }
    if constexpr (half > 1) fold_levels<Op, J + 1>(a, pivots, held);
}

// What is left of the lane levels once each lane holds one value. All 32 lanes call it; every lane of a group holds the result.
template <class Op, int Bits, bool Aligned>
__device__ __forceinline__ typename Op::Accumulator
fold_last_levels(typename Op::Accumulator value, const LaneVectors<Bits, Aligned>& held)
{
    const uint32 done = Bits - held.step_bits, all = held.problem.lane_bits;
    const auto level = [&](uint32 mask) { value = Op::combine(value, shuffle_xor(value, mask)); };
    if constexpr (Bits == 3 && sizeof(value) <= 8) {  // without a loop, where combining is cheap
        if (all <= 3) return value;
        if (done < 3) {
            if (done < 2) {
                if (done < 1) level(1);
                level(2);
            }
            level(4);
        }
        level(8);
        if (all > 4) level(16);
    } else {
#pragma unroll 1
        for (uint32 mask = 1u << done; mask < 1u << all; mask *= 2) level(mask);
    }
    return value;
}

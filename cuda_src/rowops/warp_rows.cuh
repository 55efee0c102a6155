// Rows of one or two of a lane's eight steps: several a warp, in registers. Of longer ones a warp has one: block_rows.
//
// A row of up to 2^(l + s) vectors takes 2^l lanes, at least 4, and 2^s steps; two only if it takes all lanes. problem.cut is
// l + 16 f + 256 s. So a warp has 2^(8 - l - s) rows: those of one step lie side by side in its lanes. Of few rows, which would leave
// multiprocessors with few warps, it has 2^f times fewer.
#pragma once
#include "rowops/packed_rows.cuh"
#include "rowops/step_rows.cuh"

constexpr uint32 most_rows_of_a_warp = leaf_vectors / 4;
constexpr int warps_of_short_rows = 4;

struct ShortCut {
    uint32 lane_bits, step_bits, fewer;
    __device__ __forceinline__ explicit ShortCut(uint64 cut)
        : lane_bits(uint32(cut) & 7), step_bits(uint32(cut) >> 8), fewer(uint32(cut) >> 4 & 15) {}
    __device__ __forceinline__ uint32 rows() const { return leaf_vectors >> lane_bits + step_bits + fewer; }
    // Which of the warp's rows a lane's step belongs to, and which of the row's vectors it is.
    __device__ __forceinline__ uint32 row(uint32 t, uint32 lane) const
    {
        return t >> step_bits << 5 - lane_bits | lane >> lane_bits;
    }
    __device__ __forceinline__ uint32 vector(uint32 t, uint32 lane) const
    {
        return (t & (1u << step_bits) - 1) * lanes + (lane & (1u << lane_bits) - 1);
    }
};

// Where the rows of a warp lie: found once for each row, since the code for any axes eight times would be most of the kernel's.
template <class R> struct ShortPlaces {
    RowPlace<R> of[most_rows_of_a_warp];

    // Returns whether the words that all of them lie in are the arrays'. All 32 lanes call it, and synchronise before they read.
    __device__ __forceinline__ bool find(const RowProblem<R>& problem, uint64 first, uint32 count, uint32 lane)
    {
        constexpr uint32 V = Held<R>::V;
        bool inside = true;
#pragma unroll 1
        for (uint32 i = lane; i < count; i += lanes) {
            RowPlace<R> place(problem, first + i);
            place.find_outputs(problem, first + i);
            of[i] = place;
            inside = inside && place.lies_inside(problem, 0, (uint32(problem.length) + V - 1) / V * V);
        }
        return !all_agree(!inside);
    }
};

// The lane level of eight rows in each group of 2^lane_bits lanes, 2 to 5: at each level lanes exchange halves of what they
// hold. Afterwards a[j] of lane l is the fold of its group's row 4 j + l % 4 in groups of four, and a[0] that of row l % 8 in
// larger ones. All 32 lanes call it.
template <class Op>
__device__ __forceinline__ void fold_eight_rows(typename Op::Accumulator* a, uint32 lane_bits, uint32 lane)
{
    warp_fold_rows<Op, 4, 8>(a, lane);
    if (lane_bits > 2) {
        const bool upper = lane & 4;
        const auto kept = select(upper, a[1], a[0]), given = select(upper, a[0], a[1]);
        a[0] = Op::combine(kept, shuffle_xor(given, 4));
    }
    if (lane_bits > 3) a[0] = Op::combine(a[0], shuffle_xor(a[0], 8));
    if (lane_bits > 4) a[0] = Op::combine(a[0], shuffle_xor(a[0], 16));
}

// The folds of a warp's rows, put where all lanes find them. All 32 lanes call it, and synchronise before they read.
template <class Op>
__device__ __forceinline__ void
fold_short_rows(typename Op::Accumulator* a, typename Op::Accumulator* roots, const ShortCut& cut, uint32 lane)
{
    if (cut.step_bits == 0) {
        fold_eight_rows<Op>(a, cut.lane_bits, lane);
        const uint32 group = lane >> cut.lane_bits, member = lane & (1u << cut.lane_bits) - 1;
        if (member < 8) roots[member << 5 - cut.lane_bits | group] = a[0];
        if (cut.lane_bits == 2) roots[member + 4 << 3 | group] = a[1];
        return;
    }
#pragma unroll
    for (uint32 i = 0; i < 4; ++i) a[i] = combine_neighbours<Op>(a[2 * i], a[2 * i + 1]);
    warp_fold_rows<Op, lanes, 4>(a, lane);
    if (lane < cut.rows()) roots[lane] = a[0];
}

// What a warp's rows come to: from `roots`, by as many lanes as there are rows, for all lanes. What is kept is written here.
template <class R, class PlaceOf>
__device__ __forceinline__ void
values_of_rows(const RowProblem<R>& problem, PlaceOf place_of, const typename R::Op::Accumulator* roots, typename R::Values* values,
               uint64 first, uint32 count, uint32 lane)
{
#pragma unroll 1
    for (uint32 i = lane; i < count; i += lanes) {
        const typename R::Given given = R::given(problem, first + i);
        const RowPlace<R> place = place_of(i);
        const auto source = held_row<R>(place, given, R::length(problem, given, first + i));
        values[i] = R::values(problem, given, first + i, place, source.row, roots[i], true);
    }
}

// Packed rows need no places, but a slot for each vector.
template <class R, bool Packed> union ShortScratch {
    ShortPlaces<R> places;
    typename R::Op::Accumulator slots[Packed ? leaf_vectors : 1];
    __device__ ShortScratch() {}
};

// The same of rows that lie packed: from the folds of all their vectors on as above.
template <class R>
__device__ __forceinline__ void
packed_rows(const RowProblem<R>& problem, const ShortCut& cut, typename R::Op::Accumulator* slots, typename R::Op::Accumulator* roots,
            typename R::Values* values, uint64 first, uint32 count, uint32 lane)
{
    using Op = typename R::Op;
    constexpr uint32 V = Held<R>::V;
    PackedRows<R> rows(problem, first, count, lane);
    const uint32 each_bits = cut.lane_bits + cut.step_bits;
    const bool inside = rows.run.lies_inside(problem, 0, (count * rows.n + V - 1) / V * V);
    if (inside) rows.template fold_vectors<true>(slots, each_bits);
    else rows.template fold_vectors<false>(slots, each_bits);
    __syncwarp();
    typename Op::Accumulator a[steps];
#pragma unroll
    for (uint32 t = 0; t < steps; ++t) {
        a[t] = Op::identity();
        if (cut.row(t, lane) < count && cut.vector(t, lane) * V < rows.n) a[t] = slots[t * lanes + lane];
    }
    fold_short_rows<Op>(a, roots, cut, lane);
    __syncwarp();
    values_of_rows<R>(problem, [&](uint32 i) { return rows.place(i); }, roots, values, first, count, lane);
    __syncwarp();
    rows.write(values);
}

template <class R, Begin Where> __device__ __forceinline__ void warp_rows(const RowProblem<R>& problem)
{
    using Op = typename R::Op;
    constexpr uint32 V = Held<R>::V;
    __shared__ typename Op::Accumulator all_roots[warps_of_short_rows][most_rows_of_a_warp];
    __shared__ typename R::Values all_values[warps_of_short_rows][most_rows_of_a_warp];
    __shared__ ShortScratch<R, may_be_packed<R, Where>> all_scratch[warps_of_short_rows];
    const ShortCut cut(problem.cut);
    if (cut.step_bits == 0 && cut.fewer == 3) return rows_of_steps<R, Where, 1>(problem, cut.lane_bits);
    // Moments of two steps would take more registers.
    if constexpr (Where == Begin::aligned && sizeof(typename Op::Accumulator) <= 8)
        if (cut.step_bits == 0 && cut.fewer == 2) return rows_of_steps<R, Where, 2>(problem, cut.lane_bits);
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    const uint64 first = (uint64(blockIdx.x) * (blockDim.x / lanes) + warp) * cut.rows();
    wait_for_prerequisites();
    // Not before: the launches after the next one would come in, too, and crowd the multiprocessors that have places first.
    launch_dependents();
    if (first >= problem.rows) return;
    const uint32 count = uint32(min(problem.rows - first, uint64(cut.rows()))), whole = uint32(problem.length);

    if constexpr (may_be_packed<R, Where>)
        if (lie_packed(problem))
            return packed_rows<R>(problem, cut, all_scratch[warp].slots, all_roots[warp], all_values[warp], first, count, lane);
    ShortPlaces<R>& places = all_scratch[warp].places;
    const bool inside = places.find(problem, first, count, lane);
    __syncwarp();
    Held<R> held;
    const auto length_of = [&](uint64 row) { return R::length(problem, R::given(problem, row), row); };
    held.template load<Where>(inside, [&](uint32 t) {
        const uint32 row = cut.row(t, lane), index = cut.vector(t, lane) * V, there = min(row, count - 1);
        const int32 present = row < count ? left_from(index, length_of(first + there)) : 0;
        return VectorPlace<R>{places.of[there], index, present};
    });
    typename Op::Accumulator a[steps];
#pragma unroll
    for (uint32 t = 0; t < steps; ++t) {
        const uint32 row = cut.row(t, lane), index = cut.vector(t, lane) * V;
        const uint64 number = first + min(row, count - 1);
        const typename R::Given given = R::given(problem, number);
        const uint32 length = row < count ? R::length(problem, given, number) : 0;
        const auto source = held_row<R>(places.of[min(row, count - 1)], given, length);
        a[t] = fold_step<R, Where>(held, t, problem, source, index, left_from(index, length));
    }
    fold_short_rows<Op>(a, all_roots[warp], cut, lane);
    __syncwarp();
    values_of_rows<R>(problem, [&](uint32 i) { return places.of[i]; }, all_roots[warp], all_values[warp], first, count, lane);
    __syncwarp();
    if constexpr (Where == Begin::anywhere && R::in_blocks) {
        const auto length_in = [&](uint32 row) { return length_of(first + row); };
        if (write_rows_in_blocks<R>(problem, places.of, all_values[warp], count, length_in)) return;
    }
    if constexpr (R::outputs > 0) {
        Across<R::outputs> across;
        across.run = 1u << cut.lane_bits;
        const uint32 last = (1u << cut.step_bits) - 1;  // of a row's steps
#pragma unroll
        for (uint32 t = 0; t < steps; ++t) {
            const uint32 row = cut.row(t, lane), index = cut.vector(t, lane) * V;
            const int32 left = row < count ? left_from(index, whole) : 0;
            if (Where == Begin::anywhere ? !all_agree(left > 0) : left <= 0) continue;  // anywhere, lanes write together
            across.follows = (t & last) != 0;
            across.continues = (t & last) != last;
            const uint32 there = min(row, count - 1);
            R::template write<Where>(problem, places.of[there], index, left, length_of(first + there), held.x[t], held.second(t),
                                     all_values[warp][there], across,
                                     R::template columns<Where>(problem, index, left));
        }
    }
}

// Short rows that are few: a warp has those of one or two of its steps, and each lane a vector of each.
#pragma once
#include "rowops/held.cuh"

// The fold of each group of 2^lane_bits lanes, 2 to 5; every lane has its group's. All 32 lanes call it.
template <class Op>
__device__ __forceinline__ typename Op::Accumulator fold_group(typename Op::Accumulator value, uint32 lane_bits)
{
    value = warp_fold<Op, 4>(value);
    if (lane_bits > 2) value = Op::combine(value, shuffle_xor(value, 4));
    if (lane_bits > 3) value = Op::combine(value, shuffle_xor(value, 8));
    if (lane_bits > 4) value = Op::combine(value, shuffle_xor(value, 16));
    return value;
}

// Rows of N steps of a warp, side by side in each. What counts where rows are few is how soon that is through: so all lanes of a
// row find out what it comes to, and nothing goes through shared memory.
template <class R, Begin Where, uint32 N>
__device__ __forceinline__ void rows_of_steps(const RowProblem<R>& problem, uint32 lane_bits)
{
    using Op = typename R::Op;
    constexpr uint32 V = Held<R>::V;
    const uint32 lane = threadIdx.x % lanes, index = (lane & (1u << lane_bits) - 1) * V, whole = uint32(problem.length);
    const uint64 first = (uint64(blockIdx.x) * (blockDim.x / lanes) + threadIdx.x / lanes) * N << 5 - lane_bits;
    wait_for_prerequisites();
    launch_dependents();
    if (first >= problem.rows) return;
    struct {
        RowPlace<R> place;
        typename R::Given given;
        uint64 number;
        uint32 length;
        bool is_there;
    } rows[N];
    bool inside = true;
#pragma unroll
    for (uint32 t = 0; t < N; ++t) {
        const uint64 own = first + (t << 5 - lane_bits | lane >> lane_bits);
        rows[t].is_there = own < problem.rows;
        rows[t].number = min(own, problem.rows - 1);
        rows[t].place = RowPlace<R>(problem, rows[t].number);
        rows[t].given = R::given(problem, rows[t].number);
        rows[t].length = R::length(problem, rows[t].given, rows[t].number);
        inside = inside && rows[t].place.lies_inside(problem, 0, (whole + V - 1) / V * V);
    }
    const auto left = [&](uint32 t, uint32 length) { return rows[t].is_there ? left_from(index, length) : 0; };
    Held<R> held;
    held.template load<Where, N>(!all_agree(!inside), [&](uint32 t) {
        return VectorPlace<R>{rows[t].place, index, left(t, rows[t].length)};
    });
    typename R::Columns columns;
    if (N == 1) columns = R::template columns<Where>(problem, index, left(0, whole));
    typename R::Values values[N];
#pragma unroll
    for (uint32 t = 0; t < N; ++t) {
        const auto source = held_row<R>(rows[t].place, rows[t].given, rows[t].length);
        const auto folded = fold_step<R, Where>(held, t, problem, source, index, left(t, rows[t].length));
        values[t] = R::values(problem, rows[t].given, rows[t].number, rows[t].place, source.row,
                              fold_group<Op>(folded, lane_bits), rows[t].is_there && index == 0);
    }
    if constexpr (R::outputs > 0) {
        __syncwarp();  // in place, what a row comes to may be found out from its elements
        Across<R::outputs> across;
        across.run = 1u << lane_bits;
        if (N > 1) columns = R::template columns<Where>(problem, index, left(0, whole));
#pragma unroll
        for (uint32 t = 0; t < N; ++t) {
            if (Where != Begin::anywhere && left(t, whole) <= 0) continue;  // anywhere, lanes write together
            rows[t].place.find_outputs(problem, rows[t].number);
            R::template write<Where>(problem, rows[t].place, index, left(t, whole), rows[t].length, held.x[t], held.second(t),
                                     values[t], across, columns);
        }
    }
}

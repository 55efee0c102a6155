// Many rows of a few small elements that follow each other, a thread to a row: several rows of a thread at once, and nothing that
// other rows need. What each of them takes is then few instructions (benchmarks/NOTES.md, "Rows of two to seven elements").
#pragma once
#include "rows/few_elements.cuh"

// Which operators have this: with others folds are long, or elements so large that the memory is what rows wait for.
template <class Op> constexpr bool takes_rows_together = sizeof(typename Op::Input) * sizeof(typename Op::Accumulator) <= 8 &&
                                                         !has_second<Op> && fills_absent<Op>;

// Reduces the thread's rows from number `first` + `past` on, `apart` from one to the next, as long as there are `Rows` for each
// thread of the block, which has `of_block`; rows have 2 to E elements, and results lie one after the other. Returns what `first`
// is for the rest.
template <class Op, uint32 E, uint32 Rows>
__device__ __forceinline__ uint32
reduce_together(const ShapedProblem& problem, const RowOf<Op>& row, uint32 first, uint32 past, uint32 of_block, uint32 apart)
{
    FewElements<Op, E> few[Rows];
    const uint32 stride = uint32(problem.kept.stride[0]), rows = uint32(problem.rows);
    auto* results = reinterpret_cast<typename Op::Result*>(problem.result);
#pragma unroll
    for (uint32 k = 0; k < Rows; ++k) few[k].begin_alone(uint32(row.length));
    wait_for_prerequisites();
#pragma unroll 1
    for (; first + (Rows - 1) * apart + of_block <= rows; first += Rows * apart) {
        const uint32 number = first + past;
#pragma unroll
        for (uint32 k = 0; k < Rows; ++k) few[k].load_alone(problem.elements + uint64(number + k * apart) * stride);
#pragma unroll
        for (uint32 k = 0; k < Rows; ++k) {
            const auto value = few[k].fold(row);
#pragma unroll
            for (int r = 0; r < Op::results; ++r)
                results[r * problem.rows + (number + k * apart)] = Op::finish(value, row, r);
        }
        launch_dependents();
    }
    return first;
}

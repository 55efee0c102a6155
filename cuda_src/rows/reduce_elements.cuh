// Rows of at most one leaf that lie in any way, and strided ones of as many elements as a block has room for, few elements of a row
// to a thread, each loaded by itself: one launch, no workspace, and so little code before the loads that small arrays need not wait.
#pragma once
#include "rows/columns_together.cuh"
#include "rows/direct_rows.cuh"
#include "tree/block.cuh"

constexpr uint32 element_warps = 16;  // of a block, at most: enough for a leaf of bytes

// `Problem::count`, which RowStrategy.count makes: logarithms. The lanes of a warp have 2^beside rows, and 2^lane_bits of them
// share a row, as do 2^warp_bits warps of the block. The bits of a lane's number that tell its row among those of the warp, and
// which of the row's lanes it is, begin at bits own_shift and part_shift: lanes that follow each other have neighbouring rows, or
// neighbouring elements. Rows that are `together` are a thread's each and have two to eight elements. Those that are `direct` are a
// warp's, in one step and one turn, along one reduced axis and, if they are `of_two`, two kept ones; their elements may be
// `in_vectors`.
struct ElementCut {
    uint32 step_bits, lane_bits, warp_bits, warps, own_shift, part_shift;
    Together together;
    bool in_vectors, of_two;

    // Whether rows are not to be taken directly, as a word that takes few instructions to make.
    static __device__ __forceinline__ uint32 not_directly(const ShapedProblem& problem)
    {
        const uint64 length_at = reinterpret_cast<uint64>(problem.device_length);
        const uint32 others = ~uint32(problem.count >> 32) & 1u << 18, address = uint32(reinterpret_cast<uint64>(problem.elements));
        return others | (address % vector_bytes) | uint32(length_at) | uint32(length_at >> 32);
    }

    __device__ __forceinline__ explicit ElementCut(uint64 word)
        : step_bits(uint32(word) & 255), lane_bits(uint32(word >> 8) & 255), warp_bits(uint32(word >> 16) & 255),
          warps(uint32(word >> 24) & 255), own_shift(uint32(word >> 32) & 255), part_shift(uint32(word >> 40) & 255),
          together(Together(uint32(word >> 32) >> 16 & 3)), in_vectors(uint32(word >> 32) & 1u << 19),
          of_two(uint32(word >> 32) & 1u << 20)
    {}
    __device__ __forceinline__ uint32 beside() const { return log2_of(lanes) - lane_bits; }
};

// The grid takes all rows, or in several turns as many as it has threads for; rows that warps share in one. The next kernel's
// blocks are let in when elements are folded (benchmarks/NOTES.md, "Blocks that crowd"): such grids have few turns.
template <class Op> __device__ __forceinline__ void reduce_elements(const ShapedProblem& problem)
{
    using T = typename Op::Input;
    using A = typename Op::Accumulator;
    using Mine = FewElements<Op, elements_of_a_thread<T>>;
    __shared__ A slots[element_warps][lanes];
    // What others do with these words stays in uniform registers: with the same words in both they would need more registers.
    if constexpr (!has_second<Op>) {
        if (ElementCut::not_directly(problem) == 0) return reduce_directly<Op>(problem, ElementCut(word_anew(problem.count)));
    }
    const ElementCut cut(problem.count);
    // Asked of one line of the argument; and two things are asked so that the code stands behind the rest, for which others would
    // wait if they jumped over it. Where a return is left to the code, it stands before the rest, which costs words nothing.
    const bool is_together = __builtin_expect(cut.together != Together::none && problem.rows != 0, false);
    if constexpr (takes_rows_together<Op>) {
        if (is_together) return reduce_together<Op>(problem, cut.together);
    } else if constexpr (takes_columns_together<Op>) {
        if (is_together && reduce_columns_together<Op>(problem, cut.together)) return;
    }
    const uint32 lane = threadIdx.x % lanes, warp = threadIdx.x / lanes, beside = cut.beside();
    const uint32 own = lane >> cut.own_shift & (1u << beside) - 1, part = lane >> cut.part_shift & (1u << cut.lane_bits) - 1;
    const uint32 member = warp & (1u << cut.warp_bits) - 1, of_block = 1u << cut.warps - cut.warp_bits + beside;
    const uint32 past = made_once((warp >> cut.warp_bits << beside) + own), rows = uint32(problem.rows);
    const uint32 thread = made_once((member << cut.lane_bits) + part);  // of those that share a row: the first stores the result
    uint32 length = uint32(problem.length);
    if (problem.device_length != nullptr) {
        wait_for_prerequisites();
        length = uint32(problem.actual_length());
    }
    RowOf<Op> row;
    row.length = length, row.initial[0] = problem.initial[0], row.initial[1] = problem.initial[1];
    Mine mine(thread, cut.step_bits, length);
    const bool in_runs = Mine::in_runs(problem, length);
    const bool in_pairs = Mine::in_pairs(problem, length);
    const uint32 misaligned = Mine::misaligned(problem);
    // 0 if elements are aligned and there is one axis of each kind at most. One word, for the compiler would ask bit by bit.
    const uint32 unusual = made_once(misaligned | (uint32(problem.kept.count) | uint32(problem.reduced.count)) >> 1);
#pragma unroll 1
    for (uint32 first = blockIdx.x * of_block; first < rows; first += made_once(gridDim.x * of_block)) {
        const uint32 number = min(first + past, rows - 1);
        RowPlace place;
        const char *begin, *second;
        const auto begin_at = [&](const RowPlace& at) {
            begin = problem.elements + at.offset;
            second = has_second<Op> ? problem.second + at.second_offset : nullptr;
            wait_for_prerequisites();
        };
        if (unusual == 0) {
            place.find<true>(problem, number, has_second<Op>);
            begin_at(place);
            if (in_runs) mine.template load_runs<true>(problem, begin);
            else if (in_pairs) mine.load_pairs(begin);
            else mine.template load<true>(problem, begin, second);
        } else {  // in loops, which small launches would wait for
            place.find<false>(problem, number, has_second<Op>);
            begin_at(place);
            if (in_runs) mine.template load_runs<false>(problem, begin);
            else if (misaligned == 0) mine.template load<false>(problem, begin, second);
            else mine.load_anywhere(problem, begin, second);
        }
        if constexpr (Op::pivot_is_given) row.pivot = Op::pivot(load_element<T>(problem.second));
        else if constexpr (!is_same<typename Op::Pivot, Unused>)
            row.pivot = Op::pivot(cut.lane_bits + cut.warp_bits == 0 || row.length == 0 ? mine.x[0] : load_element<T>(begin));
        A value = mine.fold(with_pivot_from_here(RowAlone<Op>{row}).row);
        launch_dependents();
#pragma unroll 1
        for (uint32 k = 0, mask = 1u << cut.part_shift; k < cut.lane_bits; ++k, mask *= 2)
            value = Op::combine(value, shuffle_xor(value, mask));
#pragma unroll 1
        for (uint32 step = 1; step < 1u << cut.warp_bits; step *= 2) {  // what is read in a turn is not written in the next
            if (part == 0 && (member & step - 1) == 0) slots[warp][own] = value;
            __syncthreads();
            if ((member & 2 * step - 1) == 0) value = Op::combine(value, slots[warp + step][own]);
        }
        if (thread == 0 && first + past < rows) store_result<Op>(problem, row, place.result, value);
    }
}

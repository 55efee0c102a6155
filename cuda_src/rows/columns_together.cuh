// Columns of few elements that lie side by side, words of them to a thread: little is executed for each, and much is in flight.
// Nothing here is shared with other rows, as in rows_together.cuh (benchmarks/NOTES.md, "Columns together").
#pragma once
#include "rows/rows_together.cuh"

// Which operators have this, at least those that RowStrategy says it of.
template <class Op> constexpr bool takes_columns_together = sizeof(typename Op::Input) <= 4 &&
                                                            sizeof(typename Op::Accumulator) <= 8 && !has_second<Op> &&
                                                            is_same<typename Op::Pivot, Unused> && Op::results == 1 &&
                                                            sizeof(typename Op::Result) == sizeof(typename Op::Input);

// Which rows are taken together, as the host tells in `Problem::count`: those that lie one after the other, or columns of which eight
// bytes lie side by side at multiples of eight, or sixteen at those of sixteen. Then results follow each other like columns.
enum class Together : uint32 { none, rows, words, vectors };

// Columns of up to E elements, W words of them to a thread: those of a word are folded in a step, and words change places after
// it, because steps side by side would be W times the code.
template <class Op, uint32 E, uint32 W>
__device__ __forceinline__ void reduce_words(const ShapedProblem& problem, const RowOf<Op>& row, const GridThread& thread)
{
    using T = typename Op::Input;
    using R = typename Op::Result;
    using V = typename Word<W * 4>::type;
    constexpr uint32 each = 4 / sizeof(T), columns = W * each;
    union Step { uint32 word; T elements[each]; };
    union Words { V whole; uint32 words[W]; };
    union Results { uint32 word; R results[each]; };
    const uint32 groups = uint32(problem.rows) / columns;
#pragma unroll 1
    for (uint32 group = thread.number; group < groups; group += thread.count) {
        RowPlace place;
        if (uint32(problem.kept.count) <= 1) place.offset = int64(group) * (W * 4);
        else place.find<false>(problem, group * columns, false);
        const char* from = problem.elements + place.offset;
        RowOfThread<Op, E> few(uint32(row.length));
        Words of[E], to = {};
        Step absent;
#pragma unroll
        for (uint32 r = 0; r < each; ++r) absent.elements[r] = few.x[0];
#pragma unroll
        for (uint32 e = 0; e < E; ++e, from += problem.step) {
#pragma unroll
            for (uint32 w = 0; w < W; ++w) of[e].words[w] = absent.word;
            if constexpr (W == 4) of[e].whole = load_cached_if(e < few.length, reinterpret_cast<const V*>(from), of[e].whole);
            else of[e].whole = load_word_if(e < few.length, reinterpret_cast<const V*>(from), of[e].whole);
        }
#pragma unroll 1
        for (uint32 step = 0; step < W; ++step) {
            Results found;
#pragma unroll
            for (uint32 r = 0; r < each; ++r) {
#pragma unroll
                for (uint32 e = 0; e < E; ++e) few.x[e] = Step{of[e].words[0]}.elements[r];
                const auto value = few.fold(row);
                found.results[r] = row.length == 0 ? Op::empty(row, 0) : Op::finish(value, row, 0);
            }
#pragma unroll
            for (uint32 w = 0; w + 1 < W; ++w) {
#pragma unroll
                for (uint32 e = 0; e < E; ++e) of[e].words[w] = of[e].words[w + 1];
                to.words[w] = to.words[w + 1];
            }
            to.words[W - 1] = found.word;
        }
        reinterpret_cast<V*>(problem.result)[group] = to.whole;
        launch_dependents();
    }
}

// Columns of up to eight elements at any address, one to a thread, in compact code: they are rare.
template <class Op>
__device__ __forceinline__ void reduce_single(const ShapedProblem& problem, const RowOf<Op>& row, const GridThread& thread)
{
    const uint32 rows = uint32(problem.rows);
#pragma unroll 1
    for (uint32 number = thread.number; number < rows; number += thread.count) {
        const char* begin = problem.elements + problem.kept.offset(number, false);
        RowOfThread<Op, 8> few(uint32(row.length));
        few.load_anywhere(problem, begin, nullptr);
        store_result<Op>(problem, row, number, few.fold(row));
    }
}

// All columns of a problem that RowStrategy calls `together`, as it says how. Returns false if they are at addresses, or have results
// at such, that are no multiples of eight bytes.
template <class Op> __device__ __forceinline__ bool reduce_columns_together(const ShapedProblem& problem, Together how)
{
    const uint32 bits = uint32(reinterpret_cast<uint64>(problem.elements) | reinterpret_cast<uint64>(problem.result));
    if (bits % 8 != 0) return false;
    const GridThread thread;
    wait_for_prerequisites();
    RowOf<Op> row;
    row.length = uint32(problem.actual_length()), row.initial[0] = problem.initial[0], row.initial[1] = problem.initial[1];
    if (how == Together::vectors && bits % 16 == 0) reduce_words<Op, 4, 4>(problem, row, thread);
    else reduce_words<Op, 8, 2>(problem, row, thread);
    return true;
}

// All rows of a problem that RowStrategy calls `together`, of operators that have it of contiguous rows.
template <class Op> __device__ __forceinline__ void reduce_together(const ShapedProblem& problem, Together how)
{
    if (how == Together::rows) return reduce_rows_together<Op>(problem);
    if constexpr (takes_columns_together<Op>)
        if (reduce_columns_together<Op>(problem, how)) return;
    RowOf<Op> row;
    wait_for_prerequisites();
    row.length = uint32(problem.actual_length()), row.initial[0] = problem.initial[0], row.initial[1] = problem.initial[1];
    reduce_single<Op>(problem, row, GridThread{});
}

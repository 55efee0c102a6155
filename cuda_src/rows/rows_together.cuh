// Many rows of a few small elements that lie one after the other, a thread to several rows at once: little is executed for each,
// and much is in flight. Nothing here is shared with other rows, of which each instruction counts (benchmarks/NOTES.md, "Rows
// together").
#pragma once
#include "rows/few_elements.cuh"

// Which operators have this, at least those that RowStrategy says it of: with others folds are long, or elements so large that the
// memory is what rows wait for.
template <class Op> constexpr bool takes_rows_together = sizeof(typename Op::Input) * sizeof(typename Op::Accumulator) <= 8 &&
                                                         !has_second<Op> && is_same<typename Op::Pivot, Unused>;

// Which of them fold whole vectors. Of float8, and of what fills no absent places, the compiler needs more registers for that than
// other launches of the kernel can spare.
template <class Op> constexpr bool folds_packed_rows = sizeof(typename Op::Result) == sizeof(typename Op::Input) &&
                                                       Op::results == 1 && fills_absent<Op> && !is_float8<typename Op::Input>;

// A row that a thread has alone, in one step, of contiguous and aligned elements: it knows where they are.
template <class Op, uint32 E> struct RowOfThread : FewElements<Op, E> {
    using Base = FewElements<Op, E>;
    using T = typename Op::Input;

    RowOfThread() = default;
    __device__ __forceinline__ explicit RowOfThread(uint32 of_row)
    {
        this->length = of_row;
#pragma unroll
        for (uint32 k = 0; k < Base::runs; ++k) this->starts[k] = k * Base::run;
#pragma unroll
        for (uint32 e = 0; e < E; ++e) this->x[e] = Base::absent(), this->y[e] = {};
    }

    // Loads its elements from where the row begins.
    __device__ __forceinline__ void load(const char* begin)
    {
#pragma unroll
        for (uint32 e = 0; e < E; ++e)
            this->x[e] = Base::loaded(begin + e * sizeof(T), e < this->length, this->x[e]);
    }
};

// The thread's number in the grid, and how many threads that has.
struct GridThread {
    uint32 number = blockIdx.x * blockDim.x + threadIdx.x, count = gridDim.x * blockDim.x;
};

// Rows of L elements without gaps between them, from a multiple of sixteen bytes on: as many as make a vector of results have L
// vectors of elements. Those of a word of results are folded in a step, and words change places after it: steps side by side would
// be four times the code. Returns how many rows such vectors hold.
template <class Op, uint32 L>
__device__ __forceinline__ uint32 reduce_packed(const ShapedProblem& problem, const RowOf<Op>& row, const GridThread& thread)
{
    using T = typename Op::Input;
    constexpr uint32 words = vector_bytes / 4, R = 4 / sizeof(T), E = L <= 2 ? 2 : 4;
    union Vectors { uint4 vectors[L]; uint32 words[L * words]; };
    union Step { uint32 words[L]; T elements[R * L]; };
    union Results { uint32 word; typename Op::Result results[R]; };
    const uint32 groups = uint32(problem.rows) / (R * words);
#pragma unroll 1
    for (uint32 group = thread.number; group < groups; group += thread.count) {
        const auto* from = reinterpret_cast<const uint4*>(problem.elements) + uint64(group) * L;
        Vectors of;
        uint4 to = {};
#pragma unroll
        for (uint32 k = 0; k < L; ++k) of.vectors[k] = load_cached_if(true, from + k, uint4{});
        RowOfThread<Op, E> few(L);
#pragma unroll 1
        for (uint32 step = 0; step < words; ++step) {
            Step now;
            Results found;
#pragma unroll
            for (uint32 k = 0; k < L; ++k) now.words[k] = of.words[k];
#pragma unroll
            for (uint32 k = 0; k < L * (words - 1); ++k) of.words[k] = of.words[k + L];
#pragma unroll
            for (uint32 r = 0; r < R; ++r) {
#pragma unroll
                for (uint32 e = 0; e < L; ++e) few.x[e] = now.elements[r * L + e];
                found.results[r] = Op::finish(few.fold(row), row, 0);
            }
            to = uint4{to.y, to.z, to.w, found.word};
        }
        reinterpret_cast<uint4*>(problem.result)[group] = to;
        launch_dependents();
    }
    return groups * R * words;
}

// Rows of up to E elements from number `first` on, wherever they are, several at once.
template <class Op, uint32 E, uint32 Rows>
__device__ __forceinline__ void
reduce_beside(const ShapedProblem& problem, const RowOf<Op>& row, const GridThread& thread, uint32 first)
{
    const uint32 rows = uint32(problem.rows), stride = uint32(problem.kept.stride[0]);
    const bool aligned = uint32(reinterpret_cast<uint64>(problem.elements)) % sizeof(typename Op::Input) == 0;
    RowOfThread<Op, E> few[Rows];
#pragma unroll
    for (uint32 k = 0; k < Rows; ++k) few[k] = RowOfThread<Op, E>(uint32(row.length));
#pragma unroll 1
    for (first += thread.number; first < rows; first += Rows * thread.count) {
#pragma unroll
        for (uint32 k = 0; k < Rows; ++k) {
            const char* begin = problem.elements + uint64(min(first + k * thread.count, rows - 1)) * stride;
            if (aligned) few[k].load(begin);
            else few[k].load_anywhere(problem, begin, nullptr);
        }
#pragma unroll
        for (uint32 k = 0; k < Rows; ++k) {
            const uint32 number = first + k * thread.count;
            const auto value = few[k].fold(row);
            if (number < rows) store_result<Op>(problem, row, number, value);
        }
        launch_dependents();
    }
}

// All rows of a problem that RowStrategy calls `together`, if they are no columns.
template <class Op> __device__ __forceinline__ void reduce_rows_together(const ShapedProblem& problem)
{
    using T = typename Op::Input;
    const uint64 bits = reinterpret_cast<uint64>(problem.elements), of_results = reinterpret_cast<uint64>(problem.result);
    wait_for_prerequisites();
    const uint32 length = uint32(problem.actual_length());
    const GridThread thread;
    RowOf<Op> row;
    row.length = length, row.initial[0] = problem.initial[0], row.initial[1] = problem.initial[1];
    uint32 first = 0;
    if constexpr (folds_packed_rows<Op>) {
        if ((bits | of_results) % vector_bytes == 0 && uint32(problem.kept.stride[0]) == length * uint32(sizeof(T))) {
            if (length == 2) first = reduce_packed<Op, 2>(problem, row, thread);
            if (length == 3) first = reduce_packed<Op, 3>(problem, row, thread);
            if (length == 4) first = reduce_packed<Op, 4>(problem, row, thread);
        }
    }
    reduce_beside<Op, 8, 2>(problem, row, thread, first);
}

// Rows of few elements in launches so small that what counts is how soon the first load is issued: a warp has all of a row, the
// grid takes all rows in one turn, and axes are few. As few instructions as possible, and as few lines of the argument.
#pragma once
#include "rows/few_elements.cuh"

// a * b, as one instruction together with what it is added to.
__device__ __forceinline__ int64 product(uint32 a, int32 b)
{
    int64 c;
    asm("mul.wide.s32 %0, %1, %2;" : "=l"(c) : "r"(a), "r"(b));
    return c;
}

// The few elements that a thread has of such a row, in one step of the tree: each lies a stride after the one before.
template <class Op> struct DirectElements : FewElements<Op, elements_of_a_thread<typename Op::Input>> {
    using T = typename Op::Input;
    static constexpr uint32 E = elements_of_a_thread<T>;
    using Base = FewElements<Op, E>;

    __device__ __forceinline__ DirectElements(uint32 part, uint32 length) : Base(part, 0, length) {}

    // Those from where the thread's first one would be. No load waits for another; the second half of what a thread may have is
    // left out where no thread has it.
    __device__ __forceinline__ void load(const char* from, int32 step)
    {
        load_half<0>(from, step);
        if (this->length > E / 2) load_half<E / 2>(from, step);
    }

    // The same of elements that come in whole aligned vectors of a row.
    __device__ __forceinline__ void load_vectors(const char* from)
    {
        using W = typename Word<Base::run_bytes>::type;
        union Run { T elements[Base::run]; W word; };
#pragma unroll
        for (uint32 k = 0; k < Base::runs; ++k) {
            Run u;
#pragma unroll
            for (uint32 i = 0; i < Base::run; ++i) u.elements[i] = Base::absent();
            u.word = Base::word_if(this->starts[k] < this->length, reinterpret_cast<const W*>(from) + k, u.word);
#pragma unroll
            for (uint32 i = 0; i < Base::run; ++i) this->x[k * Base::run + i] = u.elements[i];
        }
    }

private:
    template <uint32 First> __device__ __forceinline__ void load_half(const char* from, int32 step)
    {
#pragma unroll
        for (uint32 e = First; e < First + E / 2; ++e)
            this->x[e] = Base::loaded(from + product(e, step), this->index(e) < this->length, this->x[e]);
    }
};

// Where the array begins at a multiple of sixteen bytes, and RowStrategy says `direct`, as it does of one array alone. `Cut` is an
// ElementCut.
template <class Op, class Cut> __device__ __forceinline__ void reduce_directly(const ShapedProblem& problem, const Cut& cut)
{
    using T = typename Op::Input;
    using A = typename Op::Accumulator;
    constexpr uint32 E = elements_of_a_thread<T>;
    const uint32 lane = threadIdx.x % lanes, warp = (blockIdx.x * blockDim.x + threadIdx.x) / lanes, beside = cut.beside();
    const uint32 own = lane >> cut.own_shift & (1u << beside) - 1, part = lane >> cut.part_shift & (1u << cut.lane_bits) - 1;
    const uint32 number = (warp << beside) + own, rows = uint32(problem.rows);
    RowOf<Op> row;
    row.length = uint32(problem.length), row.initial[0] = problem.initial[0], row.initial[1] = problem.initial[1];
    DirectElements<Op> mine(part, uint32(problem.length));
    const int32 step = int32(problem.step);
    uint32 along = min(number, rows - 1);
    const char* begin = problem.elements;
    if (cut.of_two) {
        const uint32 rest = problem.kept.over_few(along, 0);
        along -= rest * uint32(problem.kept.size[0]);
        begin += product(rest, int32(problem.kept.stride.after(0)));
    }
    begin += product(along, int32(problem.apart >> 32));
    const char* from = begin + product(part * E, step);
    auto* results = reinterpret_cast<typename Op::Result*>(problem.result) + number;
    wait_for_prerequisites();
    if (cut.in_vectors) mine.load_vectors(from);
    else mine.load(from, step);
    if constexpr (Op::pivot_is_given) row.pivot = Op::pivot(load_element<T>(problem.second));
    else if constexpr (!is_same<typename Op::Pivot, Unused>)
        row.pivot = Op::pivot(cut.lane_bits == 0 ? mine.x[0] : load_element<T>(begin));
    A value = mine.fold(with_pivot_from_here(RowAlone<Op>{row}).row);
    launch_dependents();
#pragma unroll 1
    for (uint32 k = 0, mask = 1u << cut.part_shift; k < cut.lane_bits; ++k, mask *= 2)
        value = Op::combine(value, shuffle_xor(value, mask));
    if (part != 0 || number >= rows) return;
#pragma unroll
    for (int k = 0; k < Op::results; ++k) results[k * problem.rows] = Op::finish(value, row, k);  // rows have elements
}

// A thread's part of a row whose elements lie apart: how it is folded, kept and written.
#pragma once
#include "rowops/held.cuh"

// A thread's units: the vectors that a row has of them, and where they are kept.
template <class R> struct ColumnUnits {
    static constexpr uint32 V = Held<R>::V, arrays = keeps_second<R> ? 2 : 1;
    static constexpr uint32 at_once = steps / (2 * R::arrays);  // vectors that are loaded together; more take too many registers
    using Op = typename R::Op;
    using A = typename Op::Accumulator;
    uint32 first, span;  // number of its first unit; vectors of a unit

    static __device__ __forceinline__ uint32 begin_of(uint32 unit)
    {
        return unit / lanes * leaf_elements<typename R::Input> + unit % lanes * V;
    }
    __device__ __forceinline__ uint32 index_of(uint32 i, uint32 t) const { return begin_of(first + i) + t * lanes * V; }
    __device__ __forceinline__ uint4* kept(uint4* memory, uint32 i, uint32 t, uint32 array) const
    {
        return memory + ((i * span + t) * arrays + array) * blockDim.x + threadIdx.x;
    }

    // Folds unit `i`, and keeps it in `memory` if it `keeps` it.
    __device__ __forceinline__ A
    fold(const RowProblem<R>& problem, const RowPlace<R>& place, const HeldRow<Op>& source, uint32 i, uint32 length,
         bool keeps, uint4* memory) const
    {
        LaneCounter<Op, log2_of(steps)> counter;
        uint32 count = 0;
#pragma unroll 1
        for (uint32 t = 0; t < span && index_of(i, t) < length; t += at_once) {
            Held<R> held;
            const auto take = [&](uint32 k, uint32 at, int32 present) {
                if (keeps) {
                    *kept(memory, i, at, 0) = held.x[k];
                    if constexpr (arrays > 1) *kept(memory, i, at, 1) = held.y[k];
                }
                counter.push(fold_step<R, Begin::strided>(held, k, problem, source, index_of(i, at), present), count++);
            };
            if (t + at_once <= span && index_of(i, t + at_once - 1) + V <= length) {
                held.template load_strided_whole<at_once>(problem, place, [&](uint32 k) { return index_of(i, t + k); });
#pragma unroll
                for (uint32 k = 0; k < at_once; ++k) take(k, t + k, int32(V));
                continue;
            }
#pragma unroll 1
            for (uint32 at = t; at < min(t + at_once, span) && index_of(i, at) < length; ++at) {
                const int32 present = left_from(index_of(i, at), length);
                if (present >= int32(V))
                    held.template load_strided_whole<1>(problem, place, [&](uint32) { return index_of(i, at); });
                else held.load_strided(0, problem, place, index_of(i, at), present);
                take(0, at, present);
            }
        }
        A value = Op::identity();
        bool is_first = true;
#pragma unroll
        for (int k = 0; k < log2_of(steps); ++k)
            if (count >> k & 1u) {
                value = select(is_first, counter.digits[k], Op::combine(counter.digits[k], value));
                is_first = false;
            }
        return select(count == steps, counter.result(), value);
    }
    // Writes unit `i` of a row, from what was kept of its first `length` elements if that was.
    __device__ __forceinline__ void
    write(const RowProblem<R>& problem, const RowPlace<R>& place, const typename R::Values& values, uint32 i, uint32 length,
          bool is_kept, uint4* memory) const
    {
        const uint32 whole = uint32(problem.length);
        Across<R::outputs> across;
#pragma unroll 1
        for (uint32 t = 0; t < span && index_of(i, t) < whole; ++t) {
            const uint32 index = index_of(i, t);
            Held<R> held;
            if (is_kept && index < length) {
                held.x[0] = *kept(memory, i, t, 0);
                if constexpr (arrays > 1) held.y[0] = *kept(memory, i, t, 1);
            } else if (index + V <= length) {
                held.template load_strided_whole<1>(problem, place, [&](uint32) { return index; });
            } else {
                held.load_strided(0, problem, place, index, left_from(index, length));
            }
            R::template write<Begin::strided>(problem, place, index, left_from(index, whole), length, held.x[0], held.second(0),
                                              values, across,
                                              R::template columns<Begin::strided>(problem, index, left_from(index, whole)));
        }
    }
};

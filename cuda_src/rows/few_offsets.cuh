// Where the few elements that a thread has of a row lie, from the row's first one on.
#pragma once
#include "columns/shape.cuh"

// The same number, in a register: the compiler would make what is cheap to make anew in every turn.
__device__ __forceinline__ uint32 made_once(uint32 x)
{
    asm volatile("" : "+r"(x));
    return x;
}

// Bytes from a row's first element to N others, in both arrays if there are two: all of them are near. `Along`: there is one
// reduced axis, or none.
template <uint32 N, bool Along, bool OfTwo> struct FewOffsets {
    int32 first[N], second[N];
    __device__ __forceinline__ FewOffsets(const ShapedProblem& problem, const uint32 (&numbers)[N])
    {
        const ReducedAxes& axes = problem.reduced;
        uint32 past[N];
#pragma unroll
        for (uint32 n = 0; n < N; ++n) {
            past[n] = numbers[n];
            first[n] = int32(past[n] * uint32(problem.step));
            if (OfTwo) second[n] = int32(past[n] * uint32(axes.second_stride[0]));
        }
        if constexpr (!Along) {
#pragma unroll 1
            for (uint32 i = 0; i + 1 < uint32(axes.count); ++i) {  // what a carry adds to the steps along an axis
                const uint32 jump = uint32(axes.stride.after(i) - axes.size[i] * axes.stride[i]);
                const uint32 second_jump = uint32(axes.second_stride.after(i) - axes.size[i] * axes.second_stride[i]);
#pragma unroll
                for (uint32 n = 0; n < N; ++n) {
                    past[n] = axes.over_few(past[n], i);
                    first[n] += int32(past[n] * jump);
                    if (OfTwo) second[n] += int32(past[n] * second_jump);
                }
            }
        }
    }
};

// Where a row lies in both arrays, and its place among the results. Numbers have 31 bits.
struct RowPlace {
    int64 offset = 0, second_offset = 0, result = 0;

    // `Along`: there is one kept axis, or none.
    template <bool Along> __device__ __forceinline__ void find(const ShapedProblem& problem, uint32 row, bool has_seconds)
    {
        const KeptAxes& axes = problem.kept;
        const auto step = [&](uint32 i, uint32 number) {
            offset += int64(number) * axes.stride[i];
            result += int64(number) * problem.result_stride[i];
            if (has_seconds) second_offset += int64(number) * axes.second_stride[i];
        };
        if constexpr (Along) return step(0, row);
        uint32 i = 0;
#pragma unroll 1
        for (; i + 1 < uint32(axes.count); ++i) {
            const uint32 rest = axes.over_few(row, i);
            step(i, row - rest * uint32(axes.size[i]));
            row = rest;
        }
        step(i, row);
    }
};

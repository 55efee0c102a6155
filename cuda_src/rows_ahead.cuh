// What a launch of rows does before it may read.
#pragma once
#include "overlap.cuh"
#include "shape.cuh"

// Where a row's elements begin, in the first array or the second.
template <class Rows> __device__ __forceinline__ const char* row_begin(const ShapedProblem& problem, uint64 row, bool of_second)
{
    return (of_second ? problem.second : problem.elements) + Rows::Kept::offset(problem.kept, row, 0, of_second);
}

// Whether there is a row `row`, and its elements are contiguous and at a place that is known before anything is read.
template <class Rows> __device__ __forceinline__ bool is_known(const ShapedProblem& problem, uint64 row)
{
    return Rows::can_be_whole && problem.device_length == nullptr && row < problem.rows;
}

// Touches the front of a warp's leaf of a row, as touch_leaves does.
template <class Op, class Rows, int Warps>
__device__ __forceinline__ void touch_leaf_of_row(const ShapedProblem& problem, uint64 row, uint64 leaf)
{
    if (!is_known<Rows>(problem, row)) return;
    const bool follow = problem.reduced.count <= 1 && problem.reduced.second_stride[0] == sizeof(typename Op::Second);
    const char* second = has_second<Op> && follow ? row_begin<Rows>(problem, row, true) : nullptr;
    touch_leaves<Op, Warps>(row_begin<Rows>(problem, row, false), second, problem.length, leaf);
}

// Touches the front of the `count` short rows that a warp folds, if they are contiguous; where each block has a multiprocessor
// to itself, one thread of the block prefetches all rows of its warps instead. If the rows are not contiguous, the same for the
// first row alone.
template <class Op, class Rows, int Warps>
__device__ __forceinline__ void start_on_short_rows(const ShapedProblem& problem, uint32 count, bool touches)
{
    if constexpr (!is_same<typename Op::Pivot, Unused>) return;  // the compiler has no register to spare there
    const bool by_block = has_room();
    const uint64 rows = by_block ? Warps * count : count;
    const uint64 first = (by_block ? blockIdx.x : uint64(blockIdx.x) * Warps + threadIdx.x / lanes) * rows;
    if (!is_known<Rows>(problem, first) || !(by_block || touches)) return;
    const uint64 row_bytes = problem.length * sizeof(typename Op::Input);
    const bool adjacent = problem.kept.count == 1 && uint64(problem.kept.stride[0]) == row_bytes;
    const uint64 bytes = (adjacent ? min(rows, problem.rows - first) : 1) * row_bytes;
    const char* begin = row_begin<Rows>(problem, first, false);
    if (by_block) prefetch_start<Warps>(begin, bytes, true);
    else touch_start<Warps>(begin, bytes);
}

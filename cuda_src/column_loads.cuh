// What of columns is loaded at a time, and by whom.
#pragma once
#include "shape.cuh"

// The largest power of two that is at most both, or 1.
__host__ __device__ constexpr int power_within(int a, int b) { return a <= 1 || b <= 1 ? 1 : 2 * power_within(a / 2, b / 2); }

// One element of each of C neighbouring rows.
template <class T, int C> union ColumnVector {
    T elements[C];
    typename Word<sizeof(T) * C>::type whole;
};

// How elements are fetched: all are there and those of the C rows come in one load; the same, but the row may end among
// them; each by itself; or byte by byte where that is needed.
enum class Fetch { whole, part, single, bytes };

// Who copies, 16 bytes at a time, whatever rows they belong to: a warp the part of the tile that its threads have, whose
// elements lie anywhere; or a team the whole tile, whose elements lie one after the other. A team is a warp, or as many
// warps as stand side by side.
enum class Copies { warp, team };

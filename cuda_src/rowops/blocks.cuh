// Rows at any address that are written as whole blocks of 16 bytes, those of the arrays, and element by element at their ends.
//
// Where nothing lies beside the columns, all that a lane needs for a block are the elements there. It reads them again, out of
// the L1, where the reduction's loads have put them: that is a fourth of the instructions by which lanes put blocks together. In
// place too: who writes an element is who reads it again, after all have read it for the reduction.
#pragma once
#include "rowops/held.cuh"

constexpr uint32 blocks_at_once = 2;  // of a lane
constexpr uint32 least_blocks = 16;  // of a row: of shorter ones the ends cost more than blocks across lanes

// One of a row's blocks, or one of its ends' elements, by its number.
template <class R> struct RowPart {
    const RowPlace<R>& place;
    const typename R::Values& values;
    uint32 number, length;
    bool wanted;
};

// Elements of a row before its first whole block.
template <class R> __device__ __forceinline__ uint32 before_blocks(const RowPlace<R>& place)
{
    return uint32(-reinterpret_cast<int64>(place.x)) % vector_bytes / sizeof(typename R::Input);
}
template <class R> __device__ __forceinline__ uint32 blocks_of(const RowProblem<R>& problem, uint32 before)
{
    const uint32 n = uint32(problem.length);
    return n > before ? (n - before) / Held<R>::V : 0;
}

// Writes blocks number `first` to `end` of all that `block(k)` knows.
template <class R, class Block>
__device__ __forceinline__ void write_blocks(const RowProblem<R>& problem, uint32 first, uint32 end, Block block)
{
    constexpr uint32 V = Held<R>::V;
    Across<R::outputs> across;
#pragma unroll 1
    for (uint32 base = first; base < end; base += blocks_at_once * lanes) {
        uint4 raw[blocks_at_once];
        const auto own = [&](uint32 k) { return block(base + k * lanes + threadIdx.x % lanes); };
        const auto index = [&](const RowPart<R>& part) { return before_blocks(part.place) + part.number * V; };
#pragma unroll
        for (uint32 k = 0; k < blocks_at_once; ++k) {
            const RowPart<R> part = own(k);
            raw[k] = load_row_vector_if(part.wanted, part.place.x + uint64(index(part)) * sizeof(typename R::Input));
        }
#pragma unroll
        for (uint32 k = 0; k < blocks_at_once; ++k) {
            const RowPart<R> part = own(k);
            if (part.wanted)
                R::template write<Begin::aligned>(problem, part.place, index(part), V, part.length, raw[k], raw[k], part.values,
                                                  across, typename R::Columns{});
        }
    }
}

// Writes the elements before and behind the whole blocks of `rows` rows, of each at most V - 1 and as many. `end(row, k)` knows
// those of a row: k is the element, or V and more for those behind.
template <class R, class End>
__device__ __forceinline__ void write_ends(const RowProblem<R>& problem, uint32 rows, End end)
{
    using T = typename R::Input;
    constexpr uint32 V = Held<R>::V;
    const uint32 n = uint32(problem.length);
    Across<R::outputs> across;
#pragma unroll 1
    for (uint32 i = threadIdx.x % lanes; i < rows * 2 * V; i += lanes) {
        const RowPart<R> part = end(i / (2 * V), i % (2 * V));
        const uint32 before = before_blocks(part.place), behind = before + blocks_of(problem, before) * V;
        const uint32 index = part.number < V ? part.number : behind + part.number - V;
        if (!part.wanted || index >= (part.number < V ? min(before, n) : n)) continue;
        union { uint4 raw; T element; } u;
        u.raw = make_uint4(0, 0, 0, 0);
        u.element = load_row_element<T>(part.place.x + uint64(index) * sizeof(T));
        R::template write<Begin::aligned, 1>(problem, part.place, index, 1, part.length, u.raw, u.raw, part.values, across,
                                             typename R::Columns{});
    }
}

// A leaf's blocks: those that begin in it. Returns whether they were written.
template <class R>
__device__ __forceinline__ bool
write_leaf_in_blocks(const RowProblem<R>& problem, const RowPlace<R>& place, const typename R::Values& values, uint32 leaf,
                     uint32 length)
{
    if (!all_agree(place.has_same_blocks())) return false;
    const uint32 first = leaf * leaf_vectors, end = min(blocks_of(problem, before_blocks(place)), first + leaf_vectors);
    write_blocks<R>(problem, first, end, [&](uint32 k) { return RowPart<R>{place, values, k, length, k < end}; });
    const bool is_last = (leaf + 1) * leaf_elements<typename R::Input> >= uint32(problem.length);
    write_ends<R>(problem, leaf == 0 || is_last, [&](uint32, uint32 k) {
        return RowPart<R>{place, values, k, length, k < Held<R>::V ? leaf == 0 : is_last};
    });
    return true;
}

// The same of a warp's short rows, which `places`, `values` and `length_of(row)` know.
template <class R, class LengthOf>
__device__ __forceinline__ bool
write_rows_in_blocks(const RowProblem<R>& problem, const RowPlace<R>* places, const typename R::Values* values, uint32 count,
                     LengthOf length_of)
{
    bool can = uint32(problem.length) / Held<R>::V >= least_blocks;
    for (uint32 i = threadIdx.x % lanes; i < count; i += lanes) can = can && places[i].has_same_blocks();
    if (all_agree(!can)) return false;
    const uint32 each = uint32(problem.length) / Held<R>::V, inverse = (1u << 20) / each + 1;  // k inverse >> 20 is k / each
    const auto part = [&](uint32 row, uint32 k, bool wanted) {
        return RowPart<R>{places[row], values[row], k, length_of(row), wanted};
    };
    write_blocks<R>(problem, 0, count * each, [&](uint32 k) {
        const uint32 row = min(k * inverse >> 20, count - 1), number = k - row * each;
        return part(row, number, number < blocks_of(problem, before_blocks(places[row])));
    });
    write_ends<R>(problem, count, [&](uint32 row, uint32 k) { return part(row, k, true); });
    return true;
}

// Rows at any address that are written as whole blocks of 16 bytes: of the arrays, not of the row.
//
// Where nothing lies beside the columns, all that a lane needs for its block are the elements there. It reads them again, out of
// the L1, where the reduction's loads have put them. Put together across lanes, a block would take four times the instructions.
#pragma once
#include "rowops/held.cuh"

constexpr uint32 blocks_at_once = 2;  // of a lane

// Writes `count` blocks; `block(k, lane's number)` says of the k-th one, if there is one, what write needs to know.
template <class R> struct OwnBlock {
    const RowPlace<R>& place;
    const typename R::Values& values;
    uint32 number;  // of those that the row lies in
    uint32 length;
    bool wanted;
    __device__ __forceinline__ uint32 index() const { return number * Held<R>::V - place.before(); }
    __device__ __forceinline__ const char* address() const
    {
        return place.x + int64(int32(index())) * int64(sizeof(typename R::Input));
    }
};
template <class R> __device__ __forceinline__ uint32 blocks_of(const RowProblem<R>& problem, uint32 before)
{
    return (before + uint32(problem.length) + Held<R>::V - 1) / Held<R>::V;
}
template <class R, class BlockOf>
__device__ __forceinline__ void write_blocks(const RowProblem<R>& problem, uint32 first, uint32 end, BlockOf block_of)
{
    Across<R::outputs> across;
    across.in_blocks = true;
    const uint32 lane = threadIdx.x % lanes;
#pragma unroll 1
    for (uint32 at = first + lane; at < end + lane; at += blocks_at_once * lanes) {
        uint4 raw[blocks_at_once];
#pragma unroll
        for (uint32 k = 0; k < blocks_at_once; ++k) {
            const OwnBlock<R> block = block_of(at + k * lanes);
            raw[k] = load_row_vector_if(block.wanted, block.address());
        }
#pragma unroll
        for (uint32 k = 0; k < blocks_at_once; ++k) {
            const OwnBlock<R> block = block_of(at + k * lanes);
            if (!block.wanted) continue;
            const int32 left = left_from(block.index(), uint32(problem.length));
            R::template write<Begin::aligned>(problem, block.place, block.index(), left, block.length, raw[k], raw[k],
                                              block.values, across, typename R::Columns{});
        }
    }
}

// A leaf's blocks: those that begin in it, or right before it, and of the last leaf all. Returns whether they were written.
template <class R>
__device__ __forceinline__ bool
write_leaf_in_blocks(const RowProblem<R>& problem, const RowPlace<R>& place, const typename R::Values& values, uint32 leaf,
                     uint32 length)
{
    const uint32 all = blocks_of(problem, place.before()), first = leaf * leaf_vectors;
    const bool is_last = (leaf + 1) * leaf_elements<typename R::Input> >= uint32(problem.length);
    const uint32 end = is_last ? all : min(all, first + leaf_vectors);
    if (!all_agree(place.lies_in_blocks(problem, min(first, all), end))) return false;
    write_blocks<R>(problem, first, end, [&](uint32 n) { return OwnBlock<R>{place, values, n, length, n < end}; });
    return true;
}

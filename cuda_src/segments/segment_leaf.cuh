// A segment of several leaves folded by one warp, in few registers, because its neighbours fold many segments at once; and how
// vectors of short segments are loaded.
#pragma once
#include "segments/segments.cuh"

// A vector of which `bytes` bytes exist, loaded element by element over absent_elements.
template <class Op> __device__ __forceinline__ uint4 load_elements_of(const char* address, int32 bytes)
{
    using T = typename Op::Input;
    return load_elements<T, are_words<T>>(address, bytes, absent_elements<Op>());
}

// For elements of four bytes: the 16-byte block that a vector begins in, or the segment's last block if the vector lies past
// its end, which is `bytes` bytes after `address`. The vector's other elements are in the block that the next lane loads, and
// no load is for them alone: four loads of one element each would make the L1 look up each line four times.
__device__ __forceinline__ uint4 load_block_of(const char* address, int32 bytes)
{
    constexpr int32 block_mask = -int32(vector_bytes);
    const int32 shift = int32(reinterpret_cast<uint64>(address) % vector_bytes);
    return __ldg(reinterpret_cast<const uint4*>(address + (min(0, (bytes - 1 + shift) & block_mask) - shift)));
}

// The vector that begins `shift` bytes, whole words, into this lane's block and may end in the next lane's. All lanes call it.
__device__ __forceinline__ uint4 join_next_block(uint4 v, uint32 shift, uint32 lane)
{
    const uint4 next = make_uint4(shuffle_from(v.x, lane + 1), shuffle_from(v.y, lane + 1), shuffle_from(v.z, lane + 1), 0);
    return shift_bytes(v, next, shift & ~3u);
}

// One leaf of a segment by one warp, half of it in flight at a time; a half that the segment lacks is skipped. `fetch` loads a
// vector and `fold` folds it. All 32 lanes call it; every lane holds the result.
template <class Op, class Fetch, class Fold>
__device__ __forceinline__ typename Op::Accumulator
segment_leaf_fold(const SegmentSource<Op>& source, uint32 leaf, Fetch fetch, Fold fold, uint32 lane)
{
    using T = typename Op::Input;
    constexpr uint32 at_once = steps / 2, half = leaf_elements<T> / 2;
    typename Op::Accumulator value;
#pragma unroll 1
    for (uint32 round = 0; round < 2; ++round) {
        const uint32 begin = leaf * leaf_elements<T> + round * half + lane * vector_elements<T>;
        const char* address = source.begin + begin * sizeof(T);
        const int32 bytes = (int32(source.row.length) - int32(begin)) * int32(sizeof(T));
        constexpr uint32 step_bytes = lanes * vector_bytes;
        uint4 v[at_once];
        typename Op::Accumulator part[at_once];
#pragma unroll
        for (uint32 t = 0; t < at_once; ++t) v[t] = fetch(address + t * step_bytes, bytes - int32(t * step_bytes));
#pragma unroll
        for (uint32 t = 0; t < at_once; ++t)
            part[t] = fold(source, v[t], begin + t * step_bytes / sizeof(T), bytes - int32(t * step_bytes));
        const auto folded = fold_array<Op, at_once>(part);
        if (round == 1) value = combine_neighbours<Op>(value, folded);
        else value = folded;
        if ((leaf * 2 + round + 1) * half >= uint32(source.row.length)) break;
    }
    return warp_fold<Op>(value);
}

// The same for a segment at an edge of the array, in compact code: no launch has many such.
template <class Op>
__device__ __forceinline__ typename Op::Accumulator edge_leaf_fold(const SegmentSource<Op>& source, uint32 leaf, uint32 lane)
{
    LaneCounter<Op, log2_of(steps)> counter;
#pragma unroll 1
    for (uint32 t = 0; t < steps; ++t) {
        const uint32 index = ((leaf * steps + t) * lanes + lane) * vector_elements<typename Op::Input>;
        const int32 bytes = present_bytes<Op>(source, index);
        counter.push(fold_present<Op>(source, SegmentRows::fetch_edge(source, index, bytes), index, bytes), t);
    }
    return warp_fold<Op>(counter.result());
}

// A segment of at most `long_leaves` leaves by one warp. All 32 lanes call it; every lane holds the result.
template <class Op>
__device__ __forceinline__ typename Op::Accumulator fold_segment(const SegmentSource<Op>& source, bool by_element, uint32 lane)
{
    using T = typename Op::Input;
    const bool whole = source.is_whole(), inside = SegmentRows::inside(source, 0, source.row.length);
    const uint32 leaves = uint32(source.leaf_count());
    WarpCounter<Op> counter;
#pragma unroll 1
    for (uint32 leaf = 0; leaf < leaves; ++leaf) {
        typename Op::Accumulator value;
        if (whole) {
            const auto fetch = [](const char* address, int32 bytes) {
                return load_streaming_if(bytes > 0, reinterpret_cast<const uint4*>(address), absent_elements<Op>());
            };
            value = segment_leaf_fold<Op>(source, leaf, fetch, fold_filled<Op, SegmentSource<Op>>, lane);
        } else if (sizeof(T) >= 4 && by_element) {
            value = segment_leaf_fold<Op>(source, leaf, load_elements_of<Op>, fold_filled<Op, SegmentSource<Op>>, lane);
        } else if (inside || (leaf > 0 && leaf + 2 < leaves)) {  // leaves between others of the segment
            value = segment_leaf_fold<Op>(source, leaf, load_inside, fold_vector_part<Op, SegmentSource<Op>>, lane);
        } else {
            value = edge_leaf_fold<Op>(source, leaf, lane);
        }
        counter.push(value, lane);
    }
    return counter.result();
}

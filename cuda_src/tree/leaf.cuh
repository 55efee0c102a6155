// One leaf of the tree (4 KiB of elements), folded by one warp: the step level within each lane, then the lane level.
//
// A leaf at a 16-byte boundary, a misaligned one, and one in which an edge of the array cuts a 16-byte block are each loaded in
// their own way; the same step and lane levels then fold what was loaded. Leaves at edges, which are few, are folded half a
// leaf at a time.
#pragma once
#include "tree/leaf_steps.cuh"

// The lane's part of a leaf of two arrays, of which the first is at a 16-byte boundary. `bytes` bytes of the leaf exist: whole
// vectors, unless the source is aligned. Where half a leaf of both arrays takes the registers of a whole leaf of one, it goes
// half at a time.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator
lane_fold_beside(const S& source, const char* leaf, uint64 first, uint32 bytes, uint32 lane)
{
    constexpr uint32 at_once = Seconds<Op>::bytes > 4 ? steps / 2 : steps, rounds = steps / at_once;
    typename Op::Accumulator half, value;
#pragma unroll 1
    for (uint32 round = 0; round < rounds; ++round) {
        const uint32 before = round * at_once * lanes;  // vectors
        const uint64 begin = first + before * vector_elements<typename Op::Input>;
        const auto* address = reinterpret_cast<const uint4*>(leaf) + before + lane;
        uint4 v[at_once];
        Seconds<Op> y[at_once];
        if (bytes == leaf_bytes) {
#pragma unroll
            for (uint32 t = 0; t < at_once; ++t) v[t] = load_streaming(address + lanes * t);
            load_seconds<Op, at_once>(y, source, begin, lane);
            value = fold_vectors<Op, at_once>(with_pivot_from_here(source), v, y, begin, lane);
        } else {
            const auto present = [=](uint32 t) { return before + t * lanes + lane < bytes / vector_bytes; };
#pragma unroll
            for (uint32 t = 0; t < at_once; ++t) v[t] = load_streaming_if(present(t), address + lanes * t);
            load_present_seconds<Op, at_once>(y, source, begin, lane, present);
            const auto ready = with_pivot_from_here(source);
            typename Op::Accumulator a[at_once];
            fold_each_present<Op, at_once>(ready, v, y, begin, lane, present, a);
            const char* round_begin = leaf + before * vector_bytes;
            const int32 left = int32(bytes) - int32(before * vector_bytes);
            if constexpr (S::may_be_cut) fold_cut_vector<Op, at_once>(ready, round_begin, begin, left, lane, a);
            value = fold_array<Op, at_once>(a);
        }
        if (round + 1 < rounds) half = value;
    }
    return rounds == 1 ? value : combine_neighbours<Op>(half, value);
}

// The lane's part of a leaf at a 16-byte boundary. `bytes` bytes exist: whole vectors, unless the operator fills_absent or the
// source is aligned.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator
lane_fold_aligned(const S& source, const char* leaf, uint64 first, uint32 bytes, uint32 lane)
{
    if constexpr (has_second<Op> && S::is_aligned) {
        return lane_fold_beside<Op>(source, leaf, first, bytes, lane);
    } else if constexpr (has_second<Op>) {
        return source.seconds_are_vectors() ? lane_fold_beside<Op>(SecondsInVectors<S>(source), leaf, first, bytes, lane)
                                            : lane_fold_beside<Op>(source, leaf, first, bytes, lane);
    } else {
        uint4 v[steps];
        if (bytes == leaf_bytes) {
#pragma unroll
            for (uint32 t = 0; t < steps; ++t) v[t] = load_streaming(reinterpret_cast<const uint4*>(leaf) + lane + lanes * t);
        } else {
            load_part_of_leaf<Op, steps>(v, leaf, bytes, lane);
            if constexpr (!fills_absent<Op>)
                return fold_present_steps<Op>(with_pivot_behind<Op, steps>(v, source), leaf, v, first, bytes, lane);
        }
        return fold_steps<Op>(with_pivot_behind<Op, steps>(v, source), v, first, lane);
    }
}

// The lane's part of any other leaf: the source's first or last one, where its edge cuts a 16-byte block, or any leaf whose
// second elements are not placed (seconds_are_placed). `rest` bytes of the source begin at `leaf`, at any address. Only the
// first vector of all and the last two at most lie in a block that the source fills in part: these are gathered byte by byte.
// All 32 lanes call it. It goes half a leaf at a time, to save code and registers: a launch has at most two leaves at edges.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator
lane_fold_edge(const S& source, const char* leaf, uint64 first, uint64 rest, uint32 lane)
{
    constexpr uint32 at_once = steps / 2;
    const uint32 shift = uint32(reinterpret_cast<uint64>(leaf)) % vector_bytes, front = first == 0 && shift > 0;
    const int32 bytes = int32(min(rest, uint64(leaf_bytes))), reach = int32(min(rest, uint64(leaf_bytes + vector_bytes)));
    const int32 span = shift > 0 ? 2 * vector_bytes - shift : vector_bytes;  // from a vector to the end of its last block
    const int32 whole = reach < span ? 0 : ((reach - span) / vector_bytes + 1) * vector_bytes;
    const char* base = leaf - shift;

    const uint32 front_byte = load_byte(leaf, front ? bytes : 0, lane);
    const uint32 back_byte = load_byte(leaf + whole, bytes - whole, lane);

    typename Op::Accumulator half;
#pragma unroll 1
    for (uint32 round = 0;; ++round) {
        uint4 v[at_once], next[at_once];
        const auto offset = [=](uint32 t) { return int32(((round * at_once + t) * lanes + lane) * vector_bytes); };
#pragma unroll
        for (uint32 t = 0; t < at_once; ++t) {
            const auto* address = reinterpret_cast<const uint4*>(base + offset(t));
            const bool wanted = offset(t) < whole && !(front && offset(t) == 0);
            v[t] = load_cached_if(wanted, address);
            next[t] = load_cached_if(wanted && shift > 0, address + 1);
        }
#pragma unroll
        for (uint32 t = 0; t < at_once; ++t) v[t] = shift_bytes(v[t], next[t], shift);
        const uint4 head = gather_bytes(front_byte, 0, lane), tail = gather_bytes(back_byte, 0, lane);
        const uint4 last = gather_bytes(back_byte, vector_bytes, lane);
        typename Op::Accumulator a[at_once];
#pragma unroll
        for (uint32 t = 0; t < at_once; ++t) {
            const int32 at = offset(t);
            if (front && at == 0) v[t] = head;
            if (at >= whole) v[t] = at == whole ? tail : last;
            a[t] = fold_vector_part<Op>(source, v[t], first + at / sizeof(typename Op::Input), bytes - at);
        }
        const auto value = fold_array<Op, at_once>(a);
        if (round == 1) return combine_neighbours<Op>(half, value);
        half = value;
    }
}

// The fold of a leaf of an aligned source, of which `bytes` bytes exist; called like leaf_fold.
template <class Op, bool OfLanes, class S>
__device__ __forceinline__ typename Op::Accumulator
aligned_leaf_fold(const S& source, const char* leaf, uint64 first, uint32 bytes, uint32 lane)
{
    typename Op::Accumulator value;
    wait_for_prerequisites();
    if (fills_absent<Op> && bytes <= leaf_bytes / 4) {  // steps that are all absent would cost as much as those of a whole leaf
        uint4 v[steps / 4];
        load_part_of_leaf<Op, steps / 4>(v, leaf, bytes, lane);
        value = fold_vectors<Op, steps / 4>(source, v, first, lane);
    } else {
        value = lane_fold_aligned<Op>(source, leaf, first, bytes, lane);
    }
    return OfLanes ? value : warp_fold<Op>(value);
}

// One leaf of a source of contiguous elements, whatever its place and alignment; the identity for a leaf past the end. All 32
// lanes of a warp call it with the same leaf; every lane holds the result. It calls wait_for_prerequisites itself, as late as
// it can, so that what is computed before the first load overlaps the preceding kernel. A kernel with few registers left sets
// JoinsWholeLeaves to false: misaligned leaves are then joined in halves, whatever the operator. With OfLanes the lane level is
// left out, and each lane holds its part. With JoinsAligned a leaf at a 16-byte boundary is joined as others are, by a shift of 0:
// a kernel that meets none is compiled sooner without code for them. It is one function with one end: where one function for the
// lane's part had another around it, rows by blocks spilled 8 bytes.
template <class Op, bool JoinsWholeLeaves = joins_whole_leaves<Op>, bool OfLanes = false, bool JoinsAligned = false, class S>
__device__ __forceinline__ typename Op::Accumulator leaf_fold(const S& source, uint64 leaf, uint32 lane)
{
    using T = typename Op::Input;
    const uint64 first = leaf * leaf_elements<T>;
    if (first >= source.row.length) {
        wait_for_prerequisites();
        return Op::identity();
    }
    const uint64 rest = (source.row.length - first) * sizeof(T);
    const uint32 bytes = uint32(min(rest, uint64(leaf_bytes)));
    const char* begin = source.begin + first * sizeof(T);
    const uint32 shift = uint32(reinterpret_cast<uint64>(begin)) % vector_bytes;

    if constexpr (S::is_aligned) return aligned_leaf_fold<Op, OfLanes>(source, begin, first, bytes, lane);
    typename Op::Accumulator value;
    if (has_second<Op> && !source.seconds_are_placed()) {
        wait_for_prerequisites();
        value = lane_fold_edge<Op>(with_seconds_anyhow<Op>(source), begin, first, rest, lane);
    } else if (!JoinsAligned && shift == 0 ? !fills_absent<Op> && bytes % vector_bytes != 0 : leaf == 0 || rest < leaf_bytes + vector_bytes) {
        wait_for_prerequisites();
        value = lane_fold_edge<Op>(with_seconds_anyhow<Op>(source), begin, first, rest, lane);
    } else if (!JoinsAligned && shift == 0) {
        wait_for_prerequisites();
        value = lane_fold_aligned<Op>(source, begin, first, bytes, lane);
    } else {
        uint4 v[steps];
        wait_for_prerequisites();
        if constexpr (JoinsWholeLeaves) load_shifted_leaf<Op>(v, begin - shift, shift, uint32(rest >> 63), lane);
        else load_shifted_halves(v, begin - shift, shift, lane);
        value = fold_steps<Op>(source, v, first, lane);
    }
    return OfLanes ? value : warp_fold<Op>(value);
}

// The lane's part of a leaf, called like leaf_fold.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator lane_fold(const S& source, uint64 leaf, uint32 lane)
{
    return leaf_fold<Op, joins_whole_leaves<Op>, true>(source, leaf, lane);
}

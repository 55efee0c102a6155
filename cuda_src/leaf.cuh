// One leaf of the tree (4 KiB of elements) by one warp: the step level inside a lane, then the lanes.
#pragma once
#include "vector.cuh"

// The step level: the vectors that a lane holds of a leaf whose first element has number `first`.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator fold_steps(const S& source, const uint4* v, uint64 first, uint32 lane)
{
    constexpr uint32 V = vector_elements<typename Op::Input>;
    typename Op::Accumulator a[steps];
#pragma unroll
    for (uint32 t = 0; t < steps; ++t) a[t] = fold_vector<Op>(source, v[t], first + (t * lanes + lane) * V);
    return fold_array<Op, steps>(a);
}

// A leaf at a 16-byte boundary, the lane's part: eight loads in flight, unconditional where the leaf is whole. `bytes`
// of it exist, a multiple of 16.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator
lane_fold_aligned(const S& source, const uint4* address, uint64 first, uint32 bytes, uint32 lane)
{
    constexpr uint32 V = vector_elements<typename Op::Input>;
    uint4 v[steps];
    if (bytes == leaf_bytes) {
#pragma unroll
        for (uint32 t = 0; t < steps; ++t) v[t] = load_streaming(address + lanes * t);
        if constexpr (Op::folds_leaves) return Op::fold_leaf(v, first + lane * V);
        else return fold_steps<Op>(source, v, first, lane);
    }
    const auto present = [=](uint32 t) { return (t * lanes + lane) * vector_bytes < bytes; };
#pragma unroll
    for (uint32 t = 0; t < steps; ++t) v[t] = load_streaming_if(present(t), address + lanes * t);
    if constexpr (Op::folds_leaves) {
#pragma unroll
        for (uint32 t = 0; t < steps; ++t) v[t] = select(present(t), v[t], Op::absent_vector());
        return select(present(0), Op::fold_leaf(v, first + lane * V), Op::identity());
    } else {
        typename Op::Accumulator a[steps];
#pragma unroll
        for (uint32 t = 0; t < steps; ++t)
            a[t] = fold_if<Op>(present(t), source, v[t], first + (t * lanes + lane) * V);
        return fold_array<Op, steps>(a);
    }
}

// A whole leaf that starts `shift` bytes past the 16-byte block at `address`, and neither in the source's first block
// nor in its last: the lane's part. Each vector is joined from the two blocks that it lies in, the second of which the
// next lane loads too: it comes from the L1. So the tree does not see the alignment.
template <class Op>
__device__ __forceinline__ typename Op::Accumulator
lane_fold_shifted(const Source<Op>& source, const uint4* address, uint64 first, uint32 shift, uint32 lane)
{
    constexpr uint32 V = vector_elements<typename Op::Input>, at_once = steps / 2;
    typename Op::Accumulator a[steps];
    uint4 v[steps];
#pragma unroll
    for (uint32 base = 0; base < steps; base += at_once) {
        uint4 next[at_once];
#pragma unroll
        for (uint32 t = 0; t < at_once; ++t) {
            v[base + t] = __ldg(address + lanes * (base + t));
            next[t] = __ldg(address + lanes * (base + t) + 1);
        }
#pragma unroll
        for (uint32 t = 0; t < at_once; ++t) {
            v[base + t] = shift_bytes(v[base + t], next[t], shift);
            if constexpr (!Op::folds_leaves)
                a[base + t] = fold_vector<Op>(source, v[base + t], first + ((base + t) * lanes + lane) * V);
        }
        __syncwarp();  // orders nothing: it keeps the compiler from holding all steps in registers at once
    }
    if constexpr (Op::folds_leaves) return Op::fold_leaf(v, first + lane * V);
    else return fold_array<Op, steps>(a);
}

// Any other leaf, the lane's part: the source's first or last, where its edge cuts a block. It starts `shift` bytes
// past the 16-byte block `base` and has `rest` bytes or more of the source. One step at a time, in little code and few
// registers: a launch has at most two such leaves.
template <class Op>
__device__ __forceinline__ typename Op::Accumulator
lane_fold_edge(const Source<Op>& source, const char* base, uint64 first, uint32 shift, uint64 rest, uint32 lane)
{
    constexpr int32 at_once = 2, step_bytes = lanes * vector_bytes, block_bytes = vector_bytes;
    constexpr int32 size = sizeof(typename Op::Input);
    // Bytes from the leaf's first block to the end of the source, or of the block after the leaf.
    const int32 reach = int32(min(rest + shift, uint64(leaf_bytes + vector_bytes)));
    const char *begin = source.begin, *end = begin + source.row.length * size;
    const uint4 front = load_edge_block(base, begin, end, lane);
    const uint4 back = load_edge_block(base + reach / block_bytes * block_bytes, begin, end, lane);

    typename Op::Accumulator pair, quad;
#pragma unroll 1
    for (int32 round = 0;; ++round) {
        const int32 offset = round * at_once * step_bytes + int32(lane) * block_bytes;
        uint4 v[at_once + 1];
#pragma unroll
        for (int32 t = 0; t <= at_once; ++t) {
            const int32 at = offset + t * step_bytes, available = t < at_once || lane == 0 ? reach - at : 0;
            const bool cut_front = base < begin && at == 0, cut_back = available > 0 && available < block_bytes;
            const auto* address = reinterpret_cast<const uint4*>(base + at);
            v[t] = load_streaming_if(available >= block_bytes && !cut_front, address);
            if (cut_front) v[t] = front;
            else if (cut_back) v[t] = back;
        }
        typename Op::Accumulator a[at_once];
#pragma unroll
        for (int32 t = 0; t < at_once; ++t) {
            const uint4 next = shuffle_from(lane == 0 ? v[t + 1] : v[t], (lane + 1) % lanes);
            v[t] = shift_bytes(v[t], next, shift);
            const int32 at = offset + t * step_bytes;
            a[t] = fold_vector_part<Op>(source, v[t], first + at / size, reach - int32(shift) - at);
        }
        const auto value = fold_array<Op, at_once>(a);  // of four rounds: a binary counter with two digits
        if (round % 2 == 0) { pair = value; continue; }
        const auto two = combine_neighbours<Op>(pair, value);
        if (round == 3) return combine_neighbours<Op>(quad, two);
        quad = two;
    }
}

// One leaf, whatever its place and alignment; identity for a leaf past the end. All 32 lanes of a warp call it with
// the same leaf; every lane holds the result.
template <class Op>
__device__ __forceinline__ typename Op::Accumulator leaf_fold(const Source<Op>& source, uint64 leaf, uint32 lane)
{
    using T = typename Op::Input;
    const uint64 first = leaf * leaf_elements<T>;
    if (first >= source.row.length) return Op::identity();
    const uint64 rest = (source.row.length - first) * sizeof(T);
    const uint32 shift = uint32(reinterpret_cast<uint64>(source.begin)) % vector_bytes;
    const uint32 bytes = uint32(min(rest, uint64(leaf_bytes)));
    const char* base = source.begin + first * sizeof(T) - shift;
    const uint4* address = reinterpret_cast<const uint4*>(base) + lane;

    typename Op::Accumulator value;
    if (shift == 0 && bytes % vector_bytes == 0)
        value = lane_fold_aligned<Op>(source, address, first, bytes, lane);
    else if (leaf > 0 && rest >= leaf_bytes + vector_bytes)
        value = lane_fold_shifted<Op>(source, address, first, shift, lane);
    else
        value = lane_fold_edge<Op>(source, base, first, shift, rest, lane);
    return warp_fold<Op>(value);
}

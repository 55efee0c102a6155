// One leaf of the tree (4 KiB of elements) by one warp: the step level inside a lane, then the lanes.
#pragma once
#include "vector.cuh"

constexpr uint32 steps = 8;                          // vectors a lane loads
constexpr uint32 leaf_vectors = lanes * steps;
constexpr uint32 leaf_bytes = leaf_vectors * vector_bytes;
template <class T> constexpr uint32 leaf_elements = leaf_bytes / sizeof(T);

template <class Op, uint32 N> __device__ __forceinline__ typename Op::Accumulator fold_vectors(const uint4* v)
{
    typename Op::Accumulator a[N];
#pragma unroll
    for (uint32 t = 0; t < N; ++t) a[t] = fold_vector<Op>(v[t]);
    return fold_array<Op, N>(a);
}

// The elements of a reduction: where the first one is, at any address, and where the last one ends.
template <class T> struct Source {
    const char* begin;
    uint64 length;

    __device__ __forceinline__ uint64 leaf_count() const { return (length + leaf_elements<T> - 1) / leaf_elements<T>; }
};

// A leaf at a 16-byte boundary, the lane's part: eight loads in flight, unconditional where the leaf is whole. `bytes`
// of it exist, a multiple of 16.
template <class Op>
__device__ __forceinline__ typename Op::Accumulator lane_fold_aligned(const uint4* address, uint32 bytes, uint32 lane)
{
    uint4 v[steps];
    if (bytes == leaf_bytes) {
#pragma unroll
        for (uint32 t = 0; t < steps; ++t) v[t] = load_streaming(address + lanes * t);
    } else {
#pragma unroll
        for (uint32 t = 0; t < steps; ++t)
            v[t] = load_streaming_if((t * lanes + lane) * vector_bytes < bytes, address + lanes * t, absent_vector<Op>());
    }
    return fold_vectors<Op, steps>(v);
}

// A whole leaf that starts `shift` bytes past the 16-byte block at `address`, and neither in the source's first block
// nor in its last: the lane's part. Each block is joined with its neighbour: the next lane's, for the last lane the
// first lane's of the next step. So every byte is loaded once, and the tree does not see the alignment.
template <class Op>
__device__ __forceinline__ typename Op::Accumulator lane_fold_shifted(const uint4* address, uint32 shift, uint32 lane)
{
    uint4 v[steps + 1];
    typename Op::Accumulator a[steps];
#pragma unroll
    for (uint32 t = 0; t < steps; ++t) v[t] = load_streaming(address + lanes * t);
#pragma unroll
    for (uint32 t = 0; t < steps; ++t) {
        // The block after the leaf late, when half of the registers are free again.
        if (t == steps / 2 && lane == 0) v[steps] = load_streaming(address + leaf_vectors);
        v[t] = shift_bytes(v[t], shuffle_from(lane == 0 ? v[t + 1] : v[t], (lane + 1) % lanes), shift);
        a[t] = fold_vector<Op>(v[t]);
        __syncwarp();  // orders nothing: it keeps the compiler from holding all steps in registers at once
    }
    return fold_array<Op, steps>(a);
}

// Any other leaf, the lane's part: the source's first or last, where its edge cuts a block. It starts `shift` bytes
// past the 16-byte block `base` and has `rest` bytes or more of the source. One step at a time, in little code and few
// registers: a launch has at most two such leaves.
template <class Op>
__device__ __forceinline__ typename Op::Accumulator
lane_fold_edge(Source<typename Op::Input> source, const char* base, uint32 shift, uint64 rest, uint32 lane)
{
    constexpr int32 at_once = 2, step_bytes = lanes * vector_bytes, block_bytes = vector_bytes;
    const uint4 nothing = make_uint4(0, 0, 0, 0);
    // Bytes from the leaf's first block to the end of the source, or of the block after the leaf.
    const int32 reach = int32(min(rest + shift, uint64(leaf_bytes + vector_bytes)));
    const char *begin = source.begin, *end = begin + source.length * sizeof(typename Op::Input);
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
            v[t] = load_streaming_if(available >= block_bytes && !cut_front, address, nothing);
            if (cut_front) v[t] = front;
            else if (cut_back) v[t] = back;
        }
#pragma unroll
        for (int32 t = 0; t < at_once; ++t) {
            const uint4 next = shuffle_from(lane == 0 ? v[t + 1] : v[t], (lane + 1) % lanes);
            if (shift != 0) v[t] = shift_bytes(v[t], next, shift);
            v[t] = keep_bytes(v[t], absent_vector<Op>(), reach - int32(shift) - offset - t * step_bytes);
        }
        const auto value = fold_vectors<Op, at_once>(v);  // of four rounds: a binary counter with two digits
        if (round % 2 == 0) { pair = value; continue; }
        const auto two = Op::combine(pair, value);
        if (round == 3) return Op::combine(quad, two);
        quad = two;
    }
}

// One leaf, whatever its place and alignment; identity for a leaf past the end. All 32 lanes of a warp call it with
// the same leaf; every lane holds the result.
template <class Op>
__device__ __forceinline__ typename Op::Accumulator leaf_fold(Source<typename Op::Input> source, uint64 leaf, uint32 lane)
{
    using T = typename Op::Input;
    const uint64 first = leaf * leaf_elements<T>;
    if (first >= source.length) return Op::identity();
    const uint64 rest = (source.length - first) * sizeof(T);
    const uint32 shift = uint32(reinterpret_cast<uint64>(source.begin)) % vector_bytes;
    const uint32 bytes = uint32(min(rest, uint64(leaf_bytes)));
    const char* base = source.begin + first * sizeof(T) - shift;
    const uint4* address = reinterpret_cast<const uint4*>(base) + lane;

    typename Op::Accumulator value;
    if (shift == 0 && bytes % vector_bytes == 0)
        value = lane_fold_aligned<Op>(address, bytes, lane);
    else if (leaf > 0 && rest >= leaf_bytes + vector_bytes)
        value = lane_fold_shifted<Op>(address, shift, lane);
    else
        value = lane_fold_edge<Op>(source, base, shift, rest, lane);
    return warp_fold<Op>(value);
}

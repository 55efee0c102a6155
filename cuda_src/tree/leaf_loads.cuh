// How a lane loads its vectors of a leaf in which no edge cuts a 16-byte block.
#pragma once
#include "tree/vector.cuh"

// The elements of a vector that the row's end cuts after `bytes` bytes, and in place of the others some that change nothing:
// absent elements or, for operators that fold whole leaves and have none, copies of the first.
template <class Op> __device__ __forceinline__ uint4 load_cut_vector(const char* address, int32 bytes)
{
    using T = typename Op::Input;
    VectorOf<T> u = {load_elements<T>(address, bytes, absent_elements<Op>())};
    if constexpr (!fills_absent<Op>)
#pragma unroll
        for (int32 i = 1; i < int32(vector_elements<T>); ++i)
            if (i * int32(sizeof(T)) >= bytes) u.elements[i] = u.elements[0];
    return u.raw;
}

// Whether something can be loaded in place of a cut vector's absent elements, so that it folds like a whole one.
template <class Op> constexpr bool completes_cut_vectors = fills_absent<Op> || (Op::folds_leaves && !has_second<Op>);

// Loads the first N of a lane's vectors of a leaf at a 16-byte boundary, of which `bytes` bytes exist, all in flight at once. A
// vector that is cut is loaded only if the operator completes_cut_vectors.
template <class Op, uint32 N>
__device__ __forceinline__ void load_part_of_leaf(uint4* v, const char* leaf, uint32 bytes, uint32 lane)
{
    const auto* address = reinterpret_cast<const uint4*>(leaf) + lane;
    const uint32 whole = bytes / vector_bytes, rest = completes_cut_vectors<Op> ? bytes % vector_bytes : 0;
#pragma unroll
    for (uint32 t = 0; t < N; ++t)
        v[t] = load_streaming_if(t * lanes + lane < whole, address + lanes * t, absent_elements<Op>());
    if (rest == 0) return;
    const uint4 last = load_cut_vector<Op>(leaf + whole * vector_bytes, rest);
#pragma unroll
    for (uint32 t = 0; t < N; ++t)
        if (t * lanes + lane == whole) v[t] = last;
}

// Whether a lane has registers for joining a whole misaligned leaf: not where results are numbers of another kind than
// elements, or a vector holds many elements. Determined by what NVRTC 13.0 makes of all operators and types.
template <class Op>
constexpr bool joins_whole_leaves = Op::packed || Op::folds_leaves || Op::folds_whole_vectors ||
    (sizeof(typename Op::Input) >= 4 && is_integer<typename Op::Input> == is_integer<typename Op::Result>);

// Loads the lane's vectors of a whole leaf that starts `shift` bytes past the 16-byte block `base` and lies neither in the
// source's first block nor in its last, all loads in flight at once. All 32 lanes call it. Each vector spans two blocks, of
// which the next lane loads the second and hands it over by a shuffle; the last lane's comes from the first lane's next step.
// So the tree does not depend on the alignment, and the memory traffic hardly: a leaf takes one block more. `zero` is 0, which
// the compiler must not know: it makes every few shuffles wait for the joins before them, because all of them at once would
// take more registers than there are.
template <class Op>
__device__ __forceinline__ void load_shifted_leaf(uint4* v, const char* base, uint32 shift, uint32 zero, uint32 lane)
{
    constexpr uint32 shuffled = has_second<Op> ? 4 : 2;
    const auto* address = reinterpret_cast<const uint4*>(base) + lane;
#pragma unroll
    for (uint32 t = 0; t < steps; ++t) v[t] = load_streaming(address + lanes * t);
    const uint4 beyond = load_streaming_if(lane == 0, address + leaf_vectors);
    uint32 next_lane = lane + 1;
#pragma unroll
    for (uint32 t = 0; t < steps; ++t) {
        const uint4 given = select(lane == 0, t + 1 < steps ? v[t + 1] : beyond, v[t]);
        v[t] = shift_bytes(v[t], shuffle_from(given, next_lane), shift);
        if (t % shuffled == 1) next_lane += v[t].x & zero;
    }
}

// The same in halves, for operators that lack the registers: each vector's second block comes from the L1, into which the next
// lane's load brings it.
__device__ __forceinline__ void load_shifted_halves(uint4* v, const char* base, uint32 shift, uint32 lane)
{
    constexpr uint32 at_once = steps / 2;
    const auto* address = reinterpret_cast<const uint4*>(base) + lane;
#pragma unroll
    for (uint32 half = 0; half < steps; half += at_once) {
        uint4 next[at_once];
#pragma unroll
        for (uint32 t = 0; t < at_once; ++t) {
            v[half + t] = __ldg(address + lanes * (half + t));
            next[t] = __ldg(address + lanes * (half + t) + 1);
        }
#pragma unroll
        for (uint32 t = 0; t < at_once; ++t) v[half + t] = shift_bytes(v[half + t], next[t], shift);
        __syncwarp();  // orders nothing: it keeps the compiler from holding all steps in registers at once
    }
}

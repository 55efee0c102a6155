// The top of the tree over the partials of an array's chunks, which other launches, or other devices, have made: by one block.
//
// Chunks are runs of a power of two of leaves, all but the last whole, so their folds are subtrees of the array's tree.
#pragma once
#include "tree/block.cuh"

// `elements` are the partials, one after the other, `count` of them, at multiples of four bytes; `length` is the array's.
struct PartialsProblem : Problem {
    uint64 chunk;  // elements of a chunk
};

// The accumulator that lies at an address word by word, of a chunk before which the array has so many elements.
template <class Op>
__device__ __forceinline__ typename Op::Accumulator partial_at(const uint32* address, uint64 elements_before)
{
    constexpr uint32 words = sizeof(typename Op::Accumulator) / 4;
    union { typename Op::Accumulator whole; uint32 word[words]; } u;
#pragma unroll
    for (uint32 i = 0; i < words; ++i) u.word[i] = address[i];
    return moved_by<Op>(u.whole, elements_before, 0);
}

// `fold_run_of_partials`, below, with `AtOnce` partials of each lane in flight.
template <class Op, uint32 AtOnce, class Partial>
__device__ __forceinline__ typename Op::Accumulator
fold_batches_of_partials(Partial partial, uint32 count, uint32 warp, uint32 warps)
{
    constexpr uint32 batch = lanes * AtOnce;
    const uint32 lane = threadIdx.x % lanes;
    uint32 batches = 1;  // for each warp
    while (batches * batch * warps < count) batches *= 2;
    WarpCounter<Op> counter;
#pragma unroll 1
    for (uint32 i = 0; i < batches; ++i) {
        typename Op::Accumulator a[AtOnce];
#pragma unroll
        for (uint32 k = 0; k < AtOnce; ++k) {
            const uint32 number = (warp * batches + i) * batch + k * lanes + lane;
            a[k] = Op::identity();
            if (number < count) a[k] = partial(number);
        }
        counter.push(warp_fold_array<Op, AtOnce>(a, lane), lane);
    }
    return counter.result();
}

// The fold of those of `count` partials that one of `warps` warps takes: a run of a power of two of them, 32 to 128 at
// a time; what is past the last is absent. `partial(number)` loads one. All lanes of the warp call it, and all hold the
// result. Few partials are spread over all warps.
template <class Op, class Partial>
__device__ __forceinline__ typename Op::Accumulator
fold_run_of_partials(Partial partial, uint32 count, uint32 warp, uint32 warps)
{
    constexpr uint32 most = sizeof(typename Op::Accumulator) > 12 ? 2 : 4;
    if (count <= lanes * warps) return fold_batches_of_partials<Op, 1>(partial, count, warp, warps);
    if (most > 2 && count <= 2 * lanes * warps) return fold_batches_of_partials<Op, 2>(partial, count, warp, warps);
    return fold_batches_of_partials<Op, most>(partial, count, warp, warps);
}

template <class Op, int Warps> __device__ __forceinline__ void reduce_partials(const PartialsProblem& problem)
{
    __shared__ BlockSlots<Op, Warps> shared;
    launch_dependents();
    wait_for_prerequisites();
    const auto partial = [&problem](uint32 number) {
        constexpr uint32 words = sizeof(typename Op::Accumulator) / 4;
        const auto* address = reinterpret_cast<const uint32*>(problem.elements) + uint64(number) * words;
        return partial_at<Op>(address, number * problem.chunk);
    };
    const auto run = fold_run_of_partials<Op>(partial, uint32(problem.count), warp_of_block(), Warps);
    const auto root = block_fold<Op, Warps>(run, shared, 0);
    if (threadIdx.x != 0) return;
    const Source<Op> whole(problem, problem.elements, nullptr, problem.length, Op::pivot_is_given);
    store_result<Op>(problem, whole.row, 0, root);
}

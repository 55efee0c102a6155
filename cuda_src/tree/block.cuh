// Folds across the warps of a block.
#pragma once
#include "tree/leaf.cuh"

// Two sets of slots used in turn, so that consecutive folds need one barrier each instead of two.
template <class Op, int Warps> struct BlockSlots {
    typename Op::Accumulator slots[2][Warps];
};

// The smallest power of two that is not below n.
__host__ __device__ constexpr int power_of_two_from(int n) { return n <= 1 ? 1 : 2 * power_of_two_from((n + 1) / 2); }

// Folds what `count` warps, at most N, put into as many slots, balanced over their numbers; slots from `count` to the next power of
// two from N count as absent. All lanes of a warp call it, after a barrier that follows the writes; every lane holds the result.
template <class Op, int N>
__device__ __forceinline__ typename Op::Accumulator
fold_warps(const typename Op::Accumulator* slots, uint32 lane, uint32 count = N)
{
    constexpr int all = power_of_two_from(N);
    const uint32 slot = lane % all;
    return warp_fold<Op, all>(slot < count ? slots[slot] : Op::identity());
}

// The same for up to 16 warps, without the last level for up to eight.
template <class Op>
__device__ __forceinline__ typename Op::Accumulator
fold_few_warps(const typename Op::Accumulator* slots, uint32 lane, uint32 count)
{
    const uint32 slot = lane & (count > 8 ? 15 : 7);
    auto value = warp_fold<Op, 8>(slot < count ? slots[slot] : Op::identity());
    if (count > 8) value = Op::combine(value, shuffle_xor(value, 8));
    return value;
}

// The same with the writes and the barrier. Every thread of the block calls it, all lanes of a warp with the same value; all lanes
// of warp 0 hold the result, other warps nothing useful. The slots may be used again after another barrier. The block has `warps`
// warps, at most `Warps`.
template <class Op, int Warps>
__device__ __forceinline__ typename Op::Accumulator
fold_of_warps(typename Op::Accumulator value, typename Op::Accumulator* slots, uint32 warps = Warps)
{
    if (warps == 1) return value;
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    if (lane == 0) slots[warp] = value;
    __syncthreads();
    if (all_agree(warp == 0)) value = fold_warps<Op, Warps>(slots, lane, warps);
    return value;
}

// The block level: folds one value a warp, balanced over the warp index. Every thread of the block calls it, all lanes of a
// warp with the same value, `turn` counting the calls; all lanes of warp 0 hold the result, other warps nothing useful. A
// call's slots may be used again after the next call, whose barrier shows that they have been read.
template <class Op, int Warps>
__device__ __forceinline__ typename Op::Accumulator
block_fold(typename Op::Accumulator value, BlockSlots<Op, Warps>& shared, uint32 turn, uint32 warps = Warps)
{
    return fold_of_warps<Op, Warps>(value, shared.slots[turn & 1u], warps);
}

// The lane level of each warp and the block level in one, by way of shared memory, for accumulators of up to 8 bytes and a power
// of two of warps.
template <class Op, int Warps> constexpr bool folds_lanes_together =
    Warps > 1 && power_of_two_from(Warps) == Warps && sizeof(typename Op::Accumulator) <= 8;

// A place for each thread's value, or, where they do not go this way, for each warp's. The values that a lane of the first warp
// takes, which are neighbours, lie a row apart, so that the lanes' accesses fall into different banks; four places more in each
// row do the same, nearly, for the threads that put them there.
template <class Op, int Warps, bool = folds_lanes_together<Op, Warps>> struct LaneSlots {
    typename Op::Accumulator slots[Warps];
};
template <class Op, int Warps> struct LaneSlots<Op, Warps, true> {
    typename Op::Accumulator slots[Warps][lanes + 4];
};

// Folds one value a thread, balanced over the thread's index: instead of five levels of shuffles in each warp and some more in
// the first, each lane of the first warp folds as many neighbours as there are warps, and only these are shuffled. Every thread
// of the block calls it, once; all lanes of warp 0 hold the result, other warps nothing useful. The block has `warps` warps, a
// power of two up to `Warps`.
template <class Op, int Warps>
__device__ __forceinline__ typename Op::Accumulator
block_fold_lanes(typename Op::Accumulator value, LaneSlots<Op, Warps>& shared, uint32 warps = Warps)
{
    if constexpr (!folds_lanes_together<Op, Warps>) {
        return fold_of_warps<Op, Warps>(warp_fold<Op>(value), shared.slots, warps);
    } else {
        if (warps > 1) {
            shared.slots[threadIdx.x & warps - 1][threadIdx.x >> 31 - __clz(int(warps))] = value;
            __syncthreads();
            if (!all_agree(threadIdx.x < lanes)) return value;
            typename Op::Accumulator a[Warps];
#pragma unroll
            for (uint32 i = 0; i < Warps; ++i) a[i] = i < warps ? shared.slots[i][threadIdx.x % lanes] : Op::identity();
            value = fold_array<Op, Warps>(a);
        }
        return warp_fold<Op>(value);
    }
}

// Folds a tile: as many consecutive leaves as the block has warps. Called like block_fold; the result is in the same lanes.
template <class Op, int Warps, class S>
__device__ __forceinline__ typename Op::Accumulator
block_fold_tile(const S& source, uint64 tile, BlockSlots<Op, Warps>& shared, uint32 turn, uint32 warps = Warps)
{
    const uint32 warp = warp_of_block(), lane = threadIdx.x % lanes;
    return block_fold<Op, Warps>(leaf_fold<Op>(source, tile * warps + warp, lane), shared, turn, warps);
}

// Folds `count` consecutive tiles from `first` on, one after the other. Every thread of the block calls it; all lanes of warp 0
// hold the result.
template <class Op, int Warps, class S>
__device__ __forceinline__ typename Op::Accumulator
block_fold_tiles(const S& source, uint64 first, uint32 count, BlockSlots<Op, Warps>& shared, uint32 warps = Warps)
{
    const uint32 warp = warp_of_block(), lane = threadIdx.x % lanes;
    WarpCounter<Op> counter;
    uint32 i = 0;
#pragma unroll 1
    do {  // at least one, so that no path to the result goes past the wait in it
        const auto value = block_fold_tile<Op, Warps>(source, first + i, shared, i, warps);
        if (count == 1) return value;
        if (warp == 0) counter.push(value, lane);
    } while (++i < count);
    return counter.result();
}

// How many tiles of `Leaves` leaves a source has; one if it has no element.
template <class Op, uint32 Leaves, class S> __device__ __forceinline__ uint32 tile_count(const S& source)
{
    return max(1u, uint32((source.leaf_count() + Leaves - 1) / Leaves));
}

// Folds across a grid, through global memory: a workspace of a header and one slot for each partial.
#pragma once
#include "tree/cluster.cuh"

// The first 256 bytes of the workspace. The whole workspace is zero before the first launch, and each launch leaves it ready
// for the next.
struct GridHeader {
    uint32 barrier;  // the grid barrier's arrivals; bit 31 flips with each use
    uint32 unused[63];
};

// The flag in a slot that is not empty. It holds a block's partial or, as the first slot of a run, the fold of that run.
enum Flag : uint32 { of_a_block = 1, of_a_run = 2 };

// A partial together with a flag that says it is there, in units of 16 bytes that are written and read whole: whoever sees the
// flag sees the value, without a fence or an atomic, and the writer's block need not wait for either.
template <class A> struct Slot {
    static constexpr uint32 payload_words = 3, words = sizeof(A) / 4;
    static constexpr uint32 units = (words + payload_words - 1) / payload_words;
    uint4 unit[units];

    __device__ __forceinline__ void publish(A value, uint32 flag = of_a_block)
    {
        union { A whole; uint32 word[units * payload_words]; } u;
        u.whole = value;
#pragma unroll
        for (uint32 i = 0; i < units; ++i)
            store_whole(&unit[i], make_uint4(u.word[3 * i], u.word[3 * i + 1], u.word[3 * i + 2], flag));
    }

    // Reads all units into `seen` and returns whether all are there.
    __device__ __forceinline__ bool read(uint4* seen, uint32 flag = of_a_block) const
    {
        bool there = true;
#pragma unroll
        for (uint32 i = 0; i < units; ++i) {
            seen[i] = load_whole(&unit[i]);
            there = there && seen[i].w == flag;
        }
        return there;
    }

    // Leaves the slot empty, as the next launch needs it.
    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (uint32 i = 0; i < units; ++i) store_whole(&unit[i], make_uint4(0, 0, 0, 0));
    }

    static __device__ __forceinline__ A value(const uint4* seen)
    {
        union { A whole; uint32 word[units * payload_words]; } u;
#pragma unroll
        for (uint32 i = 0; i < units; ++i)
            u.word[3 * i] = seen[i].x, u.word[3 * i + 1] = seen[i].y, u.word[3 * i + 2] = seen[i].z;
        return u.whole;
    }
};

template <class Op> __device__ __forceinline__ Slot<typename Op::Accumulator>* grid_slots(void* workspace)
{
    return reinterpret_cast<Slot<typename Op::Accumulator>*>(static_cast<GridHeader*>(workspace) + 1);
}

// Waits until every block of the grid has arrived; what they wrote before is then visible. Every thread of the grid calls it.
// Needs a cooperative launch, in which all blocks are resident. Block 0 adds the number that makes bit 31 flip when all have
// arrived, so there is nothing to reset.
__device__ __forceinline__ void grid_barrier(GridHeader* header)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        const uint32 arrival = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
        const uint32 before = atomic_add(&header->barrier, arrival);
        while (((load_acquire(&header->barrier) ^ before) & 0x80000000u) == 0) __nanosleep(20);
    }
    __syncthreads();
    __threadfence();
}

// Waits for N partials, in the slots of numbers places[k] for k < N, and takes them, which leaves the slots empty; one at ~0u
// is absent. All 32 lanes of a warp call it, each with places of its own. All N are read again until all are there: if each
// were awaited in turn, each would cost a round trip to the L2. So would each if the compiler put it behind a branch of its
// own; therefore in place of an absent one the first slot is read.
template <class Op, int N>
__device__ __forceinline__ void
grid_take_places(typename Op::Accumulator* a, Slot<typename Op::Accumulator>* slots, const uint32 (&places)[N],
                 uint32 flag = of_a_block)
{
    using S = Slot<typename Op::Accumulator>;
    uint4 seen[N][S::units];
    bool there;
    do {
        there = true;
#pragma unroll
        for (int k = 0; k < N; ++k) {
            const bool is_absent = places[k] == ~0u, is_there = slots[is_absent ? 0 : places[k]].read(seen[k], flag);
            there = there && (is_absent || is_there);
        }
    } while (__any_sync(0xffffffffu, !there));  // as a whole warp: if lanes left one by one, later shuffles would be slow
#pragma unroll
    for (int k = 0; k < N; ++k) {
        a[k] = Op::identity();
        if (places[k] != ~0u) {
            a[k] = S::value(seen[k]);
            slots[places[k]].clear();
        }
    }
}

// `count` partials, `spacing` slots apart, which carry this flag.
struct Partials {
    uint32 count, spacing = 1, flag = of_a_block;
};

// The same for the partials number first + 32 k, `first` being the lane's own; those past the last are absent.
template <class Op, int N>
__device__ __forceinline__ void
grid_take(typename Op::Accumulator* a, Slot<typename Op::Accumulator>* slots, uint32 first, Partials partials)
{
    uint32 places[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
        const uint32 number = first + k * lanes;
        places[k] = number < partials.count ? number * partials.spacing : ~0u;
    }
    grid_take_places<Op, N>(a, slots, places, partials.flag);
}

// Waits for one partial without taking it, and sleeps between reads in favour of warps that work. All lanes of a warp call it.
template <class Op> __device__ __forceinline__ void grid_await(const Slot<typename Op::Accumulator>* slot)
{
    uint4 seen[Slot<typename Op::Accumulator>::units];
    while (__any_sync(0xffffffffu, !slot->read(seen))) __nanosleep(100);
}

// The top of the tree, by one block: waits for the partials and folds them as they come, each warp a run whose length is a
// power of two. Every thread of the block calls it, `shared` and `turn` as in block_fold; all lanes of warp 0 hold the result.
template <class Op, int Warps>
__device__ __forceinline__ typename Op::Accumulator
grid_fold(Slot<typename Op::Accumulator>* slots, Partials partials, BlockSlots<Op, Warps>& shared, uint32 turn, uint32 warps = Warps)
{
    constexpr int in_flight = Slot<typename Op::Accumulator>::units > 1 ? 2 : 4;  // no more than there are registers for
    constexpr uint32 batch = lanes * in_flight;
    const uint32 warp = warp_of_block(), lane = threadIdx.x % lanes, count = partials.count;
    typename Op::Accumulator value = Op::identity();
    if (count <= lanes * warps) {
        if (warp * lanes < count) grid_take<Op, 1>(&value, slots, warp * lanes + lane, partials);
        value = warp_fold<Op>(value);
        if (count <= lanes) return value;
    } else {
        uint32 batches = 1;  // for each warp; 2^40 bytes make 2^25 partials at most
        while (batches * batch * warps < count) batches *= 2;
        WarpCounter<Op> counter;
#pragma unroll 1
        for (uint32 i = 0; i < batches; ++i) {
            typename Op::Accumulator a[in_flight];
            grid_take<Op, in_flight>(a, slots, (warp * batches + i) * batch + lane, partials);
            counter.push(warp_fold_array<Op, in_flight>(a, lane), lane);
        }
        value = counter.result();
    }
    return block_fold<Op, Warps>(value, shared, turn, warps);
}

// The same for up to one partial a thread, by the lanes of all warps together; returns true.
template <class Op, int Warps>
__device__ __forceinline__ bool
grid_fold_lanes(Slot<typename Op::Accumulator>* slots, uint32 count, LaneSlots<Op, Warps>& shared, typename Op::Accumulator& root)
{
    root = Op::identity();
    if (warp_of_block() * lanes < count) grid_take<Op, 1>(&root, slots, threadIdx.x, {count});
    root = block_fold_lanes<Op, Warps>(root, shared);
    return true;
}

// How many partials each of several folding blocks folds: what its lanes take at once, as `folding_blocks` in Python.
__device__ constexpr uint32 grid_run(uint32 warps) { return warps * lanes * 4; }

// The top of the tree by `folders` blocks, of which this one is number `folder`: each folds a run of the partials, and the last
// one also the results of all runs. Folding blocks start when all others have started, too late for one block to fold many
// thousands of partials before the last arrives. Every thread of the block calls it; returns whether this block has the result,
// which is then in all lanes of warp 0.
template <class Op, int Warps>
__device__ __forceinline__ bool
grid_fold_by(uint32 folder, uint32 folders, Slot<typename Op::Accumulator>* slots, uint32 count,
             BlockSlots<Op, Warps>& shared, typename Op::Accumulator& root, uint32 warps = Warps)
{
    const uint32 run = grid_run(warps), first = folder * run;  // 0 of one folder
    Partials partials{folders == 1 ? count : min(count, first + run) - min(count, first)};
    auto* from = slots + min(count, first);
#pragma unroll 1
    for (uint32 turn = 0;; ++turn) {  // a loop, because code takes time to compile and to fetch
        root = grid_fold<Op, Warps>(from, partials, shared, turn, warps);
        if (folders == 1 || turn == 1) return true;
        if (threadIdx.x == 0 && first < count) slots[first].publish(root, of_a_run);
        if (folder != folders - 1) return false;
        from = slots;
        partials = Partials{(count + run - 1) / run, run, of_a_run};
    }
}

// How the warps and blocks of a row come together: their folds go to one warp, and what the row comes to goes back to all.
#pragma once
#include "rowops/held_leaf.cuh"

constexpr int warps_of_row_block = 16;  // at most

// What the blocks of a row exchange. Both barriers count bytes that come from other blocks.
template <class R> struct RowMeeting {
    using Op = typename R::Op;
    typename Op::Accumulator slots[warps_of_row_block];
    ClusterSlots<Op, most_in_cluster> others;
    uint64 values_barrier;
    typename R::Values values;
};

// Whether each block of a cluster finds out by itself what the row comes to: one way between blocks instead of there and back.
// Not where that reads elements, which another block may have written by then, if the operation works in place: one's own, or the
// row's first one unless threads have it since the loads (`HaveFirst`).
template <class R, bool HaveFirst> constexpr bool finds_in_all = R::outputs > 0 && (HaveFirst || !R::needs_first) && !R::looks;

// Every thread calls it once, at entry.
template <class R, bool HaveFirst = false> __device__ __forceinline__ void enter(RowMeeting<R>& shared, uint32 blocks)
{
#if __CUDA_ARCH__ >= 900
    if (blocks > 1 && threadIdx.x == 0) {
        if constexpr (!finds_in_all<R, HaveFirst>) expect_bytes(&shared.values_barrier, sizeof(typename R::Values));
        expect_bytes(&shared.others.barrier, (blocks - 1) * sizeof(typename R::Op::Accumulator));
    }
    __syncwarp();
    if (blocks > 1) cluster_arrive();
#endif
}

// Gives what rank 0 made of the row to all threads of all blocks; with one block, what this one made. Every thread calls it, all
// lanes of its warp 0 with the values.
template <class R>
__device__ __forceinline__ typename R::Values tell_all(typename R::Values values, RowMeeting<R>& shared, uint32 rank, uint32 blocks)
{
#if __CUDA_ARCH__ >= 900
    if (rank != 0 && blocks > 1) {
        cluster_await(shared.values_barrier);
        return shared.values;
    }
    if (blocks > 1 && all_agree(threadIdx.x < lanes)) {
        cluster_wait();  // the others' barriers are there
        if (threadIdx.x > 0 && threadIdx.x < blocks) store_to_rank(&shared.values, threadIdx.x, values, &shared.values_barrier);
    }
#endif
    if (threadIdx.x == 0) shared.values = values;
    __syncthreads();
    return shared.values;
}

// From each warp's fold to what the row comes to: all threads of all its blocks call it, all lanes of a warp with the same fold,
// and all hold the result. `blocks` blocks, a cluster if several, have `warps` warps each.
template <class R>
__device__ __forceinline__ typename R::Values
meet(typename R::Op::Accumulator value, const RowProblem<R>& problem, const RowPlace<R>& place, const typename R::Given& given,
     uint64 row, uint32 length, RowMeeting<R>& shared, uint32 rank, uint32 blocks, uint32 warps)
{
    using Op = typename R::Op;
    constexpr bool in_all = finds_in_all<R, false>;
    value = fold_of_warps<Op, warps_of_row_block>(value, shared.slots, warps);
    if constexpr (in_all) value = cluster_fold_in_all<Op, most_in_cluster>(value, shared.others, blocks);
    else value = cluster_fold<Op, most_in_cluster>(value, shared.others, blocks);
    typename R::Values values = {};
    if (all_agree((in_all || rank == 0) && threadIdx.x < lanes)) {
        const bool keeps = rank == 0 && threadIdx.x == 0;
        values = R::values(problem, given, row, place, held_row<R>(place, given, length).row, value, keeps);
    }
    if constexpr (R::outputs == 0) return values;
    else return tell_all<R>(values, shared, rank, in_all ? 1 : blocks);
}

// The same for few rows, of whose `source` all threads have the first element: every warp of one block folds the warps' folds and
// finds out what the row comes to, instead of waiting until it is told.
template <class R>
__device__ __forceinline__ typename R::Values
meet_soon(typename R::Op::Accumulator value, const RowProblem<R>& problem, const RowPlace<R>& place, const typename R::Given& given,
          uint64 row, const HeldRow<typename R::Op>& source, RowMeeting<R>& shared, uint32 rank, uint32 blocks, uint32 warps)
{
    using Op = typename R::Op;
    constexpr bool in_all = finds_in_all<R, true>;
    const bool alone = in_all && blocks == 1;
    const uint32 lane = threadIdx.x % lanes;
    if (alone) {
        if (lane == 0 && threadIdx.x / lanes < warps) shared.slots[threadIdx.x / lanes] = value;
        __syncthreads();
        value = shared.slots[lane & warps - 1];
#pragma unroll 1
        for (uint32 level = 1; level < warps; level *= 2) value = Op::combine(value, shuffle_xor(value, level));
    } else {
        value = fold_of_warps<Op, warps_of_row_block>(value, shared.slots, warps);
        if constexpr (in_all) value = cluster_fold_in_all<Op, most_in_cluster>(value, shared.others, blocks);
        else value = cluster_fold<Op, most_in_cluster>(value, shared.others, blocks);
    }
    typename R::Values values = {};
    if (all_agree(alone || (in_all || rank == 0) && threadIdx.x < lanes))
        values = R::values(problem, given, row, place, source.row, value, rank == 0 && threadIdx.x == 0);
    if constexpr (R::outputs == 0) return values;
    else return alone ? values : tell_all<R>(values, shared, rank, in_all ? 1 : blocks);
}

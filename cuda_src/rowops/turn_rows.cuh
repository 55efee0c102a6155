// Longer rows: each warp folds a run of leaves in turns. The first ones are kept in shared memory; what does not fit there is
// read a second time, the last leaves first, since the L2 may still have them.
#pragma once
#include "rowops/meeting.cuh"

struct TurnCut {
    uint32 blocks, turns, kept;  // of a row; leaves of a warp, a power of two, and how many of them are kept
    __device__ __forceinline__ explicit TurnCut(uint64 cut)
        : blocks(uint32(cut) & 31), turns(1u << (uint32(cut) >> 5 & 31)), kept(uint32(cut) >> 10) {}
};

// Where a lane's vectors of a kept leaf are: only the lane itself uses them.
template <class R> __device__ __forceinline__ uint4* place_of_kept(uint4* memory, uint32 turn)
{
    return memory + turn * (keeps_second<R> ? 2 : 1) * steps * blockDim.x + threadIdx.x;
}
template <class R> __device__ __forceinline__ void keep_leaf(const Held<R>& held, uint4* memory, uint32 turn)
{
    uint4* to = place_of_kept<R>(memory, turn);
#pragma unroll
    for (uint32 t = 0; t < steps; ++t) to[t * blockDim.x] = held.x[t];
    if constexpr (keeps_second<R>)
#pragma unroll
        for (uint32 t = 0; t < steps; ++t) to[(steps + t) * blockDim.x] = held.y[t];
}
template <class R> __device__ __forceinline__ void take_leaf(Held<R>& held, uint4* memory, uint32 turn)
{
    const uint4* from = place_of_kept<R>(memory, turn);
#pragma unroll
    for (uint32 t = 0; t < steps; ++t) held.x[t] = from[t * blockDim.x];
    if constexpr (keeps_second<R>)
#pragma unroll
        for (uint32 t = 0; t < steps; ++t) held.y[t] = from[(steps + t) * blockDim.x];
}

template <class R, Begin Where> __device__ __forceinline__ void turn_rows(const RowProblem<R>& problem)
{
    using Op = typename R::Op;
    extern __shared__ uint4 memory[];
    __shared__ RowMeeting<R> shared;
    const TurnCut cut(problem.cut);
    const uint32 warps = blockDim.x / lanes;
    enter(shared, cut.blocks);
    launch_dependents();
    const uint32 rank = rank_in_cluster(cut.blocks), lane = threadIdx.x % lanes;
    const uint32 first = (rank * warps + warp_of_block()) * cut.turns;
    const uint64 row = blockIdx.x / cut.blocks;
    wait_for_prerequisites();
    RowPlace<R> place(problem, row);
    const typename R::Given given = R::given(problem, row);
    const uint32 length = R::length(problem, given, row);
    const auto leaves_in = [=](uint32 n) {  // of this warp
        const uint32 all = uint32(leaves_of<typename R::Input>(n));
        return all > first ? min(all - first, cut.turns) : 0;
    };
    const auto source = held_row<R>(place, given, length);
    WarpCounter<Op> counter;
#pragma unroll 1
    for (uint32 i = 0, count = leaves_in(length); i < count; ++i) {
        Held<R> held;
        load_leaf<R, Where>(held, problem, place, first + i, length, lane);
        if (R::outputs > 0 && i < cut.kept) keep_leaf<R>(held, memory, i);
        counter.push(fold_leaf<R, Where>(held, problem, source, first + i, length, lane), lane);
    }
    const auto values =
        meet<R>(counter.result(), problem, place, given, row, length, shared, rank, cut.blocks, warps);
    if constexpr (R::outputs > 0) {
        place.find_outputs(problem, row);
#pragma unroll 1
        for (uint32 i = leaves_in(uint32(problem.length)); i-- > 0;) {
            Held<R> held;
            if (i < cut.kept && i < leaves_in(length)) take_leaf<R>(held, memory, i);
            else load_leaf<R, Where>(held, problem, place, first + i, length, lane);
            write_leaf<R, Where>(held, problem, place, values, first + i, length, lane);
        }
    }
}

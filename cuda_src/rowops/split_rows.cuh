// Few rows: several warps share a leaf, so that each has one, two or four of its steps to load, to fold and to write.
#pragma once
#include "rowops/meeting.cuh"

constexpr uint32 most_split_steps = 4;  // of a warp
// Steps whose columns are loaded before it is known what the row comes to: of few columns two.
template <class R> constexpr uint32 early_columns = sizeof(typename R::Columns) > 16 ? 1 : 2;
constexpr uint64 of_split_rows = 64;  // in problem.cut

struct SplitCut {
    uint32 blocks, leaves, each;  // blocks of a row; leaves of a block, a power of two; steps of a warp
    bool late;  // whether the next launch is let in behind the wait
    __device__ __forceinline__ explicit SplitCut(uint64 cut)
        : blocks(uint32(cut) & 31), leaves(uint32(cut) >> 8 & 31), each(uint32(cut) >> 16), late(cut & 1u << 13) {}
};

// The first warps of a block, one for each of its leaves, have the leaves' first steps; as many others the next ones, and so on, as
// many as rows have steps.
// What a lane's steps come to, it puts into dynamic shared memory, where one of the first warps folds what its leaf's lanes have.
template <class R, Begin Where> __device__ __forceinline__ void split_rows(const RowProblem<R>& problem)
{
    using Op = typename R::Op;
    using A = typename Op::Accumulator;
    constexpr uint32 V = Held<R>::V;
    extern __shared__ uint4 memory[];
    __shared__ RowMeeting<R> shared;
    const SplitCut cut(problem.cut);
    enter<R, true>(shared, cut.blocks);
    const uint32 rank = rank_in_cluster(cut.blocks), lane = threadIdx.x % lanes, warp = warp_of_block();
    const uint32 leaf = warp & cut.leaves - 1, leaf_bits = 31 - __clz(int(cut.leaves)), part = warp >> leaf_bits;
    const uint32 parts = blockDim.x / lanes >> leaf_bits;
    uint32 begin = (rank * cut.leaves + leaf) * leaf_elements<typename R::Input>;
    const uint64 row = blockIdx.x >> 31 - __clz(int(cut.blocks));
    RowPlace<R> place(problem, row);
    // Before the wait, not behind it, where the compiler would put it.
    uint32 first_step = part * cut.each;
    asm volatile("" : "+l"(place.x), "+r"(begin), "+r"(first_step));
    // Where a multiprocessor has room for several blocks, launches after the next one would come in, too, and share those of
    // its blocks.
    if (!cut.late) launch_dependents();
    wait_for_prerequisites();
    if (cut.late) launch_dependents();
    const typename R::Given given = R::given(problem, row);
    const uint32 length = R::length(problem, given, row), whole = uint32(problem.length);
    const auto index_of = [=](uint32 t) { return begin + ((first_step + t) * lanes + lane) * V; };
    const auto left_in = [=](uint32 t, uint32 n) { return t < cut.each ? left_from(index_of(t), n) : 0; };
    Held<R> held;
    held.template load<Where, most_split_steps, true>(leaf_inside(problem, place, begin, length), [&](uint32 t) {
        return VectorPlace<R>{place, index_of(t), left_in(t, length)};
    });
    typename R::Columns columns[early_columns<R>];
    if constexpr (R::outputs > 0)
#pragma unroll
        for (uint32 t = 0; t < early_columns<R>; ++t)
            if (t < cut.each) columns[t] = R::template columns<Where>(problem, index_of(t), left_in(t, whole));
    const auto source = held_row<R>(place, given, length);
    const auto fold = [&](uint32 t) {
        return fold_step<R, Where>(held, t, problem, source, index_of(t), left_in(t, length));
    };
    A value = fold(0);
    if (cut.each > 1) value = combine_neighbours<Op>(value, fold(1));
    if (cut.each > 2) {
        const A low = fold(2), high = fold(3);
        value = combine_neighbours<Op>(value, combine_neighbours<Op>(low, high));
    }
    A* const of_lanes = reinterpret_cast<A*>(memory);
    of_lanes[threadIdx.x] = value;
    __syncthreads();
    if (all_agree(part == 0)) {
        A all[steps];
#pragma unroll
        for (uint32 k = 0; k < steps; ++k)
            all[k] = k < parts ? of_lanes[(k * cut.leaves + leaf) * lanes + lane] : Op::identity();
        value = warp_fold<Op>(fold_array<Op, steps>(all));
    }
#if __CUDA_ARCH__ >= 900
    const auto values = meet_soon<R>(value, problem, place, given, row, source, shared, rank, cut.blocks, cut.leaves);
#else  // where gradients at any address would spill
    const auto values = meet<R>(value, problem, place, given, row, length, shared, rank, cut.blocks, cut.leaves);
#endif
    if constexpr (R::outputs > 0) {
        place.find_outputs(problem, row);
        Across<R::outputs> across;
#pragma unroll
        for (uint32 t = 0; t < most_split_steps; ++t) {
            const int32 left = left_in(t, whole);
            across.follows = t > 0;
            across.continues = t + 1 < cut.each;
            if (Where == Begin::anywhere ? !all_agree(left > 0) : left <= 0) continue;
            const uint32 index = index_of(t);
            const auto beside = t < early_columns<R> ? columns[t % early_columns<R>] : R::template columns<Where>(problem, index, left);
            R::template write<Where>(problem, place, index, left, length, held.x[t], held.second(t), values, across, beside);
        }
    }
}

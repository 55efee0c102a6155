// Leaves of strided rows whose neighbours in memory are far from each other in the tree: a block brings what lies side by side
// through shared memory, so that every sector is used while it is near.
#pragma once
#include "columns/strided_steps.cuh"
#include "tree/grid.cuh"

// How many steps of the tree, of 512 bytes each, a block brings at a time, of each of the runs that its warps fold.
constexpr uint32 staged_steps = 2, most_staged = 16;
constexpr uint32 step_bytes = lanes * vector_bytes;

// How the host has cut rows whose leaves are staged, in `ShapedProblem::run`; 0 `leaves` if they are not. strategy/staged_rows.py
struct StagedCut {
    uint32 blocks;  // that fold leaves, of all rows
    uint32 leaves;  // that a block folds of each run, those that lie in one run alone
    uint32 beside;  // runs that it takes side by side, a warp each
    __device__ __forceinline__ explicit StagedCut(uint64 word)
        : blocks(uint32(word)), leaves(uint32(word >> 32) & 0xffff), beside(uint32(word >> 48))
    {}
};

// Whether a launch may stage leaves. Of two arrays none are, nor where a thread lacks the registers: sums of bytes and mean_var
// would spill, and sums of float32 where the compiler is not for compute capability 9.0. The same in strategy/staged_rows.py.
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000
constexpr bool device_stages = true;
#else
constexpr bool device_stages = false;
#endif
template <class Op> constexpr bool may_be_staged =
    device_stages && !has_second<Op> && sizeof(typename Op::Input) >= 2 && sizeof(typename Op::Accumulator) <= 8;

// Elements of runs along the innermost axis: a ring for each, in which the tree's vectors are vectors. The four words more in each
// put neighbouring runs into different banks.
template <class Op, bool Exists> struct StagedRings {};
template <class Op> struct StagedRings<Op, true> {
    static constexpr uint32 steps_in_ring = staged_steps + 1;
    using T = typename Op::Input;
    union Ring {
        uint4 vectors[steps_in_ring * lanes + 1];
        T elements[steps_in_ring * step_bytes / sizeof(T)];
    } rings[most_staged];
};

// The runs along the innermost axis that a block takes side by side, and from which element on. Neighbours in memory are
// `inside` runs from each other in the tree.
struct StagedRuns {
    uint32 inside, first, count;
    uint64 from;
    bool is_last;  // whether these are the runs' last elements
    template <uint32 Leaf>
    static __device__ __forceinline__ StagedRuns of(const ReducedAxes& axes, const StagedCut& cut, uint32 itemsize, uint32 number)
    {
        uint32 fast = 1, inside = 1;
#pragma unroll 1
        for (; axes.stride[fast] != itemsize; ++fast) inside *= uint32(axes.size[fast]);
        const uint32 all = uint32(axes.size[fast]), teams = (all + cut.beside - 1) / cut.beside, window = cut.leaves * Leaf;
        const uint32 windows = uint32((axes.size[0] + window - 1) / window);
        const uint32 rest = number / teams, team = (number - rest * teams) * cut.beside;
        const uint32 unit = rest / windows, place = rest - unit * windows, outer = unit / inside;
        return {inside, (outer * all + team) * inside + unit - outer * inside, min(cut.beside, all - team),
                uint64(place) * window, place + 1 == windows};
    }
};

// What a thread brings of the runs: some elements of one of them, a chunk of steps at a time, while the block folds the one before.
template <class Op> struct StagedElements {
    using T = typename Op::Input;
    using Rings = StagedRings<Op, true>;
    static constexpr uint32 of_a_step = step_bytes / sizeof(T), of_a_chunk = staged_steps * of_a_step;
    static constexpr uint32 in_ring = Rings::steps_in_ring * of_a_step, N = of_a_chunk / lanes;
    const char* next;
    T* ring;
    int64 step;
    int32 left;    // elements from this thread's next one on, itself included
    uint32 place;  // where that goes in its ring
    bool aligned;
    T x[N];

    // Brings the next chunk, or those elements that are there: in place of the others the last one. Elements that are not aligned
    // are brought when they are put.
    __device__ __forceinline__ void load()
    {
        if (left <= 0 || !aligned) return;
#pragma unroll
        for (uint32 i = 0; i < N; ++i) x[i] = load_aligned<T>(next + int64(min(i * lanes, uint32(left - 1))) * int32(step));
    }
    __device__ __forceinline__ void put()
    {
        const auto at = [&](uint32 i) { return place + i * lanes < in_ring ? place + i * lanes : place + i * lanes - in_ring; };
        if (left > 0) {
            if (aligned)
#pragma unroll
                for (uint32 i = 0; i < N; ++i) ring[at(i)] = x[i];
            else
#pragma unroll 1
                for (uint32 i = 0; i < N && int32(i * lanes) < left; ++i) ring[at(i)] = load_element<T>(next + i * lanes * step);
        }
        next += of_a_chunk * step;
        left -= of_a_chunk;
        place += of_a_chunk;
        if (place >= in_ring) place -= in_ring;
    }
};

// Leaves from one to before another.
struct LeavesLeft {
    uint32 first, end;
};

// Folds and publishes the leaves that lie in the runs of block `number` among those of a row, each warp those of one run. All
// threads of the block call it, after wait_for_prerequisites. Returns which leaves are left to the warp: the one that its run shares
// with the next run, or that is the row's last and not whole, in the block that has the run's end. Where the length comes from the
// device, which is rare, all of them are.
template <class Op, class S>
__device__ __forceinline__ LeavesLeft
fold_staged(const S& source, const StagedCut& cut, uint32 number, StagedRings<Op, true>& shared, Slot<typename Op::Accumulator>* slots)
{
    using T = typename Op::Input;
    using Elements = StagedElements<Op>;
    constexpr uint32 leaf = leaf_elements<T>, of_a_step = Elements::of_a_step;
    const ReducedAxes& axes = source.problem.reduced;
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    const auto runs = StagedRuns::of<leaf>(axes, cut, sizeof(T), number);
    const uint64 length = axes.size[0];
    const auto number_of = [&](uint32 run) { return runs.first + run * runs.inside; };
    const int32 columns = int32(min(length - runs.from, uint64(cut.leaves + 1) * leaf));

    const uint32 mine = threadIdx.x % cut.beside, column = threadIdx.x / cut.beside;
    Elements e;
    e.step = axes.stride[0];
    e.left = column < lanes && mine < runs.count ? columns - int32(column) : 0;
    e.place = uint32(number_of(mine) * length + runs.from) % of_a_step + column;
    e.ring = shared.rings[mine].elements;
    e.aligned = are_aligned<Op>(source.problem);
    e.next = source.begin + axes.offset_along(axes.strides(false), number_of(mine), 1, uint32(axes.count)) +
             int64(runs.from + column) * e.step;

    const uint64 begin = number_of(warp) * length, first_step = (begin + runs.from) / of_a_step;
    const uint64 first = (begin + runs.from + leaf - 1) / leaf, past = (begin + length) / leaf;
    uint32 wait = uint32(first * steps - first_step);  // steps until the warp's first whole leaf begins
    uint32 ours = 0;                                   // steps of its leaves
    if (warp < runs.count && past > first) ours = uint32(min(past - first, uint64(cut.leaves))) * steps;
    const bool has_rest = runs.is_last && warp < runs.count && (begin + length) % leaf != 0;
    const LeavesLeft left{uint32(past), uint32(past) + has_rest};
    if (source.problem.device_length != nullptr)
        return ours == 0 ? left : LeavesLeft{uint32(first), uint32(first) + ours / steps + has_rest};
    LaneCounter<Op, log2_of(steps)> counter;
    counter.clear();
    const uint32 chunks = (uint32(columns) + of_a_step - 1) / Elements::of_a_chunk + 1;
    e.load();
    e.put();
    __syncthreads();
    uint32 slot = 0;  // of the ring
#pragma unroll 1
    for (uint32 chunk = 0; chunk < chunks; ++chunk) {
        e.load();
#pragma unroll 1
        for (uint32 s = 0; s < staged_steps; ++s) {
            const uint32 done = chunk * staged_steps + s - wait;
            if (done < ours) {
                const uint4 v[1] = {shared.rings[warp].vectors[slot * lanes + lane]};
                const uint64 index = first * leaf + uint64(done) * of_a_step;
                counter.push(fold_vectors<Op, 1>(with_pivot_from_here(source), v, index, lane), done % steps);
                if (done % steps == steps - 1) {
                    const auto value = warp_fold<Op>(counter.result());
                    if (lane == 0) slots[first + done / steps].publish(value);
                }
            }
            slot = slot + 1 == Elements::Rings::steps_in_ring ? 0 : slot + 1;
        }
        __syncthreads();
        e.put();
        __syncthreads();
    }
    return left;
}

// Many rows of any length, each by a warp or some warps of a block: one launch, no workspace.
#pragma once
#include "block.cuh"
#include "shape.cuh"

// A leaf at a 16-byte boundary, the lane's part, of which `bytes` bytes exist, whole vectors: half of it at a time, for the
// vectors of two arrays take the registers of a whole one's.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator
lane_fold_in_halves(const S& source, const char* leaf, uint64 first, uint32 bytes, uint32 lane)
{
    constexpr uint32 at_once = steps / 2, V = vector_elements<typename Op::Input>;
    typename Op::Accumulator half, value;
#pragma unroll 1
    for (uint32 round = 0;; ++round) {
        const uint32 before = round * at_once * lanes + lane;  // vectors
        const auto* address = reinterpret_cast<const uint4*>(leaf) + before;
        uint4 v[at_once];
        if (bytes == leaf_bytes) {
#pragma unroll
            for (uint32 t = 0; t < at_once; ++t) v[t] = load_streaming(address + lanes * t);
            value = fold_vectors<Op, at_once>(source, v, first + round * at_once * lanes * V, lane);
        } else {
            const auto present = [=](uint32 t) { return (before + t * lanes) * vector_bytes < bytes; };
            typename Op::Accumulator a[at_once];
#pragma unroll
            for (uint32 t = 0; t < at_once; ++t) v[t] = load_streaming_if(present(t), address + lanes * t);
#pragma unroll
            for (uint32 t = 0; t < at_once; ++t)
                a[t] = fold_if<Op>(present(t), source, v[t], first + (before + t * lanes) * V);
            value = fold_array<Op, at_once>(a);
        }
        if (round == 1) return combine_neighbours<Op>(half, value);
        half = value;
    }
}

// One leaf of a row by one warp; every lane holds the result. `whole` says that its vectors are, if it is, and `placed` that
// its seconds are.
template <class Op, class Rows, class S>
__device__ __forceinline__ typename Op::Accumulator
row_leaf_fold(const S& source, uint64 leaf, bool whole, bool placed, uint32 lane)
{
    using T = typename Op::Input;
    constexpr uint32 V = vector_elements<T>;
    const uint64 first = leaf * leaf_elements<T>;
    if (first >= source.row.length) return Op::identity();
    const auto index_of = [&](uint32 t) { return first + (t * lanes + lane) * V; };
    typename Op::Accumulator a[steps];
    if (Rows::can_be_whole && whole && placed) {
        const uint32 bytes = uint32(min((source.row.length - first) * sizeof(T), uint64(leaf_bytes)));
        const char* begin = source.begin + first * sizeof(T);
        if constexpr (has_second<Op>) return warp_fold<Op>(lane_fold_in_halves<Op>(source, begin, first, bytes, lane));
        else return warp_fold<Op>(lane_fold_aligned<Op>(source, begin, first, bytes, lane));
    }
    if (placed && Rows::inside(source, first, min(source.row.length - first, uint64(leaf_elements<T>)))) {
        constexpr uint32 at_once = steps / 4;
#pragma unroll
        for (uint32 base = 0; base < steps; base += at_once) {
            uint4 v[at_once];
#pragma unroll
            for (uint32 t = 0; t < at_once; ++t)
                v[t] = Rows::fetch_inside(source, index_of(base + t), present_bytes<Op>(source, index_of(base + t)));
            const auto ready = with_pivot_from_here(source);
#pragma unroll
            for (uint32 t = 0; t < at_once; ++t) {
                const uint64 index = index_of(base + t);
                a[base + t] = fold_present<Op>(ready, v[t], index, present_bytes<Op>(source, index));
            }
            __syncwarp();  // orders nothing: it keeps the compiler from holding all steps in registers at once
        }
        return warp_fold<Op>(fold_array<Op, steps>(a));
    }
    if constexpr (Rows::can_be_whole || has_second<Op>) {
        const auto anyhow = with_seconds_anyhow<Op>(source);
        LaneCounter<Op, log2_of(steps)> counter;
#pragma unroll 1
        for (uint32 t = 0; t < steps; ++t) {
            const int32 bytes = present_bytes<Op>(source, index_of(t));
            counter.push(fold_present<Op>(anyhow, Rows::fetch_edge(anyhow, index_of(t), bytes), index_of(t), bytes), t);
        }
        a[0] = counter.digits[log2_of(steps)];
    }
    return warp_fold<Op>(a[0]);
}

// Rows of any length, W warps each, several rows a block.
template <class Op, class Rows, int Warps, int W>
__device__ __forceinline__ void reduce_rows(const ShapedProblem& problem)
{
    constexpr int groups = Warps / W;
    __shared__ typename Op::Accumulator slots[2][Warps];
    launch_dependents();
    prefetch_rows<Op, Rows, Warps>(problem, uint64(blockIdx.x) * groups, groups);
    wait_for_prerequisites();
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes, group = warp / W, member = warp % W;
    const uint64 row = uint64(blockIdx.x) * groups + group;
    const ShapedSource<Op, typename Rows::Kept> source(problem, min(row, problem.rows - 1));
    const bool whole = Rows::whole(problem, source.row.length * sizeof(typename Op::Input));
    const bool placed = source.seconds_are_placed();
    const uint32 tiles = tile_count<Op, W>(source);  // the same for every row of the block: barriers may be inside
    WarpCounter<Op> counter;
#pragma unroll 1
    for (uint32 i = 0; i < tiles; ++i) {
        auto value = row_leaf_fold<Op, Rows>(source, uint64(i) * W + member, whole, placed, lane);
        if constexpr (W > 1) {
            if (lane == 0) slots[i & 1u][warp] = value;
            __syncthreads();
            if (member == 0) value = warp_fold<Op, W>(slots[i & 1u][group * W + lane % W]);
        }
        if (member == 0) counter.push(value, lane);
    }
    if (member != 0 || row >= problem.rows) return;
    const auto root = counter.result();
    if (lane == 0) store_result<Op>(problem, source.row, row, root);
}

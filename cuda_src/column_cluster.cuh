// Where the blocks of a cluster that share columns meet: each brings its part of every column to the first one.
#pragma once
#include "cluster.cuh"
#include "column_meeting.cuh"

// The blocks of a cluster, two to eight, have one part of the same columns each, in the order of their ranks.
// column_tiles.shared_bytes counts what they share.
template <class Op, int Columns> struct ColumnCluster {
    using A = typename Op::Accumulator;
    static constexpr uint32 most = 8;
    struct Shared {
        uint64 barrier;
        A brought[most][Columns];
    };
    Shared& shared;
    uint32 blocks;

    // Every thread calls it once, at entry, in a block that has so many columns.
    __device__ __forceinline__ void enter(int columns) const
    {
        cluster_enter(shared.barrier, (blocks - 1) * columns * sizeof(A));
    }

    // Every thread calls it once, with its part of a column if it has one. Returns whether the thread now has the whole: those of
    // the first block do.
    __device__ __forceinline__ bool meet(A& part, bool has_column, int column) const
    {
#if __CUDA_ARCH__ >= 900
        const uint32 rank = cluster_rank();
        if (rank != 0) {
            cluster_wait();  // every block of the cluster has started
            if (has_column) store_to_rank(&shared.brought[rank][column], 0, part, &shared.barrier);
            return false;
        }
        if (!all_agree(has_column)) return false;
        cluster_await(shared.barrier);
        if (has_column) part = whole(part, column);
#endif
        return has_column;
    }

private:
    // Parts may have elements that interleave.
    __device__ __forceinline__ A whole(A first, int column) const
    {
        A a[most];
        a[0] = first;
#pragma unroll
        for (uint32 k = 1; k < most; ++k) a[k] = k < blocks ? shared.brought[k][column] : Op::identity();
        return fold_array<Neighbours<Op, false>, most>(a);
    }
};

// Where the blocks of a launch run: what cluster and cooperative attributes do, seen from inside the kernel.
#pragma once
#include "base/ptx.cuh"

struct Where {
    uint32 rank;            // of the block in its cluster
    uint32 size;            // of the cluster, in blocks
    uint32 multiprocessor;
    uint32 arrived;         // blocks of the grid that this one has seen at the grid's barrier; 0 without it
};

__device__ __forceinline__ uint32 multiprocessor()
{
    uint32 index;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(index));
    return index;
}

__device__ __forceinline__ Where here()
{
    Where where = {0, 1, multiprocessor(), 0};
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(where.rank));
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(where.size));
#endif
    return where;
}

// One Where a block.
extern "C" __global__ void study_where(Where* out)
{
    if (threadIdx.x == 0) out[blockIdx.x] = here();
}

// The same after a grid barrier, which ends only if all blocks are resident at once. *arrived is 0 at first.
extern "C" __global__ void study_meet(Where* out, uint32* arrived)
{
    if (threadIdx.x != 0) return;
    Where where = here();
    atomic_add(arrived, 1);
    while ((where.arrived = load_acquire(arrived)) < gridDim.x) {}
    out[blockIdx.x] = where;
}

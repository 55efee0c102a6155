// v7 for max, by compare-and-swap: one loop for each cluster.
// Changes: CLUSTER times fewer loops than v6_block_atomic_max_cas.
// Costs: the cluster's, as for the sum; so few loops are left that it no longer matters how they are made.
// Next: nothing to mend: a max does not depend on the order, so its bits are already the same from every launch.
// The plan sets *total to all ones, a NaN, which says that nothing has come yet.
#ifndef LOADS
#define LOADS 1
#endif
#ifndef CLUSTER
#define CLUSTER 16
#endif
__device__ float warp_max(float best)
{
    for (unsigned s = 16; s > 0; s /= 2) best = fmaxf(best, __shfl_down_sync(0xffffffffu, best, s));
    return best;
}

// Swaps until this value, or a greater one, is stored: each try is a round trip to the L2.
__device__ void atomic_max(float* best, float value)
{
    int* const address = (int*)best;
    int seen;
    asm volatile("ld.relaxed.gpu.s32 %0, [%1];" : "=r"(seen) : "l"(address));
    while (!(__int_as_float(seen) >= value)) {
        const int found = atomicCAS(address, seen, __float_as_int(value));
        if (found == seen) break;
        seen = found;
    }
}

extern "C" __global__ void v7_cluster_max_cas(const float* x, float* total, size_t n)
{
    __shared__ float maxima[32], blocks[CLUSTER];
    __cluster_barrier_arrive();
    const unsigned t = threadIdx.x, rank = __clusterRelativeBlockRank();
    const float nothing = __int_as_float(0xff800000);  // -infinity
    const size_t first = blockIdx.x * (LOADS * size_t(blockDim.x)) + t;
    const float4* const vectors = (const float4*)x;
    float best = blockIdx.x == 0 && t < n % 4 ? x[n / 4 * 4 + t] : nothing;
#pragma unroll
    for (unsigned k = 0; k < LOADS; ++k) {
        const size_t i = first + k * blockDim.x;
        if (i >= n / 4) break;
        const float4 v = vectors[i];
        best = fmaxf(best, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
    }
    best = warp_max(best);
    if (t % 32 == 0) maxima[t / 32] = best;
    __syncthreads();
    if (t < 32) best = warp_max(t < blockDim.x / 32 ? maxima[t] : nothing);
    __cluster_barrier_wait();
    if (t == 0) *(float*)__cluster_map_shared_rank(&blocks[rank], 0) = best;
    __cluster_barrier_arrive();
    if (rank != 0) return;
    __cluster_barrier_wait();
    if (t >= 32) return;
    best = warp_max(t < CLUSTER ? blocks[t] : nothing);
    if (t == 0) atomic_max(total, best);
}

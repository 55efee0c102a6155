// v7 for max, by integers: one atomic for each cluster.
// Changes: CLUSTER times fewer atomics than v6_block_atomic_max_ordered.
// Costs: the cluster's, as for the sum.
// Next: nothing to mend: a max does not depend on the order, so its bits are already the same from every launch.
// The plan sets *total to all ones, below everything in this order.
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

// The bits of floats >= 0 are ordered as signed integers, those of floats < 0 the other way round as unsigned ones.
__device__ void atomic_max(float* best, float value)
{
    const int bits = __float_as_int(value);
    if (bits >= 0) atomicMax((int*)best, bits);
    else atomicMin((unsigned*)best, (unsigned)bits);
}

extern "C" __global__ void v7_cluster_max_ordered(const float* x, float* total, size_t n)
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

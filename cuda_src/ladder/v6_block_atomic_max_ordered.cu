// v6 for max, by integers: one atomic for each block.
// Changes: the block folds with fmaxf, so the trick with the bits is needed once a block instead of once an element.
// Costs: those of the sum: n / 1024 atomics. The identity is -infinity, not 0.
// Next: a cluster's blocks meet first (v7_cluster_max_ordered).
// The plan sets *total to all ones, below everything in this order.
#ifndef LOADS
#define LOADS 1
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

extern "C" __global__ void v6_block_atomic_max_ordered(const float* x, float* total, size_t n)
{
    __shared__ float maxima[32];
    const unsigned t = threadIdx.x;
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
    if (t >= 32) return;
    best = warp_max(t < blockDim.x / 32 ? maxima[t] : nothing);
    if (t == 0) atomic_max(total, best);
}

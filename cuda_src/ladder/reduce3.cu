// reduce3: the first addition happens on the way into shared memory.
// Changes: half as many blocks for the same elements.
// Costs: barriers and loop instructions even when only one warp is still active.
// Next: the last warp without barriers (reduce4).
extern "C" __global__ void reduce3(const float* x, float* partials, size_t n)
{
    __shared__ float sums[1024];
    const unsigned t = threadIdx.x;
    const size_t i = blockIdx.x * (2 * size_t(blockDim.x)) + t;
    sums[t] = (i < n ? x[i] : 0.0f) + (i + blockDim.x < n ? x[i + blockDim.x] : 0.0f);
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
        if (t < s) sums[t] += sums[t + s];
        __syncthreads();
    }
    if (t == 0) partials[blockIdx.x] = sums[0];
}

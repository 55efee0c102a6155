// reduce0: a tree over the block in shared memory, neighbours first; each launch is a barrier of the whole grid.
// Changes: nothing yet. Costs: the modulo, a slow instruction, and warps in which fewer and fewer lanes are active.
// Next: consecutive threads do the work (reduce1).
extern "C" __global__ void reduce0(const float* x, float* partials, size_t n)
{
    __shared__ float sums[1024];
    const unsigned t = threadIdx.x;
    const size_t i = blockIdx.x * size_t(blockDim.x) + t;
    sums[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned s = 1; s < blockDim.x; s *= 2) {
        if (t % (2 * s) == 0) sums[t] += sums[t + s];
        __syncthreads();
    }
    if (t == 0) partials[blockIdx.x] = sums[0];
}

// v2: the first half of the threads adds the second half.
// Changes: the active threads are neighbours, so warps are active as a whole or not at all, until one warp is left.
// Costs: half of the threads are idle from the first step on, after one load each.
// Next: more loads for each thread, so that the tree is paid for less often (v3).
extern "C" __global__ void v2_shared_sequential(const float* x, float* partials, size_t n)
{
    __shared__ float sums[1024];
    const unsigned t = threadIdx.x;
    const size_t i = blockIdx.x * size_t(blockDim.x) + t;
    sums[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
        if (t < s) sums[t] += sums[t + s];
        __syncthreads();
    }
    if (t == 0) partials[blockIdx.x] = sums[0];
}

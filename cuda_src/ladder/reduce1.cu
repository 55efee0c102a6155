// reduce1: the same pairs, but thread t takes the t-th pair.
// Changes: no modulo, and the active threads fill whole warps.
// Costs: lanes access words 2 s apart, so that with growing s they meet in 16, 8, 4, ... banks: conflicts.
// Next: pairs half a block apart (reduce2).
extern "C" __global__ void reduce1(const float* x, float* partials, size_t n)
{
    __shared__ float sums[1024];
    const unsigned t = threadIdx.x;
    const size_t i = blockIdx.x * size_t(blockDim.x) + t;
    sums[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned s = 1; s < blockDim.x; s *= 2) {
        const unsigned left = 2 * s * t;
        if (left < blockDim.x) sums[left] += sums[left + s];
        __syncthreads();
    }
    if (t == 0) partials[blockIdx.x] = sums[0];
}

// v1: a block adds up its elements in shared memory, neighbours first, and leaves one partial.
// Changes: no atomics; the same kernel runs on the partials until one is left.
// Costs: `t % (2 * s) == 0` keeps every second, fourth, ... thread: all warps stay busy with few active lanes.
// Next: keep whole warps at work instead (v2).
extern "C" __global__ void v1_shared_interleaved(const float* x, float* partials, size_t n)
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

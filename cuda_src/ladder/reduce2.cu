// reduce2: sequential addressing: the first half of the block adds the second half.
// Changes: lanes read neighbouring words: no bank conflicts.
// Costs: half of the threads only load and never add.
// Next: a first addition on the way into shared memory (reduce3).
extern "C" __global__ void reduce2(const float* x, float* partials, size_t n)
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

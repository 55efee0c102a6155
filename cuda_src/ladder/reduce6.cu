// reduce6: many elements for each thread: a grid of limited size strides over the input.
// Changes: the tree is paid for once a thread instead of once every two elements, and few partials are left.
// Costs: 1 + log2(block / 32) barriers at the end of each block.
// Next: within the warps first (reduce7).
#ifndef BLOCK
#define BLOCK 256
#endif
extern "C" __global__ void reduce6(const float* x, float* partials, size_t n)
{
    __shared__ float sums[BLOCK];
    const unsigned t = threadIdx.x;
    const size_t stride = 2 * size_t(BLOCK) * gridDim.x;
    float sum = 0.0f;
    for (size_t i = blockIdx.x * (2 * size_t(BLOCK)) + t; i < n; i += stride) {
        sum += x[i];
        if (i + BLOCK < n) sum += x[i + BLOCK];
    }
    sums[t] = sum;
    __syncthreads();
#pragma unroll
    for (unsigned s = BLOCK / 2; s >= 32; s /= 2) {
        if (t < s) sums[t] += sums[t + s];
        __syncthreads();
    }
    if (t >= 32) return;
    sum = sums[t];
#pragma unroll
    for (unsigned s = 16; s > 0; s /= 2) sum += __shfl_down_sync(0xffffffffu, sum, s);
    if (t == 0) partials[blockIdx.x] = sum;
}

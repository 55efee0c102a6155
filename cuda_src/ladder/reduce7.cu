// reduce7: the warps reduce themselves first, and then meet once.
// Changes: one barrier for each block, whatever its size.
// Costs: the partials and the second launch, and 4-byte loads.
// Next: leave the additions to the tensor cores (tcu_reduce16); or 16-byte loads and atomics (v6_block_atomic).
#ifndef BLOCK
#define BLOCK 256
#endif
__device__ float warp_sum(float sum)
{
    for (unsigned s = 16; s > 0; s /= 2) sum += __shfl_down_sync(0xffffffffu, sum, s);
    return sum;
}

extern "C" __global__ void reduce7(const float* x, float* partials, size_t n)
{
    __shared__ float sums[BLOCK / 32];
    const unsigned t = threadIdx.x;
    const size_t stride = 2 * size_t(BLOCK) * gridDim.x;
    float sum = 0.0f;
    for (size_t i = blockIdx.x * (2 * size_t(BLOCK)) + t; i < n; i += stride) {
        sum += x[i];
        if (i + BLOCK < n) sum += x[i + BLOCK];
    }
    sum = warp_sum(sum);
    if (t % 32 == 0) sums[t / 32] = sum;
    __syncthreads();
    if (t >= 32) return;
    sum = warp_sum(t < BLOCK / 32 ? sums[t] : 0.0f);
    if (t == 0) partials[blockIdx.x] = sum;
}

// reduce5: the block size is a compile-time constant, so that all loops are unrolled.
// Changes: no loop instructions are left.
// Costs: a compilation for each block size; and a thread still loads only two elements.
// Next: more of them (reduce6).
#ifndef BLOCK
#define BLOCK 256
#endif
extern "C" __global__ void reduce5(const float* x, float* partials, size_t n)
{
    __shared__ float sums[BLOCK];
    const unsigned t = threadIdx.x;
    const size_t i = blockIdx.x * (2 * size_t(BLOCK)) + t;
    sums[t] = (i < n ? x[i] : 0.0f) + (i + BLOCK < n ? x[i + BLOCK] : 0.0f);
    __syncthreads();
#pragma unroll
    for (unsigned s = BLOCK / 2; s >= 32; s /= 2) {
        if (t < s) sums[t] += sums[t + s];
        __syncthreads();
    }
    if (t >= 32) return;
    float sum = sums[t];
#pragma unroll
    for (unsigned s = 16; s > 0; s /= 2) sum += __shfl_down_sync(0xffffffffu, sum, s);
    if (t == 0) partials[blockIdx.x] = sum;
}

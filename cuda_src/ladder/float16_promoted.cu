// float16_promoted: float16 elements, added up in float32.
// Changes: each element is widened when it is loaded; partials and sum are float32.
// Costs: a conversion for each element, which the memory hides.
// Next: nothing is left to mend; float16_scaled is for sums that must stay in float16 on the way.
__device__ float warp_sum(float sum)
{
    for (unsigned s = 16; s > 0; s /= 2) sum += __shfl_down_sync(0xffffffffu, sum, s);
    return sum;
}

// The sum over the block. All threads call it; thread 0 holds the result.
__device__ float block_sum(float sum)
{
    __shared__ float sums[32];
    const unsigned t = threadIdx.x;
    sum = warp_sum(sum);
    if (t % 32 == 0) sums[t / 32] = sum;
    __syncthreads();
    return t < 32 ? warp_sum(t < blockDim.x / 32 ? sums[t] : 0.0f) : 0.0f;
}

extern "C" __global__ void float16_promoted_first(const unsigned short* x, float* partials, size_t n)
{
    float sum = 0.0f;
    const size_t stride = size_t(blockDim.x) * gridDim.x;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += stride) {
        float wide;
        asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x[i]));
        sum += wide;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

extern "C" __global__ void float16_promoted_second(const float* partials, float* total, size_t count)
{
    float sum = 0.0f;
    for (size_t i = threadIdx.x; i < count; i += blockDim.x) sum += partials[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *total = sum;
}

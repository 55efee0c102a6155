// shared_shuffle: shuffles on both levels: within each warp, and over the warps' sums.
// Changes: one barrier for each block, and one word of shared memory for each warp.
// Costs: an atomic for each block; their order, and so the last bits of the sum, are left to chance.
// Next: each partial in a place of its own, added in the same order each time (two_pass).
// The plan clears *total.
#ifdef HALF  // float16 elements; they are added up in float32
typedef unsigned short Element;
__device__ float widen(Element h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
#else
typedef float Element;
__device__ float widen(Element f) { return f; }
#endif
__device__ float warp_sum(float sum)
{
    for (unsigned s = 16; s > 0; s /= 2) sum += __shfl_down_sync(0xffffffffu, sum, s);
    return sum;
}

extern "C" __global__ void shared_shuffle(const Element* x, float* total, size_t n)
{
    __shared__ float sums[32];
    const unsigned t = threadIdx.x;
    const size_t i = blockIdx.x * size_t(blockDim.x) + t;
    float sum = i < n ? widen(x[i]) : 0.0f;
    sum = warp_sum(sum);
    if (t % 32 == 0) sums[t / 32] = sum;
    __syncthreads();
    if (t >= 32) return;
    sum = warp_sum(t < blockDim.x / 32 ? sums[t] : 0.0f);
    if (t == 0) atomicAdd(total, sum);
}

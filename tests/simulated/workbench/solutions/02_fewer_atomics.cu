// A solution of exercise 02: One atomic a warp.
__device__ float warp_sum(float v)
{
    for (unsigned k = 16; k > 0; k /= 2) v += __shfl_down_sync(0xffffffffu, v, k);
    return v;
}

__global__ void sum(const float* x, float* result, unsigned n)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const float v = warp_sum(i < n ? x[i] : 0.0f);
    if (threadIdx.x % 32 == 0) atomicAdd(result, v);
}

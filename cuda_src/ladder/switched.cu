// switched: three versions behind one name; the environment variable LOWLEVEL_REDUCE_RUNG chooses at run time.
// Changes: v1 is a tree in shared memory, v2 adds by shuffles, v3 loads 16 bytes at a time as well.
// Costs: a compilation for each version; and a result whose bits depend on an environment variable.
// Next: one tree for all versions, so that switching makes no difference (v8_one_tree).
#ifndef VERSION
#define VERSION 3
#endif
extern "C" __global__ void switched(const float* x, float* partials, size_t n)
{
    __shared__ float sums[1024];
    const unsigned t = threadIdx.x;
    const size_t i = blockIdx.x * size_t(blockDim.x) + t;
#if VERSION == 3
    const float4 v = i < n / 4 ? ((const float4*)x)[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float sum = (v.x + v.y) + (v.z + v.w);
    if (blockIdx.x == 0 && t < n % 4) sum += x[n / 4 * 4 + t];
#else
    float sum = i < n ? x[i] : 0.0f;
#endif
#if VERSION == 1
    sums[t] = sum;
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
        if (t < s) sums[t] += sums[t + s];
        __syncthreads();
    }
    if (t == 0) partials[blockIdx.x] = sums[0];
#else
    for (unsigned s = 16; s > 0; s /= 2) sum += __shfl_down_sync(0xffffffffu, sum, s);
    if (t % 32 == 0) sums[t / 32] = sum;
    __syncthreads();
    if (t >= 32) return;
    sum = t < blockDim.x / 32 ? sums[t] : 0.0f;
    for (unsigned s = 16; s > 0; s /= 2) sum += __shfl_down_sync(0xffffffffu, sum, s);
    if (t == 0) partials[blockIdx.x] = sum;
#endif
}

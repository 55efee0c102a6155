// v5: lanes pass their sums on in registers.
// Changes: a warp reduces itself by shuffles, and the warps meet in shared memory once: one barrier instead of nine.
// Costs: a partial for each block, which is written and read again, and launches to add the partials up.
// Next: no partials (v6).
// LOADS is how many 16-byte loads a thread has in flight at once: 1 as the source prints it.
#ifndef BLOCK
#define BLOCK 256
#define LOADS 1
#endif
__device__ float warp_sum(float sum)
{
    for (unsigned s = 16; s > 0; s /= 2) sum += __shfl_down_sync(0xffffffffu, sum, s);
    return sum;
}

// 512 resident threads on an SM are enough, and leave registers for the loads in flight.
extern "C" __global__ void __launch_bounds__(BLOCK, 1 + 511 / BLOCK)
v5_warp_shuffle(const float* x, float* partials, size_t n)
{
    __shared__ float sums[32];
    const unsigned t = threadIdx.x;
    const size_t first = blockIdx.x * size_t(LOADS * BLOCK) + t, count = n / 4;
    const float4* const vectors = (const float4*)x;
    float4 v[LOADS];
    float sum = blockIdx.x == 0 && t < n % 4 ? x[4 * count + t] : 0.0f;
    if (first + (LOADS - 1) * BLOCK < count) {  // all in flight before the first is added
#pragma unroll
        for (unsigned k = 0; k < LOADS; ++k) v[k] = vectors[first + k * BLOCK];
#pragma unroll
        for (unsigned k = 0; k < LOADS; ++k) sum += (v[k].x + v[k].y) + (v[k].z + v[k].w);
    } else {
#pragma unroll 1
        for (size_t i = first; i < count; i += BLOCK)
            sum += (vectors[i].x + vectors[i].y) + (vectors[i].z + vectors[i].w);
    }
    sum = warp_sum(sum);
    if (t % 32 == 0) sums[t / 32] = sum;
    __syncthreads();
    if (t >= 32) return;
    sum = warp_sum(t < BLOCK / 32 ? sums[t] : 0.0f);
    if (t == 0) partials[blockIdx.x] = sum;
}

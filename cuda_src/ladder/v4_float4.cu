// v4: four elements in one 16-byte load.
// Changes: one request of 16 sectors a warp where v3 has four of 4: a quarter of the load instructions and addresses.
// Costs: the tree still has a barrier for each step. The last n % 4 elements need a place of their own.
// Next: a tree without shared memory (v5).
// LOADS is how many such loads a thread has in flight at once: 1 as the source prints it; 8 fills an H200.
#ifndef BLOCK
#define BLOCK 256
#define LOADS 1
#endif
// 512 resident threads on an SM are enough, and leave registers for the loads in flight.
extern "C" __global__ void __launch_bounds__(BLOCK, 1 + 511 / BLOCK)
v4_float4(const float* x, float* partials, size_t n)
{
    __shared__ float sums[1024];
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
    sums[t] = sum;
    __syncthreads();
    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (t < s) sums[t] += sums[t + s];
        __syncthreads();
    }
    if (t == 0) partials[blockIdx.x] = sums[0];
}

// inner_axis: sums along the last axis of a matrix, one block a row.
// Changes: a row's elements lie side by side, so the lanes of a warp read neighbouring ones.
// Costs: short rows leave most of a block idle, and a few long ones most of the GPU.
// Next: the other axis needs another kernel (outer_axis).
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

extern "C" __global__ void inner_axis(const float* x, float* sums, unsigned rows, unsigned columns)
{
    const float* const row = x + blockIdx.x * size_t(columns);
    float sum = 0.0f;
    for (unsigned c = threadIdx.x; c < columns; c += blockDim.x) sum += row[c];
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

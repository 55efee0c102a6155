// one_tile: sums along the last axis, whose block adapts to the row: a thread for each element, where that is possible.
// Changes: a row of up to 512 elements is one tile: one load a thread and no loop; longer ones go by tiles of 512.
// Costs: the block is a power of two, so up to half of its threads may have nothing to load.
// Next: short rows by less than a block each, as the library does.
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

extern "C" __global__ void one_tile(const float* x, float* sums, unsigned rows, unsigned columns)
{
    const float* const row = x + blockIdx.x * size_t(columns);
    float sum = threadIdx.x < columns ? row[threadIdx.x] : 0.0f;
    if (columns > blockDim.x)  // the same for the whole grid, so no branch diverges
        for (unsigned c = threadIdx.x + blockDim.x; c < columns; c += blockDim.x) sum += row[c];
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

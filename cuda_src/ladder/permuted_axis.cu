// permuted_axis: sums along the first axis by way of a transpose, which makes that axis the last one.
// Changes: the kernel for rows serves all axes; the transpose goes through a padded tile, so both its sides are whole.
// Costs: the matrix is written and read once more: three times the traffic of outer_axis.
// Next: each axis has a kernel of its own (outer_axis), and no copy is made.
extern "C" __global__ void permuted_axis_first(const float* x, float* moved, unsigned rows, unsigned columns)
{
    __shared__ float tile[32][33];
    const unsigned warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const size_t row = blockIdx.y * size_t(32), column = blockIdx.x * size_t(32);
    for (unsigned k = warp; k < 32; k += warps)
        if (row + k < rows && column + lane < columns) tile[k][lane] = x[(row + k) * columns + column + lane];
    __syncthreads();
    for (unsigned k = warp; k < 32; k += warps)
        if (column + k < columns && row + lane < rows) moved[(column + k) * rows + row + lane] = tile[lane][k];
}

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

extern "C" __global__ void permuted_axis_second(const float* moved, float* sums, unsigned columns, unsigned rows)
{
    const float* const row = moved + blockIdx.x * size_t(rows);
    float sum = 0.0f;
    for (unsigned r = threadIdx.x; r < rows; r += blockDim.x) sum += row[r];
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

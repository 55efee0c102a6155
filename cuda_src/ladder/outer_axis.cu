// outer_axis: sums along the first axis of a matrix: each lane has a column, and the warps of a block share the rows.
// Changes: lanes read neighbours although a column's elements lie far apart; no shuffles: each lane has its own sum.
// Costs: a block for every 32 columns: a matrix with few columns leaves most of the GPU idle.
// Next: rows shared among blocks too.
extern "C" __global__ void outer_axis(const float* x, float* sums, unsigned rows, unsigned columns)
{
    __shared__ float tile[1024];
    const unsigned warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const size_t c = blockIdx.x * size_t(32) + lane;
    float sum = 0.0f;
    if (c < columns)
        for (size_t r = warp; r < rows; r += warps) sum += x[r * columns + c];
    tile[threadIdx.x] = sum;
    __syncthreads();
    if (warp != 0 || c >= columns) return;
    for (unsigned w = 1; w < warps; ++w) sum += tile[32 * w + lane];
    sums[c] = sum;
}

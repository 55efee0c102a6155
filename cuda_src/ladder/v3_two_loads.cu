// v3: each thread adds two elements before the tree.
// Changes: half as many blocks and trees, and two loads that can be in flight at once.
// Costs: still one request to memory, of 128 bytes, for each element that a thread of the warp loads.
// Next: four loads for each thread (v3_four_loads).
extern "C" __global__ void v3_two_loads(const float* x, float* partials, size_t n)
{
    __shared__ float sums[1024];
    const unsigned t = threadIdx.x;
    const size_t first = blockIdx.x * (2 * size_t(blockDim.x)) + t;
    float sum = 0.0f;
#pragma unroll
    for (unsigned k = 0; k < 2; ++k) {
        const size_t i = first + k * blockDim.x;
        if (i < n) sum += x[i];
    }
    sums[t] = sum;
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
        if (t < s) sums[t] += sums[t + s];
        __syncthreads();
    }
    if (t == 0) partials[blockIdx.x] = sums[0];
}

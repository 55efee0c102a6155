// shared: a block adds up its elements, two for each thread, in shared memory.
// Changes: no atomics; passes over ever fewer partials, back and forth between two buffers, until one value is left.
// Costs: a barrier for each step of the tree, and a launch for each pass.
// Next: shuffles for the steps within a warp (shuffle).
extern "C" __global__ void shared(const float* x, float* partials, size_t n)
{
    __shared__ float sums[1024];
    const unsigned t = threadIdx.x;
    const size_t i = blockIdx.x * (2 * size_t(blockDim.x)) + t;
    sums[t] = (i < n ? x[i] : 0.0f) + (i + blockDim.x < n ? x[i + blockDim.x] : 0.0f);
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
        if (t < s) sums[t] += sums[t + s];
        __syncthreads();
    }
    if (t == 0) partials[blockIdx.x] = sums[0];
}

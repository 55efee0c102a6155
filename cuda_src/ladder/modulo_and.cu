// modulo_and: the tree of reduce0 with a mask in place of the modulo, for which 2 s is a power of two.
// Changes: one instruction where a division by a variable takes about twenty.
// Costs: the same idle lanes in every warp: they, not the modulo, hold reduce0 back where memory sets the time.
// Next: consecutive threads do the work (reduce1).
extern "C" __global__ void modulo_and(const float* x, float* partials, size_t n)
{
    __shared__ float sums[1024];
    const unsigned t = threadIdx.x;
    const size_t i = blockIdx.x * size_t(blockDim.x) + t;
    sums[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned s = 1; s < blockDim.x; s *= 2) {
        if ((t & (2 * s - 1)) == 0) sums[t] += sums[t + s];
        __syncthreads();
    }
    if (t == 0) partials[blockIdx.x] = sums[0];
}

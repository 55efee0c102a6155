// exercise 04: Whole warps at work
//
// predict: In the first step every second thread adds. How many warps of the block have an idle
//   lane?
//   a) all of them
//   b) half of them
//   c) one
// answer: ?
//
// task: Let the first threads add, so that whole warps work or rest: at most 140 divergent
//   branches.

__global__ void sum(const float* x, float* result, unsigned n)
{
    __shared__ float s[128];
    const unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned k = 1; k < blockDim.x; k *= 2) {
        if (t % (2 * k) == 0) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) result[blockIdx.x] = s[0];
}

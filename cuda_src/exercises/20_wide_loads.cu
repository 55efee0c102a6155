// exercise 20: A quarter of what
//
// predict: A thread loads four elements by four instructions, each of which neighbours in its warp
//   join. One instruction of 16 bytes loads as much. What falls to a quarter?
//   a) the sectors that the L2 is asked for
//   b) the requests of the warps
//   c) both
// answer: ?
//
// task: At most 24 load requests and 264 sectors, for an array of any length.

__global__ void sum(const float* x, float* result, unsigned n)
{
    __shared__ float s[128];
    const unsigned t = threadIdx.x, first = 4 * blockIdx.x * blockDim.x + t;
    float v = 0.0f;
    for (unsigned k = 0; k < 4; ++k) {
        const unsigned i = first + k * blockDim.x;
        if (i < n) v += x[i];
    }
    s[t] = v;
    __syncthreads();
    for (unsigned k = blockDim.x / 2; k > 0; k /= 2) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) atomicAdd(result, s[0]);
}

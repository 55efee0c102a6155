// exercise 06: Out of one bank
//
// predict: In the first step, thread t reads s[2 t] and s[2 t + 1]. How many lanes of a warp share
//   a bank in one read?
//   a) 1
//   b) 2
//   c) 32
// answer: ?
//
// task: Keep whole warps at work, and let neighbouring threads read neighbouring words: no bank
//   conflict.

__global__ void sum(const float* x, float* result, unsigned n)
{
    __shared__ float s[128];
    const unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned k = 1; k < blockDim.x; k *= 2) {
        const unsigned j = 2 * k * t;
        if (j < blockDim.x) s[j] += s[j + k];
        __syncthreads();
    }
    if (t == 0) result[blockIdx.x] = s[0];
}

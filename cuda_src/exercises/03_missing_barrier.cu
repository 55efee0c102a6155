// exercise 03: The barrier that is missing
//
// predict: The loop has no barrier, but each of its steps uses fewer threads. From which block size
//   on do warps race?
//   a) 33 threads
//   b) 65 threads
//   c) 1,024 threads
// answer: ?
//
// task: Put the barrier where it belongs. All threads of the block must come to it.

__global__ void sum(const float* x, float* result, unsigned n)
{
    __shared__ float s[128];
    const unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned k = blockDim.x / 2; k > 0; k /= 2)
        if (t < k) s[t] += s[t + k];
    if (t == 0) result[blockIdx.x] = s[0];
}

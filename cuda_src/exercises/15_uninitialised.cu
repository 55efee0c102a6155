// exercise 15: What nobody wrote
//
// predict: Threads behind the end write nothing to shared memory. What does the tree of the last
//   block add?
//   a) zeros
//   b) whatever an earlier block left there
//   c) the result is a NaN
// answer: ?
//
// task: Give every word of shared memory that is read a value.

__global__ void sum(const float* x, float* result, unsigned n)
{
    __shared__ float s[128];
    const unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    if (i < n) s[t] = x[i];
    __syncthreads();
    for (unsigned k = blockDim.x / 2; k > 0; k /= 2) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) atomicAdd(result, s[0]);
}

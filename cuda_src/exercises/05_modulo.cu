// exercise 05: A modulo that is none
//
// predict: `t % (2 * k)`, where k is a power of two that the compiler does not know. What does a
//   thread execute?
//   a) one instruction, as for an addition
//   b) a mask, since the compiler sees that k doubles
//   c) a division in software, of some twenty instructions
// answer: ?
//
// task: Keep the tree, neighbours first, and do without any division: no `rem` and no `div` in the
//   code.

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

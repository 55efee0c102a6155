// A solution of exercise 05: A modulo that is none.
__global__ void sum(const float* x, float* result, unsigned n)
{
    __shared__ float s[128];
    const unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned k = 1; k < blockDim.x; k *= 2) {
        if ((t & (2 * k - 1)) == 0) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) result[blockIdx.x] = s[0];
}

// A solution of exercise 17: The last block adds up.
__global__ void sum(const float* x, float* result, unsigned n, void* workspace)
{
    __shared__ float s[128];
    __shared__ bool last;
    float* const partials = (float*)workspace + 64;  // the first bytes are a counter, 0 before the launch
    const unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned k = blockDim.x / 2; k > 0; k /= 2) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) {
        partials[blockIdx.x] = s[0];
        __threadfence();
        last = atomicAdd((unsigned*)workspace, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last || t != 0) return;
    __threadfence();
    float total = 0.0f;
    for (unsigned b = 0; b < gridDim.x; ++b) total += partials[b];
    *result = total;
}

// exercise 09: One barrier
//
// predict: A block of 128 threads passes 8 barriers in a tree in shared memory. With warp shuffles,
//   how many does it need?
//   a) 0
//   b) 1
//   c) 5
// answer: ?
//
// task: Add up each warp by shuffles, and let the first warp add up the warps' sums: one barrier a
//   block.

__global__ void sum(const float* x, float* result, unsigned n)
{
    __shared__ float s[128];
    const unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned k = blockDim.x / 2; k > 0; k /= 2) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) atomicAdd(result, s[0]);
}

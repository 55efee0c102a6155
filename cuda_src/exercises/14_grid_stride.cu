// exercise 14: A grid of any size
//
// predict: The grid has 4 blocks of 128 threads, whatever n is. What must a thread do?
//   a) start at its number, and go on by the size of the grid
//   b) add the n / 512 elements from its number on
//   c) start at its number, and go on by the size of the block
// answer: ?
//
// task: Make the sum right for every n, with loads that neighbouring lanes make at neighbouring
//   addresses.

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

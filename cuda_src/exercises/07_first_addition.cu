// exercise 07: No thread only loads
//
// predict: Half of the threads load an element and never add. The grid is halved now. What of the
//   sum?
//   a) half of the elements are missing
//   b) it is right, since the blocks are larger
//   c) every second element is missing
// answer: ?
//
// task: Let every thread load two elements, a block apart, and add them before the tree.

__global__ void sum(const float* x, float* result, unsigned n)
{
    __shared__ float s[128];
    const unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x * 2 + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned k = blockDim.x / 2; k > 0; k /= 2) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) result[blockIdx.x] = s[0];
}

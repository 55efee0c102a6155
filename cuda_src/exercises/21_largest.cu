// exercise 21: The largest element
//
// predict: There is no atomic maximum of floats. A loop of compare-and-swap reads, and swaps while its
//   element is greater. 1e8 threads do so at one address, or add to it by atomicAdd. The maximum takes
//   a) longer, since it may have to try again
//   b) as long, since the address is the limit
//   c) less than a hundredth
// answer: ?
//
// task: Make it the maximum, whatever the signs, with at most one atomic a block. The bits of *result
//   are all set before: as a signed int below every float >= 0, as an unsigned one above every other,
//   and to fmaxf no number.

__global__ void largest(const float* x, float* result, unsigned n)
{
    __shared__ float s[128];
    const unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (unsigned k = blockDim.x / 2; k > 0; k /= 2) {
        if (t < k) s[t] = fmaxf(s[t], s[t + k]);
        __syncthreads();
    }
    if (t == 0) atomicAdd(result, s[0]);
}

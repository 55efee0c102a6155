// exercise 10: Who takes part in a shuffle
//
// predict: The last warp has 3 elements, so 3 of its lanes come to the shuffle, whose mask names
//   32. What happens?
//   a) the missing lanes count as 0
//   b) the result is undefined: a GPU may hang
//   c) the other lanes give their own value
// answer: ?
//
// task: Let every lane that the mask names come to the shuffle.

__global__ void sum(const float* x, float* result, unsigned n)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i];
        for (unsigned k = 16; k > 0; k /= 2) v += __shfl_down_sync(0xffffffffu, v, k);
        if (threadIdx.x % 32 == 0) atomicAdd(result, v);
    }
}

// exercise 02: One atomic a warp
//
// predict: Every element is an atomic addition to one address. How many of the 32 lanes of a warp
//   wait for another lane?
//   a) none: a warp's atomics are merged
//   b) 31
//   c) 16
// answer: ?
//
// task: Add each warp's 32 elements in registers or shared memory first: at most one atomic for 32
//   elements.

__global__ void sum(const float* x, float* result, unsigned n)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(result, x[i]);
}

// A solution of exercise 01: Make this race go away.
__global__ void sum(const float* x, float* result, unsigned n)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(result, x[i]);
}

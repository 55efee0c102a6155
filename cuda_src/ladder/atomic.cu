// atomic: every element is a global atomic; the first of three, against which the others are measured.
// Changes: nothing yet. Costs: all threads of the GPU queue for one address.
// Next: a tree in shared memory (shared).
// The plan clears *sum.
extern "C" __global__ void atomic(const float* x, float* sum, size_t n)
{
    const size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) atomicAdd(sum, x[i]);
}

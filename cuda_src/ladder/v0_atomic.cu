// v0: every element is a global atomic.
// Changes: nothing yet; this is the first version that is correct.
// Costs: n atomics to one address. The L2 does them one after the other, and the memory waits.
// Next: a block adds up its elements in shared memory first (v1).
// The plan clears *sum; the order of the additions differs from run to run.
extern "C" __global__ void v0_atomic(const float* x, float* sum, size_t n)
{
    const size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) atomicAdd(sum, x[i]);
}

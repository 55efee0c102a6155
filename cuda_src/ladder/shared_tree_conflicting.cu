// shared_tree_conflicting: a tree in shared memory, neighbours first.
// Changes: log2(blockDim) steps instead of blockDim.
// Costs: lanes access words 2 s apart, so that with growing s ever more of them wait for each other at one bank.
// Next: another order of the same additions (shared_tree).
// The plan clears *total.
#ifdef HALF  // float16 elements; they are added up in float32
typedef unsigned short Element;
__device__ float widen(Element h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
#else
typedef float Element;
__device__ float widen(Element f) { return f; }
#endif
extern "C" __global__ void shared_tree_conflicting(const Element* x, float* total, size_t n)
{
    __shared__ float sums[1024];
    const unsigned t = threadIdx.x;
    const size_t i = blockIdx.x * size_t(blockDim.x) + t;
    sums[t] = i < n ? widen(x[i]) : 0.0f;
    __syncthreads();
    for (unsigned s = 1; s < blockDim.x; s *= 2) {
        const unsigned left = 2 * s * t;
        if (left < blockDim.x) sums[left] += sums[left + s];
        __syncthreads();
    }
    if (t == 0) atomicAdd(total, sums[0]);
}

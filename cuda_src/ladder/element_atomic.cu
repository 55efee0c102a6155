// element_atomic: every element is added to one value by an atomic.
// Changes: the result is right, since no addition is interrupted by another one.
// Costs: all threads of the grid wait for one address.
// Next: fewer atomics (warp_serial).
// The plan clears *total.
#ifdef HALF  // float16 elements; they are added up in float32
typedef unsigned short Element;
__device__ float widen(Element h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
#else
typedef float Element;
__device__ float widen(Element f) { return f; }
#endif
extern "C" __global__ void element_atomic(const Element* x, float* total, size_t n)
{
    const size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) atomicAdd(total, widen(x[i]));
}

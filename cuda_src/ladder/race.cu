// race: a plain += by every thread. WRONG ON PURPOSE: the lesson is that the result is wrong.
// Changes: nothing yet. Costs: the result: threads read the same old sum, and all but one of them lose their addition.
// Next: an addition that no other thread can interrupt (atomic; here with fewer of them, warp_serial).
// The plan clears *total.
#ifdef HALF  // float16 elements; they are added up in float32
typedef unsigned short Element;
__device__ float widen(Element h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
#else
typedef float Element;
__device__ float widen(Element f) { return f; }
#endif
extern "C" __global__ void race(const Element* x, float* total, size_t n)
{
    const size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) *total += widen(x[i]);
}

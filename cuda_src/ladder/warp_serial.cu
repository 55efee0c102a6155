// warp_serial: lane 0 adds up its warp's elements and does one atomic.
// Changes: the result is right, and there are 32 times fewer atomics than elements.
// Costs: 31 lanes wait while one adds.
// Next: fewer atomics still (block_serial).
// The plan clears *total.
#ifdef HALF  // float16 elements; they are added up in float32
typedef unsigned short Element;
__device__ float widen(Element h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
#else
typedef float Element;
__device__ float widen(Element f) { return f; }
#endif
extern "C" __global__ void warp_serial(const Element* x, float* total, size_t n)
{
    __shared__ float values[1024];
    const unsigned t = threadIdx.x;
    const size_t i = blockIdx.x * size_t(blockDim.x) + t;
    values[t] = i < n ? widen(x[i]) : 0.0f;
    __syncwarp();
    if (t % 32 != 0) return;
    float sum = 0.0f;
    for (unsigned k = 0; k < 32; ++k) sum += values[t + k];
    atomicAdd(total, sum);
}

// warp_serial_one_loop: the strides and the lanes of warp_serial_strided in one loop, its counter taken apart.
// Changes: a warp's 32 elements follow each other, so a sector is read whole before the next one.
// Costs: a division and a remainder an element, which are a shift and a mask here; still one lane at work.
// Next: all lanes at work (shared_tree).
// The plan clears *total.
#ifdef HALF  // float16 elements; they are added up in float32
typedef unsigned short Element;
__device__ float widen(Element h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
#else
typedef float Element;
__device__ float widen(Element f) { return f; }
#endif
extern "C" __global__ void warp_serial_one_loop(const Element* x, float* total, size_t n)
{
    if (threadIdx.x % 32 != 0) return;
    const size_t first = blockIdx.x * size_t(blockDim.x) + threadIdx.x, stride = size_t(blockDim.x) * gridDim.x;
    const size_t strides = (n - first + stride - 1) / stride;  // 0 for a warp behind the end, since first < stride
    float sum = 0.0f;
    for (size_t k = 0; k < 32 * strides; ++k) {
        const size_t i = first + k / 32 * stride + k % 32;
        if (i < n) sum += widen(x[i]);
    }
    atomicAdd(total, sum);
}

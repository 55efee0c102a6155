// warp_serial_strided: lane 0 adds its warp's elements of every stride of a limited grid, straight from global memory.
// Changes: one atomic a warp of a grid of fixed size, however many elements there are; no shared memory.
// Costs: one lane loads, a word from each sector at a time, and the 32 lanes' elements come one stride after the other.
// Next: the two loops as one (warp_serial_one_loop); and all lanes at work (shared_tree).
// The plan clears *total.
#ifdef HALF  // float16 elements; they are added up in float32
typedef unsigned short Element;
__device__ float widen(Element h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
#else
typedef float Element;
__device__ float widen(Element f) { return f; }
#endif
extern "C" __global__ void warp_serial_strided(const Element* x, float* total, size_t n)
{
    if (threadIdx.x % 32 != 0) return;
    const size_t first = blockIdx.x * size_t(blockDim.x) + threadIdx.x, stride = size_t(blockDim.x) * gridDim.x;
    float sum = 0.0f;
    for (unsigned lane = 0; lane < 32; ++lane)
        for (size_t i = first + lane; i < n; i += stride) sum += widen(x[i]);
    atomicAdd(total, sum);
}

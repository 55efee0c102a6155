// shuffle_warp_atomic: each warp is added up by shuffles, and does one atomic.
// Changes: registers to registers: neither shared memory nor a barrier.
// Costs: an atomic for each warp, eight times as many as blocks of 256 threads need.
// Next: shuffles over the warps' sums, too (shared_shuffle).
// The plan clears *total. A lane whose source lies outside the warp gets its own value; only lane 0's sum is used.
#ifdef HALF  // float16 elements; they are added up in float32
typedef unsigned short Element;
__device__ float widen(Element h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
#else
typedef float Element;
__device__ float widen(Element f) { return f; }
#endif
extern "C" __global__ void shuffle_warp_atomic(const Element* x, float* total, size_t n)
{
    const size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    float sum = i < n ? widen(x[i]) : 0.0f;
    for (unsigned s = 16; s > 0; s /= 2) sum += __shfl_down_sync(0xffffffffu, sum, s);
    if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
}

// block_serial: one thread adds up its block's elements and does one atomic.
// Changes: only as many atomics as blocks.
// Costs: all other threads of the block wait for a loop of blockDim steps, each of which goes to shared memory.
// Next: all threads add (shared_tree_conflicting).
// The plan clears *total.
#ifdef HALF  // float16 elements; they are added up in float32
typedef unsigned short Element;
__device__ float widen(Element h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
#else
typedef float Element;
__device__ float widen(Element f) { return f; }
#endif
extern "C" __global__ void block_serial(const Element* x, float* total, size_t n)
{
    __shared__ float values[1024];
    const unsigned t = threadIdx.x;
    const size_t i = blockIdx.x * size_t(blockDim.x) + t;
    values[t] = i < n ? widen(x[i]) : 0.0f;
    __syncthreads();
    if (t != 0) return;
    float sum = 0.0f;
    for (unsigned k = 0; k < blockDim.x; ++k) sum += values[k];
    atomicAdd(total, sum);
}

// float16_magnitude: float16 accumulators that cannot overflow: elements are scaled by the largest magnitude first.
// Changes: a first kernel finds that magnitude; elements times 2^-k then sum to less than 32768, whatever their signs.
// Costs: the input is read twice, and 2^-k times a small element may be too small for float16: its bits are lost.
// Next: float32 on the way reads once and loses nothing (float16_promoted).
// The plan clears the workspace, whose first word is the magnitude as bits, which are in order where signs are not set.
typedef unsigned short half;
__device__ half narrow(float f) { half h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
__device__ float widen(half h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
__device__ half add(half a, half b) { half c; asm("add.f16 %0, %1, %2;" : "=h"(c) : "h"(a), "h"(b)); return c; }

// 2^k with the smallest k >= 0 for which n elements of that magnitude, times 2^-k, sum to less than 32768.
__device__ float power(unsigned magnitude, size_t n)
{
    const unsigned most = __float_as_uint(__uint_as_float(magnitude) * float(n)) >> 23;  // the biased exponent
    return most <= 127 + 14 ? 1.0f : __uint_as_float((most - 14) << 23);
}

__device__ half block_sum(half sum)
{
    __shared__ half sums[1024];
    const unsigned t = threadIdx.x;
    sums[t] = sum;
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
        if (t < s) sums[t] = add(sums[t], sums[t + s]);
        __syncthreads();
    }
    return sums[0];
}

extern "C" __global__ void float16_magnitude_first(const half* x, unsigned* magnitude, size_t n)
{
    unsigned most = 0;
    const size_t stride = size_t(blockDim.x) * gridDim.x;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += stride)
        most = max(most, __float_as_uint(widen(x[i] & 0x7fff)));
    for (unsigned s = 16; s > 0; s /= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, s));
    if (threadIdx.x % 32 == 0) atomicMax(magnitude, most);
}

extern "C" __global__ void float16_magnitude_second(const half* x, half* partials, size_t n, const unsigned* magnitude)
{
    half sum = 0;
    const float scale = 1.0f / power(*magnitude, n);
    const size_t stride = size_t(blockDim.x) * gridDim.x;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += stride)
        sum = add(sum, narrow(widen(x[i]) * scale));
    sum = block_sum(sum);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

extern "C" __global__ void float16_magnitude_third(
    const half* partials, half* total, size_t count, const unsigned* magnitude, size_t n)
{
    half sum = 0;
    for (size_t i = threadIdx.x; i < count; i += blockDim.x) sum = add(sum, partials[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) *total = narrow(widen(sum) * power(*magnitude, n));
}

// float16_scaled: float16 accumulators that cannot overflow: half of each sum is kept.
// Changes: every addition halves its operands first, so that a tree of d levels leaves the sum over 2^d, which is never
// larger than the largest element. The result is that mean of 2^d elements; whoever reads it multiplies.
// Costs: two multiplications for each addition, a tree over all levels (no running sums), and bits of small means.
// Next: float32 on the way costs less and keeps more (float16_promoted).
typedef unsigned short half;
__device__ half mean(half a, half b)
{
    half sum;
    asm("{ .reg .f16 l, r, o; mov.b16 o, 0x3800; mul.f16 l, %1, o; mul.f16 r, %2, o; add.f16 %0, l, r; }"
        : "=h"(sum) : "h"(a), "h"(b));
    return sum;
}

extern "C" __global__ void float16_scaled(const half* x, half* partials, size_t n)
{
    __shared__ half means[1024];
    const unsigned t = threadIdx.x;
    const size_t i = blockIdx.x * size_t(blockDim.x) + t;
    means[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
        if (t < s) means[t] = mean(means[t], means[t + s]);
        __syncthreads();
    }
    if (t == 0) partials[blockIdx.x] = means[0];
}

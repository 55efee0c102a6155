// kahan: each sum carries along what its roundings lost, and adds it in at the end.
// Changes: the error no longer grows with n: float32 sums as good as float64 ones, without float64.
// Costs: eight additions for one and twice the partials; the memory hides it. The compiler must not reorder floats.
// Next: float64 accumulators, which on GPUs with fast float64 cost nothing here (v8_one_tree).
// A pair (x, y) stands for x + y; they are added by Knuth's two-sum, in which neither needs to be the greater.
__device__ float2 add(float2 a, float2 b)
{
    const float sum = a.x + b.x, part = sum - a.x;
    return make_float2(sum, ((a.x - (sum - part)) + (b.x - part)) + (a.y + b.y));
}

__device__ float2 block_sum(float2 sum)
{
    __shared__ float2 sums[1024];
    const unsigned t = threadIdx.x;
    sums[t] = sum;
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
        if (t < s) sums[t] = add(sums[t], sums[t + s]);
        __syncthreads();
    }
    return sums[0];
}

extern "C" __global__ void kahan_first(const float* x, float2* partials, size_t n)
{
    float2 sum = make_float2(0.0f, 0.0f);
    const size_t stride = size_t(blockDim.x) * gridDim.x;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += stride)
        sum = add(sum, make_float2(x[i], 0.0f));
    sum = block_sum(sum);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

extern "C" __global__ void kahan_second(const float2* partials, float* total, size_t count)
{
    float2 sum = make_float2(0.0f, 0.0f);
    for (size_t i = threadIdx.x; i < count; i += blockDim.x) sum = add(sum, partials[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) *total = sum.x + sum.y;
}

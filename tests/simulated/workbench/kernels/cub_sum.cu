#include <cub/block/block_reduce.cuh>
__global__ void cub_sum(const float* x, float* total, int n)
{
    using Reduce = cub::BlockReduce<float, 64>;
    __shared__ typename Reduce::TempStorage storage;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float sum = Reduce(storage).Sum(i < n ? x[i] : 0.0f);
    if (threadIdx.x == 0) total[blockIdx.x] = sum;
}

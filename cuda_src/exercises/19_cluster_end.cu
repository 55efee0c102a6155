// exercise 19: Who may leave a cluster
//
// predict: Rank 0 reads the shared memory of blocks that have nothing left to do. What becomes of
//   that memory?
//   a) it stays until the cluster ends
//   b) it may be gone with its block
//   c) it is copied to global memory
// answer: ?
//
// task: Keep every block until its shared memory has been read.

__device__ unsigned cluster_rank() { unsigned r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ void cluster_barrier()
{
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// Reads a variable in shared memory as the block of that rank has it.
__device__ float read_from(const float* mine, unsigned rank)
{
    unsigned address;
    float value;
    asm("{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }" : "=r"(address) : "l"(mine));
    asm volatile("{ .reg .u32 a; mapa.shared::cluster.u32 a, %1, %2; ld.shared::cluster.f32 %0, [a]; }"
                 : "=f"(value) : "r"(address), "r"(rank) : "memory");
    return value;
}

__global__ void sum(const float* x, float* result, unsigned n)
{
    __shared__ float s[128];
    const unsigned t = threadIdx.x;
    float v = 0.0f;
    for (unsigned i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) v += x[i];
    s[t] = v;
    __syncthreads();
    for (unsigned k = blockDim.x / 2; k > 0; k /= 2) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    cluster_barrier();  // every block's sum is there
    if (t == 0 && cluster_rank() == 0) {
        float total = 0.0f;
        for (unsigned b = 0; b < 8; ++b) total += read_from(s, b);
        *result = total;
    }
}

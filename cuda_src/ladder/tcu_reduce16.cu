// tcu_reduce16: rows of 16 halves, multiplied by a matrix of ones, give row sums: the tensor cores add.
// Changes: one instruction of a warp adds 256 elements in float32, without a shuffle.
// Costs: eight equal columns of results, of which one is used; then shuffles, and atomics, one for each warp.
// Next: keep the products in the accumulator, and add up the rows by one more product (tcu_reduce256).
// The plan clears *sum. Lane l holds elements 8 l to 8 l + 7; where in the tile they lie does not matter for a sum.
// c (16 x 8 floats) += a (16 x 16 halves) times b (16 x 8 halves), each spread over a warp.
__device__ void multiply_add(float* c, const unsigned* a, const unsigned* b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Eight halves from number i on, in four registers; those past the end are 0.
__device__ void load8(unsigned* v, const unsigned short* x, size_t i, size_t n)
{
    if (i + 8 <= n) {
        const uint4 all = *(const uint4*)(x + i);
        v[0] = all.x, v[1] = all.y, v[2] = all.z, v[3] = all.w;
        return;
    }
    for (unsigned k = 0; k < 4; ++k)
        v[k] = (i + 2 * k < n ? x[i + 2 * k] : 0u) | (i + 2 * k + 1 < n ? x[i + 2 * k + 1] : 0u) << 16;
}

extern "C" __global__ void tcu_reduce16(const unsigned short* x, float* sum, size_t n)
{
    const unsigned lane = threadIdx.x % 32, ones[2] = {0x3c003c00u, 0x3c003c00u};
    unsigned tile[4];
    float rows[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    load8(tile, x, 8 * (blockIdx.x * size_t(blockDim.x) + threadIdx.x), n);
    multiply_add(rows, tile, ones);
    float total = rows[0] + rows[2];  // rows lane / 4 and lane / 4 + 8, the same in every four lanes
    for (unsigned s = 4; s < 32; s *= 2) total += __shfl_xor_sync(0xffffffffu, total, s);
    if (lane == 0) atomicAdd(sum, total);
}

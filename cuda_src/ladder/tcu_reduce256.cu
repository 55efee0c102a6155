// tcu_reduce256: products of ones and tiles add up, then one more: the tensor cores add all of a warp's elements.
// Changes: no shuffles; column sums stay in the accumulator over all tiles of a warp.
// Costs: the last product takes halves, so its input is split into a high and a low half: two products, and 22 bits.
// Next: nothing: the memory was the limit before, and the tensor cores wait for it as the other cores did.
// The plan clears *sum.
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

__device__ void split(float a, float b, unsigned& high, unsigned& low)
{
    asm("{ .reg .b16 p, q; .reg .f32 f, g; cvt.rn.f16.f32 p, %2; cvt.rn.f16.f32 q, %3; mov.b32 %0, {p, q};"
        "cvt.f32.f16 f, p; cvt.f32.f16 g, q; sub.f32 f, %2, f; sub.f32 g, %3, g;"
        "cvt.rn.f16.f32 p, f; cvt.rn.f16.f32 q, g; mov.b32 %1, {p, q}; }" : "=&r"(high), "=&r"(low) : "f"(a), "f"(b));
}

extern "C" __global__ void tcu_reduce256(const unsigned short* x, float* sum, size_t n)
{
    const unsigned ones[4] = {0x3c003c00u, 0x3c003c00u, 0x3c003c00u, 0x3c003c00u};
    float columns[8] = {}, all[4] = {};
    const size_t stride = 8 * size_t(blockDim.x) * gridDim.x;
    const size_t own = 8 * (blockIdx.x * size_t(blockDim.x) + threadIdx.x), lane = threadIdx.x % 32;
    for (size_t i = own; i - 8 * lane < n; i += stride) {  // the whole warp goes on or stops
        unsigned tile[4];
        load8(tile, x, i, n);
        multiply_add(columns, ones, tile);
        multiply_add(columns + 4, ones, tile + 2);
    }
    unsigned high[4], low[4];  // two 16 x 8 accumulators are laid out as one 16 x 16 operand is
    for (unsigned k = 0; k < 4; ++k) split(columns[2 * k], columns[2 * k + 1], high[k], low[k]);
    multiply_add(all, high, ones);
    multiply_add(all, low, ones);
    if (lane == 0) atomicAdd(sum, all[0]);
}

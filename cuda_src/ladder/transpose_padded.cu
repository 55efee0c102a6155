// transpose_padded: rows have one word more, 33 floats, so that a column of the tile crosses all banks.
// Changes: no bank conflicts.
// Costs: 32 words of shared memory that hold nothing, and rows that are no longer aligned to 16 bytes.
// Next: the same without the extra words (transpose_swizzled).
#ifdef HALF
typedef unsigned short Element;
#else
typedef float Element;
#endif
extern "C" __global__ void transpose_padded(const Element* x, Element* y, size_t side)
{
    __shared__ Element tile[32][32 + 4 / sizeof(Element)];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const size_t row = 32 * size_t(blockIdx.y), column = 32 * size_t(blockIdx.x);
    for (unsigned k = warp; k < 32; k += warps)
        if (row + k < side && column + lane < side) tile[k][lane] = x[(row + k) * side + column + lane];
    __syncthreads();
    for (unsigned k = warp; k < 32; k += warps)
        if (column + k < side && row + lane < side) y[(column + k) * side + row + lane] = tile[lane][k];
}

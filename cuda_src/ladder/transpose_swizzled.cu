// transpose_swizzled: element c of row r lies at c ^ r, so that a column of the tile crosses all banks.
// Changes: no bank conflicts, and no words that hold nothing.
// Costs: an exclusive or for each address.
// Next: nothing; the memory decides how fast a copy is.
#ifdef HALF
typedef unsigned short Element;
#else
typedef float Element;
#endif
extern "C" __global__ void transpose_swizzled(const Element* x, Element* y, size_t side)
{
    __shared__ Element tile[32][32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const size_t row = 32 * size_t(blockIdx.y), column = 32 * size_t(blockIdx.x);
    for (unsigned k = warp; k < 32; k += warps)
        if (row + k < side && column + lane < side) tile[k][lane ^ k] = x[(row + k) * side + column + lane];
    __syncthreads();
    for (unsigned k = warp; k < 32; k += warps)
        if (column + k < side && row + lane < side) y[(column + k) * side + row + lane] = tile[lane][lane ^ k];
}

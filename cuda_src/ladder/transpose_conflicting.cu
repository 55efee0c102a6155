// transpose_conflicting: tiles of 32 x 32 go through shared memory, so that both matrices are accessed by rows.
// Changes: a row of floats is written in 4 sectors, where a column straight to global memory takes 32.
// Costs: a column of the tile lies in one bank: all 32 lanes of a warp wait for each other.
// Next: one word more in each row (transpose_padded).
#ifdef HALF
typedef unsigned short Element;
#else
typedef float Element;
#endif
extern "C" __global__ void transpose_conflicting(const Element* x, Element* y, size_t side)
{
    __shared__ Element tile[32][32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const size_t row = 32 * size_t(blockIdx.y), column = 32 * size_t(blockIdx.x);
    for (unsigned k = warp; k < 32; k += warps)
        if (row + k < side && column + lane < side) tile[k][lane] = x[(row + k) * side + column + lane];
    __syncthreads();
    for (unsigned k = warp; k < 32; k += warps)
        if (column + k < side && row + lane < side) y[(column + k) * side + row + lane] = tile[lane][k];
}

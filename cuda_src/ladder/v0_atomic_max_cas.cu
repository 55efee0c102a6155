// v0 for max, by compare-and-swap, which works for any operation at all.
// Changes: read, decide, and swap if no other thread was faster; else decide again.
// Costs: a load of *best for each element, and a round trip to the L2 for each try. A sum made in this way would be
// hopeless; a max is spared most of it, because few elements are a new maximum.
// Next: one atomic a block (v6_block_atomic_max_cas).
// The plan sets *best to all ones, a NaN, which says that no element has come yet.
extern "C" __global__ void v0_atomic_max_cas(const float* x, float* best, size_t n)
{
    const size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i >= n) return;
    int* const address = (int*)best;
    int seen;
    asm volatile("ld.relaxed.gpu.s32 %0, [%1];" : "=r"(seen) : "l"(address));
    while (!(__int_as_float(seen) >= x[i])) {
        const int found = atomicCAS(address, seen, __float_as_int(x[i]));
        if (found == seen) break;
        seen = found;
    }
}

// v0 for max, by integers: there is no atomic max of floats, but the bits of floats >= 0 are ordered as signed
// integers, and those of floats < 0 are ordered the other way round as unsigned ones.
// Changes: one integer atomic of the right kind for each element. Costs: a branch on the sign, and one atomic for each
// warp and sign: the assembler folds those of a warp first (REDUX), which it may not do for float sums.
// Next: a compare-and-swap loop, for operations without such a trick (v0_atomic_max_cas).
// The plan sets *best to all ones: below every float >= 0 as a signed integer, above every other as an unsigned one.
extern "C" __global__ void v0_atomic_max_ordered(const float* x, float* best, size_t n)
{
    const size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i >= n) return;
    const int bits = __float_as_int(x[i]);
    if (bits >= 0) atomicMax((int*)best, bits);
    else atomicMin((unsigned*)best, (unsigned)bits);
}

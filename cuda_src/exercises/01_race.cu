// exercise 01: Make this race go away
//
// predict: 2,051 elements, each of them 1, are added by `*result += x[i]`. What does a GPU leave?
//   a) their sum, since the hardware queues the additions
//   b) zero
//   c) something between one element and the sum, another at each run
// answer: ?
//
// task: Make the sum right. Nothing else is asked.

__global__ void sum(const float* x, float* result, unsigned n)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) *result += x[i];
}

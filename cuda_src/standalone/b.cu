// System B by itself: reference, kernel times, speed-ups, results and absolute errors, as its source prints them.
// nvcc -O3 -std=c++17 -arch=native -o b b.cu && ./b [N [BLOCK [REPEAT]]]
#include "host.h"
namespace ladder {
#include "../ladder/atomic.cu"
#include "../ladder/shared.cu"
}
namespace warps {
#include "../ladder/shuffle.cu"
}

int main(int count, char** values)
{
    const size_t n = argument(count, values, 1, size_t(1) << 24);
    const unsigned block = unsigned(argument(count, values, 2, 256));
    const int repeat = int(argument(count, values, 3, 5));
    if (block < 32 || block > 1024 || (block & (block - 1)) != 0 || repeat < 1) {
        std::fprintf(stderr, "a block has 32, 64, ..., 1024 threads, and the repeat count is 1 or more\n");
        return 2;
    }
    std::printf("elements %zu, %.1f MiB, block %u, repeat %d\n", n, double(n) * sizeof(float) / 1048576, block, repeat);
    const std::vector<float> host(n, 1.0f);
    const double right = reference(host);
    const float* x = on_device(host);
    const size_t most = blocks_for(n, 2 * block);
    float* const buffers[2] = {zeros<float>(most), zeros<float>(most)};
    const float* result = nullptr;
    const char* const names[] = {"atomic", "shared", "shuffle"};
    const std::function<void()> runs[] = {
        [&] { ladder::atomic<<<blocks_for(n, block), block>>>(x, buffers[0], n); result = buffers[0]; },
        [&] { result = passes(ladder::shared, x, buffers, n, block, 2); },
        [&] { result = passes(warps::shuffle, x, buffers, n, block, 2); },
    };
    float times[3], results[3];
    for (int i = 0; i < 3; ++i) {
        times[i] = milliseconds(repeat, runs[i], [&] { CHECK(cudaMemset(buffers[0], 0, sizeof(float))); });
        results[i] = first_of(result);
    }
    std::printf("\nreference on the CPU, in double: %.4f\n\nkernel times\n", right);
    for (int i = 0; i < 3; ++i) std::printf("  %-8s %12.4f ms\n", names[i], times[i]);
    std::printf("\nspeed-ups\n  shared over atomic  %10.4fx\n  shuffle over atomic %10.4fx\n  shuffle over shared %10.4fx\n",
                times[0] / times[1], times[0] / times[2], times[1] / times[2]);
    std::printf("\nresults\n");
    for (int i = 0; i < 3; ++i) std::printf("  %-8s %14.4f\n", names[i], results[i]);
    std::printf("\nabsolute errors\n");
    int wrong = 0;
    for (int i = 0; i < 3; ++i) {
        std::printf("  %-8s %14.4f\n", names[i], std::fabs(results[i] - right));
        wrong += n <= size_t(1) << 24 && results[i] != right;
    }
    return wrong != 0;
}

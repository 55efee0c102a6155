// System C by itself: the throughput of reduce0 to reduce7, as its source reads it, and of the tensor cores' kernels.
// nvcc -O3 -std=c++17 -arch=sm_90 -o c c.cu && ./c [N]        compute capability 8.0 or more for the tensor cores
#include "host.h"
#define BLOCK 256
namespace c0 {
#include "../ladder/reduce0.cu"
#include "../ladder/modulo_and.cu"
#include "../ladder/reduce1.cu"
#include "../ladder/reduce2.cu"
#include "../ladder/reduce3.cu"
#include "../ladder/reduce4.cu"
#include "../ladder/reduce5.cu"
}
namespace c6 {
#include "../ladder/reduce6.cu"
}
namespace c7 {
#include "../ladder/reduce7.cu"
}
namespace t16 {
#include "../ladder/tcu_reduce16.cu"
}
namespace t256 {
#include "../ladder/tcu_reduce256.cu"
}

static int print(const char* name, double bytes, double ms, double got, double right)
{
    const double rate = bytes / ms / 1e6;
    std::printf("%-14s throughput %9.2f GB/s, %5.1f %% of the peak, time %9.5f ms, sum %.6f (%s)\n", name, rate,
                100 * rate / peak_gb_per_s(), ms, got, got == right ? "right" : "WRONG");
    return got != right;
}

int main(int count, char** values)
{
    const size_t n = argument(count, values, 1, size_t(1) << 24);
    const std::vector<float> host = made_up(n);
    const double right = reference(host);
    const float* x = on_device(host);
    const __half* narrow = on_device(halves(host));
    float* const buffers[2] = {zeros<float>(n / BLOCK + 1), zeros<float>(n / BLOCK + 1)};
    struct Rung {
        const char* name;
        Kernel kernel;
        size_t per_thread, most;
    };
    const Rung rungs[] = {
        {"reduce0", c0::reduce0, 1, 0}, {"modulo_and", c0::modulo_and, 1, 0}, {"reduce1", c0::reduce1, 1, 0},
        {"reduce2", c0::reduce2, 1, 0}, {"reduce3", c0::reduce3, 2, 0}, {"reduce4", c0::reduce4, 2, 0},
        {"reduce5", c0::reduce5, 2, 0}, {"reduce6", c6::reduce6, 2, 1024}, {"reduce7", c7::reduce7, 2, 1024},
    };
    int wrong = 0;
    for (const Rung& rung : rungs) {
        const float* result = nullptr;
        const auto run = [&] { result = passes(rung.kernel, x, buffers, n, BLOCK, rung.per_thread, rung.most); };
        const double ms = milliseconds(5, run);
        wrong += print(rung.name, 4.0 * double(n), ms, first_of(result), right);
    }
    const auto clear = [&] { CHECK(cudaMemset(buffers[0], 0, sizeof(float))); };
    const auto* elements = reinterpret_cast<const unsigned short*>(narrow);
    const auto rows = [&] { t16::tcu_reduce16<<<blocks_for(n, 8 * BLOCK), BLOCK>>>(elements, buffers[0], n); };
    const auto tiles = [&] { t256::tcu_reduce256<<<blocks_for(n, 8 * BLOCK, 1024), BLOCK>>>(elements, buffers[0], n); };
    const double of_rows = milliseconds(5, rows, clear);
    wrong += print("tcu_reduce16", 2.0 * double(n), of_rows, first_of(buffers[0]), right);
    const double of_tiles = milliseconds(5, tiles, clear);
    wrong += print("tcu_reduce256", 2.0 * double(n), of_tiles, first_of(buffers[0]), right);
    return wrong != 0;
}

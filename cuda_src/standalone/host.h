// What the programs of this folder share on the host's side: checks, elements, memory, times. For nvcc.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define CHECK(call) check((call), #call, __LINE__)

inline void check(cudaError_t code, const char* call, int line)
{
    if (code == cudaSuccess) return;
    std::fprintf(stderr, "line %d: %s: %s\n", line, call, cudaGetErrorString(code));
    std::exit(1);
}

// k / 256 with k from -255 to 255 and not 0: exact in float16, and every sum of them is exact in float32.
inline std::vector<float> made_up(size_t n)
{
    std::vector<float> x(n);
    uint32_t state = 20260;
    for (float& value : x) {
        state = 1664525 * state + 1013904223;
        const int k = int(state >> 16) % 510 - 255;
        value = float(k < 0 ? k : k + 1) / 256;
    }
    return x;
}

inline double reference(const std::vector<float>& x)
{
    double sum = 0.0;
    for (float value : x) sum += value;
    return sum;
}

template <typename T> T* on_device(const std::vector<T>& x)
{
    T* there;
    CHECK(cudaMalloc(&there, sizeof(T) * (x.empty() ? 1 : x.size())));
    CHECK(cudaMemcpy(there, x.data(), sizeof(T) * x.size(), cudaMemcpyHostToDevice));
    return there;
}

template <typename T> T* zeros(size_t count) { return on_device(std::vector<T>(count, T())); }

template <typename T> T first_of(const T* there)
{
    T value;
    CHECK(cudaMemcpy(&value, there, sizeof(T), cudaMemcpyDeviceToHost));
    return value;
}

inline std::vector<__half> halves(const std::vector<float>& x)
{
    std::vector<__half> narrow(x.size());
    for (size_t i = 0; i < x.size(); ++i) narrow[i] = __float2half(x[i]);
    return narrow;
}

// The mean time of a run in milliseconds, after one that is not measured; `before` is not in the time.
inline float milliseconds(int repeat, const std::function<void()>& run, const std::function<void()>& before = [] {})
{
    cudaEvent_t start, end;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    float total = 0.0f;
    for (int i = -1; i < repeat; ++i) {
        before();
        CHECK(cudaEventRecord(start));
        run();
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        float once = 0.0f;
        CHECK(cudaEventElapsedTime(&once, start, end));
        if (i >= 0) total += once;
    }
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
    return total / float(repeat);
}

inline unsigned blocks_for(size_t n, size_t per_block, size_t most = 0)
{
    const size_t blocks = n == 0 ? 1 : (n + per_block - 1) / per_block;
    return unsigned(most != 0 && blocks > most ? most : blocks);
}

using Kernel = void (*)(const float*, float*, size_t);

// Partials in two buffers that alternate, until one value is left: the address of that value.
inline const float* passes(
    Kernel kernel, const float* x, float* const buffers[2], size_t n, unsigned block, size_t per_thread, size_t most = 0)
{
    const float* source = x;
    for (int turn = 0;; ++turn) {
        const unsigned grid = blocks_for(n, block * per_thread, most);
        kernel<<<grid, block>>>(source, buffers[turn % 2], n);
        source = buffers[turn % 2];
        if (grid == 1) return source;
        n = grid;
    }
}

// The peak of the memory in GB/s, by its clock and width.
inline double peak_gb_per_s()
{
    int khz = 0, bits = 0;
    CHECK(cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, 0));
    CHECK(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, 0));
    return 2.0 * khz * bits / 8 / 1e6;
}

inline size_t argument(int count, char** values, int place, size_t otherwise)
{
    return count > place ? std::strtoull(values[place], nullptr, 10) : otherwise;
}

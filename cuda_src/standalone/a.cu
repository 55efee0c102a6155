// System A by itself: the version, its bandwidth and its share of the peak, as its source prints them in a table.
// nvcc -O3 -std=c++17 -arch=sm_90 -o a a.cu && ./a [N]        v7 needs compute capability 9.0.
#include "host.h"
#define BLOCK 256
#define LOADS 1
#define CLUSTER 16
namespace v0 {
#include "../ladder/v0_atomic.cu"
}
namespace v1 {
#include "../ladder/v1_shared_interleaved.cu"
}
namespace v2 {
#include "../ladder/v2_shared_sequential.cu"
}
namespace v3 {
#include "../ladder/v3_four_loads.cu"
}
namespace v4 {
#include "../ladder/v4_float4.cu"
}
namespace v5 {
#include "../ladder/v5_warp_shuffle.cu"
}
namespace v6 {
#include "../ladder/v6_block_atomic.cu"
}
namespace v7 {
#include "../ladder/v7_cluster.cu"
}

static void clusters(const float* x, float* total, size_t n)
{
    cudaLaunchConfig_t config = {};
    const unsigned grid = blocks_for(n, 4 * BLOCK);
    config.gridDim = (grid + CLUSTER - 1) / CLUSTER * CLUSTER;
    config.blockDim = BLOCK;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = CLUSTER;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.attrs = &cluster;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, v7::v7_cluster, x, total, n));
}

int main(int count, char** values)
{
    const size_t n = argument(count, values, 1, 100000000);
    const std::vector<float> host = made_up(n);
    const double right = reference(host), peak = peak_gb_per_s();
    const float* x = on_device(host);
    float* const buffers[2] = {zeros<float>(n / BLOCK + 1), zeros<float>(n / BLOCK + 1)};
    float* const total = buffers[0];
    const float* result = nullptr;
    CHECK(cudaFuncSetAttribute(v7::v7_cluster, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    const auto folded = [&](Kernel kernel, size_t per_thread) {
        return [&, kernel, per_thread] { result = passes(kernel, x, buffers, n, BLOCK, per_thread); };
    };
    const auto clear = [&] { CHECK(cudaMemset(total, 0, sizeof(float))); };
    struct Version {
        const char *name, *what;
        std::function<void()> run;
    };
    const Version versions[] = {
        {"v0", "global atomics", [&] { v0::v0_atomic<<<blocks_for(n, BLOCK), BLOCK>>>(x, total, n); result = total; }},
        {"v1", "trees in shared memory", folded(v1::v1_shared_interleaved, 1)},
        {"v2", "no divergence", folded(v2::v2_shared_sequential, 1)},
        {"v3", "four elements a thread", folded(v3::v3_four_loads, 4)},
        {"v4", "float4", folded(v4::v4_float4, 4)},
        {"v5", "warp shuffles", folded(v5::v5_warp_shuffle, 4)},
        {"v6", "one atomic a block",
         [&] { v6::v6_block_atomic<<<blocks_for(n, 4 * BLOCK), BLOCK>>>(x, total, n); result = total; }},
        {"v7", "clusters", [&] { clusters(x, total, n); result = total; }},
    };
    std::printf("| version | what it adds | GB/s | %% of peak | result |\n| --- | --- | ---: | ---: | --- |\n");
    int wrong = 0;
    for (const Version& version : versions) {
        const double ms = milliseconds(5, version.run, clear), rate = double(n) * sizeof(float) / ms / 1e6;
        const bool good = double(first_of(result)) == right;
        wrong += !good;
        std::printf("| %s | %s | %.0f | %.1f | %s |\n", version.name, version.what, rate, 100 * rate / peak,
                    good ? "right" : "WRONG");
    }
    return wrong != 0;
}

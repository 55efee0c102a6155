// System E by itself: each kernel's result and time, the wrong one first, as its source runs them. Elements are float16.
// nvcc -O3 -std=c++17 -arch=native -o e e.cu && ./e [N]
#include "host.h"
#define HALF
namespace e0 {
#include "../ladder/race.cu"
}
namespace e1 {
#include "../ladder/element_atomic.cu"
}
namespace e2 {
#include "../ladder/warp_serial_strided.cu"
}
namespace e3 {
#include "../ladder/warp_serial_one_loop.cu"
}
namespace e4 {
#include "../ladder/block_serial.cu"
}
namespace e5 {
#include "../ladder/shared_tree_conflicting.cu"
}
namespace e6 {
#include "../ladder/shared_tree.cu"
}
namespace e7 {
#include "../ladder/shuffle_warp_atomic.cu"
}
namespace e8 {
#include "../ladder/shared_shuffle.cu"
}
namespace e9 {
#include "../ladder/two_pass.cu"
}
namespace e10 {
#include "../ladder/grid_sync.cu"
}

using HalfKernel = void (*)(const unsigned short*, float*, size_t);

static unsigned resident_blocks(int block)
{
    int possible = 0, each = 0, processors = 0;
    CHECK(cudaDeviceGetAttribute(&possible, cudaDevAttrCooperativeLaunch, 0));
    if (possible == 0) return 0;  // a barrier of the grid would wait for ever
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, e10::grid_sync, block, 0));
    CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    return unsigned(each * processors);
}

int main(int count, char** values)
{
    const size_t n = argument(count, values, 1, size_t(1) << 24);
    const unsigned block = 256, covering = blocks_for(n, block), limited = blocks_for(n, block, 1024);
    const std::vector<float> host(n, 1.0f);
    const double right = reference(host);
    const unsigned short* x = reinterpret_cast<const unsigned short*>(on_device(halves(host)));
    float *total = zeros<float>(1), *partials = zeros<float>(1024);
    const unsigned resident = resident_blocks(block);
    const unsigned cooperative = resident == 0 ? 0 : covering < resident ? covering : resident;
    void* workspace = zeros<float>(64 + cooperative + 1);
    int wrong = 0;
    const auto print = [&](const char* name, const std::function<void()>& run, bool meant_right = true) {
        const auto clear = [&] {
            CHECK(cudaMemset(total, 0, sizeof(float)));
            CHECK(cudaMemset(workspace, 0, 256));
        };
        const double ms = milliseconds(5, run, clear), got = first_of(total);
        std::printf("%-24s result %14.1f, expected %12.1f, %10.4f ms%s\n", name, got, right, ms,
                    got == right ? "" : meant_right ? "  WRONG" : "  wrong, on purpose");
        wrong += meant_right && n <= size_t(1) << 24 && got != right;
    };
    const auto plain = [&](HalfKernel kernel, unsigned grid) {
        return [&, kernel, grid] { kernel<<<grid, block>>>(x, total, n); };
    };
    print("race", plain(e0::race, covering), false);
    print("atomic", plain(e1::element_atomic, covering));
    print("warp_serial, strided", plain(e2::warp_serial_strided, limited));
    print("warp_serial, one loop", plain(e3::warp_serial_one_loop, limited));
    print("block_serial", plain(e4::block_serial, covering));
    print("shared_tree, conflicting", plain(e5::shared_tree_conflicting, covering));
    print("shared_tree", plain(e6::shared_tree, covering));
    print("shuffle", plain(e7::shuffle_warp_atomic, covering));
    print("shared_shuffle", plain(e8::shared_shuffle, covering));
    print("two_pass", [&] {
        e9::two_pass_first<<<limited, block>>>(x, partials, n);
        e9::two_pass_second<<<1, block>>>(partials, total, limited);
    });
    if (cooperative != 0)
        print("grid_sync", [&] {
            const void* arguments[] = {&x, &total, &n, &workspace};
            CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(e10::grid_sync), cooperative, block,
                                              const_cast<void**>(arguments), 0, nullptr));
        });
    return wrong != 0;
}

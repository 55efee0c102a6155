// System D by itself: a table of operation, shape and time, and float16's relative errors, as its source prints them.
// nvcc -O3 -std=c++17 -arch=native -o d d.cu && ./d [ROWS [COLUMNS]]
#include "host.h"
namespace two {
#include "../ladder/two_stage.cu"
}
namespace inner {
#include "../ladder/inner_axis.cu"
}
namespace outer {
#include "../ladder/outer_axis.cu"
}
namespace moved {
#include "../ladder/permuted_axis.cu"
}
namespace narrow {
#include "../ladder/float16_narrow.cu"
}
namespace promoted {
#include "../ladder/float16_promoted.cu"
}
namespace magnitude {
#include "../ladder/float16_magnitude.cu"
}

static void print(const char* name, size_t rows, size_t columns, double ms)
{
    std::printf("| %-13s | %zux%zu | %9.2f us | %8.1f GB/s |\n", name, rows, columns, 1e3 * ms,
                4e-6 * double(rows * columns) / ms);
}

static void relative(const char* name, double got, double right)
{
    std::printf("%-20s relative error %.2e\n", name, std::fabs(got - right) / std::fabs(right));
}

int main(int count, char** values)
{
    const size_t rows = argument(count, values, 1, 256), columns = argument(count, values, 2, rows), n = rows * columns;
    const unsigned block = 256, r = unsigned(rows), c = unsigned(columns), grid = blocks_for(n, block, 1024);
    const std::vector<float> host = made_up(n);
    const double right = reference(host);
    const float* x = on_device(host);
    float *partials = zeros<float>(n + 1), *sums = zeros<float>(rows + columns);
    print("sum", rows, columns, milliseconds(5, [&] {
        two::two_stage_first<<<grid, block>>>(x, partials, n);
        two::two_stage_second<<<1, block>>>(partials, sums, grid);
    }));
    const bool good = double(first_of(sums)) == right;
    print("sum_axis1", rows, columns, milliseconds(5, [&] { inner::inner_axis<<<r, block>>>(x, sums, r, c); }));
    print("sum_axis0", rows, columns,
          milliseconds(5, [&] { outer::outer_axis<<<(c + 31) / 32, block>>>(x, sums, r, c); }));
    print("the same moved", rows, columns, milliseconds(5, [&] {
        moved::permuted_axis_first<<<dim3((c + 31) / 32, (r + 31) / 32), block>>>(x, partials, r, c);
        moved::permuted_axis_second<<<c, block>>>(partials, sums, c, r);
    }));
    const unsigned short* half_x = reinterpret_cast<const unsigned short*>(on_device(halves(host)));
    unsigned short *half_sums = zeros<unsigned short>(2048), *half_sum = zeros<unsigned short>(1);
    unsigned* most = zeros<unsigned>(1);
    const auto as_float = [&] { return __half2float(__ushort_as_half(first_of(half_sum))); };
    narrow::float16_narrow<<<grid, block>>>(half_x, half_sums, n);
    narrow::float16_narrow<<<1, block>>>(half_sums, half_sum, grid);
    relative("float16 in float16", as_float(), right);
    magnitude::float16_magnitude_first<<<grid, block>>>(half_x, most, n);
    magnitude::float16_magnitude_second<<<grid, block>>>(half_x, half_sums, n, most);
    magnitude::float16_magnitude_third<<<1, block>>>(half_sums, half_sum, grid, most, n);
    relative("float16, scaled", as_float(), right);
    promoted::float16_promoted_first<<<grid, block>>>(half_x, partials, n);
    promoted::float16_promoted_second<<<1, block>>>(partials, sums, grid);
    relative("float16 in float32", first_of(sums), right);
    CHECK(cudaDeviceSynchronize());
    std::printf("sum: %s\n", good ? "right" : "WRONG");
    return !good;
}

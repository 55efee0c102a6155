// CUB's device-wide sum behind a C function, to be timed beside ours in one process.
#include <cub/device/device_reduce.cuh>

template <class In, class Out>
static int sum(void* workspace, size_t* bytes, const void* in, void* out, long long n, cudaStream_t stream)
{
    return cub::DeviceReduce::Sum(workspace, *bytes, static_cast<const In*>(in), static_cast<Out*>(out), n, stream);
}

#define EXPORT(name, In, Out)                                                                                       \
    extern "C" int name(void* w, size_t* b, const void* in, void* out, long long n, cudaStream_t s)                 \
    {                                                                                                               \
        return sum<In, Out>(w, b, in, out, n, s);                                                                   \
    }

EXPORT(cub_sum_float32, float, float)
EXPORT(cub_sum_float64, double, double)
EXPORT(cub_sum_int32, int, long long)
EXPORT(cub_sum_uint8, unsigned char, unsigned int)

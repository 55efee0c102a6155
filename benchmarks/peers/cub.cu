// CUB's reductions behind C functions, one kind and type a library: compiled with -DKIND_... -DIN=... -DOUT=...
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_segmented_reduce.cuh>
#include <cub/version.cuh>
#include <cuda/std/functional>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#if __has_include(<cuda/__execution/determinism.h>) && CUB_VERSION >= 300100
#define HAS_DETERMINISM 1
#include <cuda/__execution/determinism.h>
#include <cuda/__execution/require.h>
#include <cuda/memory_resource>
#include <cuda/std/execution>
#include <cuda/stream_ref>
#else
#define HAS_DETERMINISM 0
#endif

using In = IN;
using Out = OUT;

extern "C" int peer_version() { return CUB_VERSION; }

#if defined(KIND_SUM)

// The accumulator is Out: wider than the element where ours is too.
extern "C" int peer_call(void* w, size_t* b, const void* in, void* out, long long n, cudaStream_t s)
{
    return cub::DeviceReduce::Reduce(w, *b, static_cast<const In*>(in), static_cast<Out*>(out), n,
                                     cuda::std::plus<Out>{}, Out{}, s);
}

#elif defined(KIND_NOT_GUARANTEED) || defined(KIND_GPU_TO_GPU)
#if HAS_DETERMINISM

// The caller's workspace as a memory resource, so that no allocation is timed. Asked for more it answers null.
struct Workspace {
    void* memory;
    size_t size;
    size_t* wanted;
    void* give(size_t bytes)
    {
        *wanted = bytes;
        return memory;
    }
    void* allocate(cuda::stream_ref, size_t bytes, size_t = 256) { return give(bytes); }
    void deallocate(cuda::stream_ref, void*, size_t, size_t = 256) noexcept {}
    void* allocate_sync(size_t bytes, size_t = 256) { return give(bytes); }
    void deallocate_sync(void*, size_t, size_t = 256) noexcept {}
    bool operator==(const Workspace& other) const { return memory == other.memory; }
    bool operator!=(const Workspace& other) const { return memory != other.memory; }
    friend void get_property(const Workspace&, cuda::mr::device_accessible) noexcept {}
};

// Without a workspace *b becomes enough for any length: CUB's environments do not answer how much they want.
extern "C" int peer_call(void* w, size_t* b, const void* in, void* out, long long n, cudaStream_t s)
{
    const size_t enough = size_t(64) << 20;
    if (w == nullptr) {
        *b = enough;
        return 0;
    }
    size_t wanted = 0;
    Workspace workspace{w, *b, &wanted};
#if defined(KIND_GPU_TO_GPU)
    const auto determinism = cuda::execution::require(cuda::execution::determinism::gpu_to_gpu);
#else
    const auto determinism = cuda::execution::require(cuda::execution::determinism::not_guaranteed);
#endif
    using Memory = cuda::std::execution::prop<cuda::mr::get_memory_resource_t, Workspace>;
    using Determinism = cuda::std::remove_const_t<decltype(determinism)>;
    const cuda::std::execution::env<cuda::stream_ref, Memory, Determinism> environment{
        cuda::stream_ref{s}, Memory{cuda::mr::get_memory_resource, workspace}, determinism};
    const int status = cub::DeviceReduce::Reduce(static_cast<const In*>(in), static_cast<Out*>(out), n,
                                                 cuda::std::plus<Out>{}, Out{}, environment);
    return wanted > enough ? -1 : status;
}

#else
#error these headers of CUB have no determinism environments
#endif

#elif defined(KIND_ARGMAX)

// The index comes first in `out`, the value 8 bytes after it.
extern "C" int peer_call(void* w, size_t* b, const void* in, void* out, long long n, cudaStream_t s)
{
    auto* index = static_cast<long long*>(out);
    return cub::DeviceReduce::ArgMax(w, *b, static_cast<const In*>(in), reinterpret_cast<In*>(index + 1), index, n, s);
}

#elif defined(KIND_MAX)

extern "C" int peer_call(void* w, size_t* b, const void* in, void* out, long long n, cudaStream_t s)
{
    return cub::DeviceReduce::Max(w, *b, static_cast<const In*>(in), static_cast<In*>(out), n, s);
}

#elif defined(KIND_ROWS)
#if CUB_VERSION < 300100
#error these headers of CUB have no segments of one length
#endif

// `length` elements a segment: n of them.
extern "C" int peer_segments(void* w, size_t* b, const void* in, void* out, long long n, int length, const void*,
                             cudaStream_t s)
{
    return cub::DeviceSegmentedReduce::Sum(w, *b, static_cast<const In*>(in), static_cast<Out*>(out), n, length, s);
}

#elif defined(KIND_SEGMENTS)

extern "C" int peer_segments(void* w, size_t* b, const void* in, void* out, long long n, int, const void* offsets,
                             cudaStream_t s)
{
    auto* begin = static_cast<const long long*>(offsets);
    return cub::DeviceSegmentedReduce::Sum(w, *b, static_cast<const In*>(in), static_cast<Out*>(out), n, begin,
                                           begin + 1, s);
}

#else
#error say which KIND
#endif

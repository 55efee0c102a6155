// The elements of a second array that go with a vector of the first: a mask's, or the other factors of a dot product.
#pragma once
#include "tree/fetch.cuh"

template <class Op> constexpr bool has_second = !is_same<typename Op::Second, Unused>;

// As many elements as a vector of the first array has: 16 bytes if they are of the same type, one byte each if a mask.
template <class Op> union Seconds {
    static constexpr uint32 V = vector_elements<typename Op::Input>, bytes = V * sizeof(typename Op::Second);
    typename Op::Second elements[V];
    typename Word<bytes>::type whole;
};

// A source whose second array's elements may lie anywhere, at any address. They take more instructions and fewer are in flight,
// so kernels use it only in compact code paths. In other sources they lie a fixed step apart and are aligned.
template <class S> struct SecondsAnyhow : S {
    static constexpr SecondsLie seconds_lie = SecondsLie::anyhow;
    __device__ __forceinline__ explicit SecondsAnyhow(const S& source) : S(source) {}
};
template <class Op, class S> __device__ __forceinline__ auto with_seconds_anyhow(const S& source)
{
    if constexpr (has_second<Op>) return SecondsAnyhow<S>(source);
    else return source;
}

// A source whose second array's elements are contiguous, and those that go with a vector are an aligned vector too. So there is
// nothing to check for each vector, and no branch that would separate the loads.
template <class S> struct SecondsInVectors : S {
    static constexpr SecondsLie seconds_lie = SecondsLie::in_vectors;
    __device__ __forceinline__ explicit SecondsInVectors(const S& source) : S(source) {}
};

// The elements from number `index` on that go with a vector of which `bytes` bytes exist; those beside absent elements are not
// read. Loads of sixteen bytes bypass the L1 unless `ThroughL1`.
template <class Op, bool ThroughL1 = false, class S>
__device__ __forceinline__ Seconds<Op> seconds_of(const S& source, uint64 index, int32 bytes = vector_bytes)
{
    if constexpr (!has_second<Op>) {
        return {};
    } else {
        using Second = typename Op::Second;
        constexpr int32 size = sizeof(typename Op::Input), V = Seconds<Op>::V;
        if constexpr (S::seconds_lie == SecondsLie::anyhow) {
            union { uint4 raw; Seconds<Op> seconds; } u;
            if constexpr (S::are_neighbours && sizeof(Second) <= 8) {
                // Of whole arrays few leaves come here, and a small one waits for them: all loads at once.
                const char* from = source.second_at(index);
                if (reinterpret_cast<uint64>(from) % sizeof(Second) == 0) {
                    using W = typename Word<sizeof(Second)>::type;
                    union { Seconds<Op> seconds; W words[V]; } all;
#pragma unroll
                    for (int32 i = 0; i < V; ++i)
                        all.words[i] = load_word_if(i * size < bytes, reinterpret_cast<const W*>(from) + i, W{});
                    return all.seconds;
                }
            }
            u.raw = load_anyhow<Second, V>(bytes / size, [&](uint32 i) { return source.second_at(index + i); });
            return u.seconds;
        } else {
            const char* address = source.second_at(index);
            Seconds<Op> y;
            const int64 step = source.second_step();
            const bool whole = S::seconds_lie == SecondsLie::in_vectors ||
                (step == sizeof(Second) && reinterpret_cast<uint64>(address) % Seconds<Op>::bytes == 0);
            if (whole && bytes >= int32(vector_bytes)) {
                if constexpr (Seconds<Op>::bytes == vector_bytes && !ThroughL1)
                    y.whole = load_streaming(reinterpret_cast<const uint4*>(address));
                else y.whole = __ldg(reinterpret_cast<const decltype(y.whole)*>(address));
            } else {
#pragma unroll
                for (int32 i = 0; i < V; ++i)
                    if (i * size < bytes) y.elements[i] = *reinterpret_cast<const Second*>(address + i * step);
            }
            return y;
        }
    }
}

// The elements that go with a vector which is present as a whole or absent; if absent they are not read and have no meaning.
template <class Op, bool ThroughL1 = false, class S>
__device__ __forceinline__ Seconds<Op> seconds_if(bool present, const S& source, uint64 index)
{
    Seconds<Op> y = {};
    if constexpr (has_second<Op>) {
        constexpr bool whole = S::seconds_lie == SecondsLie::in_vectors && Seconds<Op>::bytes == vector_bytes;
        const auto* address = reinterpret_cast<const uint4*>(whole ? source.second_at(index) : nullptr);
        if constexpr (whole && ThroughL1) y.whole = load_cached_if(present, address);
        else if constexpr (whole) y.whole = load_streaming_if(present, address);
        else if (present) y = seconds_of<Op, ThroughL1>(source, index);
    }
    return y;
}

// The larger and the smaller of elements as they are, without keys: an instruction or two for each, or for a pair.
#pragma once
#include "types.cuh"

// Two neighbours of 16 bits in a word, the first in its low half, and what elements are compared as.
template <class T> struct Pair { uint32 bits; };
template <class T, bool InPairs> struct UnitOf { using type = T; };
template <class T> struct UnitOf<T, true> { using type = Pair<T>; };

// Whether the device compares two of them at once. Then, and where `orders_zeros`, +0.0 is above -0.0.
#if __CUDA_ARCH__ >= 800
template <class T> constexpr bool compares_pairs = is_same<T, float16> || is_same<T, bfloat16>;
template <class T> constexpr bool orders_zeros = is_same<T, float32> || compares_pairs<T>;
#else
template <class T> constexpr bool compares_pairs = false;
template <class T> constexpr bool orders_zeros = false;
#endif
template <class T> using Unit = typename UnitOf<T, compares_pairs<T>>::type;

// The larger or the smaller of two; of two zeros any, unless `orders_zeros`. A NaN wins, or with `Numbers` loses.
template <bool Largest, bool Numbers = false, class T> __device__ __forceinline__ T extreme(T a, T b)
{
    return ((Largest ? a > b : a < b) | (Numbers ? b != b : a != a)) ? a : b;
}

// By one instruction: of a number, or of both halves of a pair each, where every NaN comes out as the same. `in` is the
// register that holds one, `member` the part of it that the instruction takes.
#if __CUDA_ARCH__ >= 800
#define ONE_INSTRUCTION(name, in, member) asm(name " %0, %1, %2;" : "=" in(c member) : in(a member), in(b member))
#define EXTREME_BY_INSTRUCTION(T, type, in, member)                                              \
    template <bool Largest, bool Numbers = false> __device__ __forceinline__ T extreme(T a, T b) \
    {                                                                                            \
        T c;                                                                                     \
        if constexpr (Largest && Numbers) ONE_INSTRUCTION("max." type, in, member);              \
        else if constexpr (Largest) ONE_INSTRUCTION("max.NaN." type, in, member);                \
        else if constexpr (Numbers) ONE_INSTRUCTION("min." type, in, member);                    \
        else ONE_INSTRUCTION("min.NaN." type, in, member);                                       \
        return c;                                                                                \
    }
EXTREME_BY_INSTRUCTION(float32, "f32", "f", )
EXTREME_BY_INSTRUCTION(Pair<float16>, "f16x2", "r", .bits)
EXTREME_BY_INSTRUCTION(Pair<bfloat16>, "bf16x2", "r", .bits)
#undef EXTREME_BY_INSTRUCTION
#undef ONE_INSTRUCTION
#endif

// The same of N units, a power of two.
template <bool Largest, bool Numbers, uint32 N, class U> __device__ __forceinline__ U extreme_of(const U* x)
{
    if constexpr (N == 1) {
        return x[0];
    } else {
        const U front = extreme_of<Largest, Numbers, N / 2>(x);
        return extreme<Largest, Numbers>(front, extreme_of<Largest, Numbers, N / 2>(x + N / 2));
    }
}

// The first of a pair in both halves, and the one that wins.
template <class T> __device__ __forceinline__ Pair<T> repeat_first(Pair<T> x) { return {__byte_perm(x.bits, 0, 0x1010)}; }
template <bool Largest, bool Numbers = false, class T> __device__ __forceinline__ Pair<T> extreme_half(Pair<T> x)
{
    return extreme<Largest, Numbers>(x, Pair<T>{__byte_perm(x.bits, 0, 0x1032)});
}
template <bool Largest, bool Numbers = false, class T> __device__ __forceinline__ T extreme_half(T x) { return x; }

template <class T> __device__ __forceinline__ T element_of(Pair<T> x) { return T{uint16(x.bits)}; }
template <class T> __device__ __forceinline__ T element_of(T x) { return x; }

// An extreme that is zero, with its sign: -0.0 is below +0.0, and no other element lies between them and it.
template <bool Largest, uint32 N> __device__ __forceinline__ float64 with_sign_of_zero(float64 won, const float64* x)
{
    int32 signs = __double2hiint(x[0]);
#pragma unroll
    for (uint32 i = 1; i < N; ++i) signs = Largest ? signs & __double2hiint(x[i]) : signs | __double2hiint(x[i]);
    return won == 0.0 ? __hiloint2double(signs & int32(0x80000000), 0) : won;
}

// The extreme element of whole vectors: a NaN if one is, or with `Numbers` only if all are.
template <class T, bool Largest, bool Numbers, uint32 Vectors> __device__ __forceinline__ T extreme_element(const uint4* v)
{
    constexpr uint32 units = Vectors * 16 / sizeof(Unit<T>);
    union { uint4 raw[Vectors]; Unit<T> units[units]; } u;
#pragma unroll
    for (uint32 t = 0; t < Vectors; ++t) u.raw[t] = v[t];
    const auto won = extreme_of<Largest, Numbers, units>(u.units);
    if constexpr (is_same<T, float64>) return with_sign_of_zero<Largest, units>(won, u.units);
    else return element_of(extreme_half<Largest, Numbers>(won));
}

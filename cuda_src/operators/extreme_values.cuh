// The larger and the smaller of elements themselves, without keys: an instruction or two for each element or pair.
#pragma once
#include "tree/vector_float8.cuh"

// Two neighbouring 16-bit elements in a word, the first in its low half.
template <class T> struct Pair { uint32 bits; };

// Whether the device compares two such elements at once. Where it does, and where `orders_zeros`, +0.0 is above -0.0.
#if __CUDA_ARCH__ >= 900
template <class T> constexpr bool compares_integer_pairs = is_same<T, int16> || is_same<T, uint16>;
#else
template <class T> constexpr bool compares_integer_pairs = false;
#endif
#if __CUDA_ARCH__ >= 800
template <class T> constexpr bool compares_float_pairs = is_same<T, float16> || is_same<T, bfloat16>;
template <class T> constexpr bool orders_zeros = is_same<T, float32> || compares_float_pairs<T>;
#else
template <class T> constexpr bool compares_float_pairs = false;
template <class T> constexpr bool orders_zeros = false;
#endif
template <class T> constexpr bool compares_pairs = compares_integer_pairs<T> || compares_float_pairs<T>;

// The type that elements are compared as. 8-bit elements become 16-bit ones of the same value and order, if those are compared
// in pairs. Where 16-bit integers are not, 8-bit integers become subnormal float16 whose fraction is the byte, with the sign
// bit of int8 flipped: these have the same order.
#if __CUDA_ARCH__ >= 900
using WidenedByte = int16;
#else
using WidenedByte = float16;
#endif
template <class T> struct WidenedOf { using type = T; };
template <> struct WidenedOf<float8_e4m3> { using type = float16; };
template <> struct WidenedOf<float8_e5m2> { using type = float16; };
template <> struct WidenedOf<int8> { using type = WidenedByte; };
template <> struct WidenedOf<uint8> { using type = WidenedByte; };
template <class T> using Widened = typename WidenedOf<T>::type;
template <class T> constexpr bool widens_to_pairs =
    sizeof(T) == 1 && compares_pairs<Widened<T>> && (is_integer<T> || converts_in_pairs<T>);

template <class T> constexpr bool flips_sign = is_same<T, int8> && is_same<Widened<T>, float16>;

template <class T, bool InPairs> struct UnitOf { using type = T; };
template <class T> struct UnitOf<T, true> { using type = Pair<Widened<T>>; };
template <class T> using Unit = typename UnitOf<T, compares_pairs<T> || widens_to_pairs<T>>::type;

// The larger or the smaller of two; of two zeros either one, unless `orders_zeros`. A NaN wins, or with `Numbers` loses.
template <bool Largest, bool Numbers = false, class T> __device__ __forceinline__ T extreme(T a, T b)
{
    return ((Largest ? a > b : a < b) | (Numbers ? b != b : a != a)) ? a : b;
}

// The same by one instruction, for one number or for both halves of a pair; every NaN comes out as the same one. `in` is the
// constraint of the register that holds an operand, `member` the part of the operand that the instruction takes.
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
#if __CUDA_ARCH__ >= 900
#define EXTREME_OF_INTEGERS(T, type)                                                             \
    template <bool Largest, bool Numbers = false> __device__ __forceinline__ T extreme(T a, T b) \
    {                                                                                            \
        T c;                                                                                     \
        if constexpr (Largest) ONE_INSTRUCTION("max." type, "r", .bits);                         \
        else ONE_INSTRUCTION("min." type, "r", .bits);                                           \
        return c;                                                                                \
    }
EXTREME_OF_INTEGERS(Pair<int16>, "s16x2")
EXTREME_OF_INTEGERS(Pair<uint16>, "u16x2")
#undef EXTREME_OF_INTEGERS
#endif
#undef ONE_INSTRUCTION
#endif

// The same for N units, a power of two.
template <bool Largest, bool Numbers, uint32 N, class U> __device__ __forceinline__ U extreme_of(const U* x)
{
    if constexpr (N == 1) {
        return x[0];
    } else {
        const U front = extreme_of<Largest, Numbers, N / 2>(x);
        return extreme<Largest, Numbers>(front, extreme_of<Largest, Numbers, N / 2>(x + N / 2));
    }
}

// Puts the first element of a pair, or the one that wins, into both halves.
template <class T> __device__ __forceinline__ Pair<T> repeat_first(Pair<T> x) { return {__byte_perm(x.bits, 0, 0x1010)}; }
template <bool Largest, bool Numbers = false, class T> __device__ __forceinline__ Pair<T> extreme_half(Pair<T> x)
{
    return extreme<Largest, Numbers>(x, Pair<T>{__byte_perm(x.bits, 0, 0x1032)});
}
template <bool Largest, bool Numbers = false, class T> __device__ __forceinline__ T extreme_half(T x) { return x; }

// The first element of a unit.
template <class T> __device__ __forceinline__ T element_of(Unit<T> x)
{
    if constexpr (is_same<Unit<T>, T>) return x;
    else if constexpr (is_integer<T>) return T(x.bits ^ (flips_sign<T> ? 0x80 : 0));
    else if constexpr (is_float8<T>) return float8_of<T>(uint16(x.bits));
    else return T{uint16(x.bits)};
}

// Four elements that are widened, as two units.
template <class T> __device__ __forceinline__ uint2 widened_pairs(uint32 word)
{
    if constexpr (is_float8<T>) {
        return float16_pairs<T>(word);
    } else if constexpr (is_same<T, uint8> || flips_sign<T>) {
        if (flips_sign<T>) word ^= 0x80808080u;
        return make_uint2(__byte_perm(word, 0, 0x4140), __byte_perm(word, 0, 0x4342));
    } else {
        uint2 pairs;  // bytes 0 and 1, 2 and 3, each sign-extended: __byte_perm has no such selectors
        asm("prmt.b32 %0, %1, 0, 0x9180;" : "=r"(pairs.x) : "r"(word));
        asm("prmt.b32 %0, %1, 0, 0xb3a2;" : "=r"(pairs.y) : "r"(word));
        return pairs;
    }
}

// A vector of widened elements, as eight units.
template <class T> __device__ __forceinline__ void widened_units(uint4 v, Unit<T>* units)
{
    const uint32 words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint2 pairs = widened_pairs<T>(words[i]);
        units[2 * i].bits = pairs.x;
        units[2 * i + 1].bits = pairs.y;
    }
}

// The extremes of such a vector's even and odd places, in the two halves of a unit.
template <class T, bool Largest, bool Numbers = false> __device__ __forceinline__ Unit<T> extreme_unit(uint4 v)
{
    Unit<T> units[8];
    widened_units<T>(v, units);
    return extreme_of<Largest, Numbers, 8>(units);
}

// Gives an extreme that is zero its sign, -0.0 being below +0.0. The other elements then lie on one side of zero, so the signs
// of all elements show it.
template <bool Largest, uint32 N> __device__ __forceinline__ float64 with_sign_of_zero(float64 won, const float64* x)
{
    int32 signs = __double2hiint(x[0]);
#pragma unroll
    for (uint32 i = 1; i < N; ++i) signs = Largest ? signs & __double2hiint(x[i]) : signs | __double2hiint(x[i]);
    return won == 0.0 ? __hiloint2double(signs & int32(0x80000000), 0) : won;
}

// The extreme element of whole vectors: a NaN if any element is, or with `Numbers` only if all are.
template <class T, bool Largest, bool Numbers, uint32 Vectors> __device__ __forceinline__ T extreme_element(const uint4* v)
{
    if constexpr (widens_to_pairs<T>) {
        auto won = extreme_unit<T, Largest, Numbers>(v[0]);
#pragma unroll
        for (uint32 t = 1; t < Vectors; ++t) won = extreme<Largest, Numbers>(won, extreme_unit<T, Largest, Numbers>(v[t]));
        return element_of<T>(extreme_half<Largest, Numbers>(won));
    } else {
        constexpr uint32 units = Vectors * 16 / sizeof(Unit<T>);
        union { uint4 raw[Vectors]; Unit<T> units[units]; } u;
#pragma unroll
        for (uint32 t = 0; t < Vectors; ++t) u.raw[t] = v[t];
        const auto won = extreme_of<Largest, Numbers, units>(u.units);
        if constexpr (is_same<T, float64>) return with_sign_of_zero<Largest, units>(won, u.units);
        else return element_of<T>(extreme_half<Largest, Numbers>(won));
    }
}

// The smallest and the largest element of whole vectors; elements that are widened are so once for both.
template <class T> struct Extremes { T low, high; };
template <class T, uint32 Vectors> __device__ __forceinline__ Extremes<T> extreme_elements(const uint4* v)
{
    if constexpr (widens_to_pairs<T>) {
        Unit<T> low, high;
#pragma unroll
        for (uint32 t = 0; t < Vectors; ++t) {
            Unit<T> units[8];
            widened_units<T>(v[t], units);
            const auto least = extreme_of<false, false, 8>(units), most = extreme_of<true, false, 8>(units);
            low = t == 0 ? least : extreme<false>(low, least);
            high = t == 0 ? most : extreme<true>(high, most);
        }
        return {element_of<T>(extreme_half<false>(low)), element_of<T>(extreme_half<true>(high))};
    } else {
        return {extreme_element<T, false, false, Vectors>(v), extreme_element<T, true, false, Vectors>(v)};
    }
}

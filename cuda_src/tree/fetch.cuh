// Vectors from memory, 16 bytes at any address: shifted, cut by an array's edge, or element by element.
#pragma once
#include "tree/source.cuh"
#include "tree/warp.cuh"

// The type by which so many bytes are loaded.
template <int Bytes> struct Word;
template <> struct Word<1> { using type = unsigned char; };
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<4> { using type = unsigned int; };
template <> struct Word<8> { using type = uint2; };
template <> struct Word<16> { using type = uint4; };

// Whether elements are words of four or eight bytes, which one load each takes where they are aligned.
template <class T> constexpr bool are_words = sizeof(T) == 4 || sizeof(T) == 8;

// One element at a multiple of its size.
template <class T> __device__ __forceinline__ T load_aligned(const char* address)
{
    using W = typename Word<sizeof(T)>::type;
    union { W word; T element; } u;
    u.word = __ldg(reinterpret_cast<const W*>(address));
    return u.element;
}

// A vector loaded element by element: the elements in its first `bytes` bytes, and those of `absent` in place of the others.
// `InOrder` is for words: each load is then one instruction, without a branch, and the compiler keeps them in this order; it
// would otherwise fold some vectors before it loads the others, where registers are few.
template <class T, bool InOrder = false>
__device__ __forceinline__ uint4 load_elements(const char* address, int32 bytes, uint4 absent)
{
    constexpr int32 V = vector_elements<T>, size = sizeof(T);
    using W = typename Word<size>::type;
    const auto* from = reinterpret_cast<const W*>(address);
    VectorOf<W> u = {absent};
#pragma unroll
    for (int32 i = 0; i < V; ++i) {
        if constexpr (InOrder) u.elements[i] = load_word_if(i * size < bytes, from + i, u.elements[i]);
        else if (i * size < bytes) u.elements[i] = __ldg(from + i);
    }
    return u.raw;
}

// The first `bytes` bytes of `raw` (all if 16 or more, none if 0 or less), then those of `rest`.
__device__ __forceinline__ uint4 join_bytes(uint4 raw, uint4 rest, int32 bytes)
{
    // PTX shifts out all bits from a distance of 32 on, which C++ leaves undefined.
    const auto join = [](uint32 word, uint32 other, int32 n) {
        uint32 absent;
        asm("shl.b32 %0, 0xffffffff, %1;" : "=r"(absent) : "r"(max(8 * n, 0)));
        return (word & ~absent) | (other & absent);
    };
    return make_uint4(join(raw.x, rest.x, bytes), join(raw.y, rest.y, bytes - 4), join(raw.z, rest.z, bytes - 8),
                      join(raw.w, rest.w, bytes - 12));
}

__device__ __forceinline__ uint4 keep_bytes(uint4 raw, int32 bytes)
{
    return join_bytes(raw, make_uint4(0, 0, 0, 0), bytes);
}

// The 16 bytes that start `shift` bytes (0 to 15) into the 32 bytes low, high: two selects of whole words, then one of bits.
__device__ __forceinline__ uint4 shift_bytes(uint4 low, uint4 high, uint32 shift)
{
    uint32 w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    const bool by_two = shift & 8u, by_one = shift & 4u;
#pragma unroll
    for (int i = 0; i < 6; ++i) w[i] = by_two ? w[i + 2] : w[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) w[i] = by_one ? w[i + 1] : w[i];
    const uint32 bits = (shift & 3u) * 8u;
    return make_uint4(__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
                      __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits));
}

// 16 bytes at any address, of which the first `bytes` are wanted (all if 16 or more, none if 0 or less), put together from the
// one or two aligned blocks that they lie in. load(wanted, block) loads such a block; neighbours want it too.
template <class Load> __device__ __forceinline__ uint4 load_shifted(const char* address, int32 bytes, Load load)
{
    const uint32 shift = uint32(reinterpret_cast<uint64>(address)) % vector_bytes;
    const auto* block = reinterpret_cast<const uint4*>(address - shift);
    const uint4 first = load(bytes > 0, block);
    return shift_bytes(first, load(bytes > 0 && shift > 0 && int32(shift) + bytes > int32(vector_bytes), block + 1), shift);
}

// The same where both blocks lie inside the array: loaded through the L1, where neighbours find them.
__device__ __forceinline__ uint4 load_inside(const char* address, int32 bytes)
{
    return load_shifted(address, bytes, [](bool wanted, const uint4* block) { return load_cached_if(wanted, block); });
}

// The bits of an element at any address, in compact code: byte by byte where it is not aligned.
template <class T> __device__ __forceinline__ uint4 load_bits(const char* address)
{
    uint64 low = 0, high = 0;
    if (reinterpret_cast<uint64>(address) % sizeof(T) == 0) {
        const auto word = __ldg(reinterpret_cast<const typename Word<sizeof(T)>::type*>(address));
        if constexpr (sizeof(T) == 16) return word;
        else if constexpr (sizeof(T) == 8) return make_uint4(word.x, word.y, 0, 0);
        else return make_uint4(word, 0, 0, 0);
    }
#pragma unroll 1
    for (uint32 i = 0; i < sizeof(T); ++i) {
        const uint64 byte = uint64(uint8(address[i])) << (i % 8 * 8);
        if (i < 8) low |= byte;
        else high |= byte;
    }
    return make_uint4(uint32(low), uint32(low >> 32), uint32(high), uint32(high >> 32));
}

// The first `present` of V elements at any addresses, V * sizeof(T) bytes at most 16, in compact code: one load after the other.
template <class T, uint32 V, class AddressOf> __device__ __forceinline__ uint4 load_anyhow(int32 present, AddressOf address_of)
{
    constexpr uint32 size = sizeof(T), bytes = V * size;
    uint4 all = make_uint4(0, 0, 0, 0);
#pragma unroll 1
    for (int32 i = 0; i < int32(V); ++i) {
        uint4 one = make_uint4(0, 0, 0, 0);
        if (i < present) one = load_bits<T>(address_of(i));
        if constexpr (size == vector_bytes) return one;
        else all = shift_bytes(all, one, size);
    }
    return shift_bytes(all, make_uint4(0, 0, 0, 0), (vector_bytes - bytes) % vector_bytes);
}

// For lane i, byte i of 32 bytes at any address, of which the first `bytes` exist (all if 32 or more, none if 0 or less); 0 for
// a byte that does not exist, which is not read.
__device__ __forceinline__ uint32 load_byte(const char* address, int32 bytes, uint32 lane)
{
    return int32(lane) < bytes ? uint32(uint8(address[lane])) : 0u;
}

// The 16 bytes of which lanes `first` to `first` + 15 hold one each, `first` a multiple of 4. All 32 lanes call it; every lane
// holds the result.
__device__ __forceinline__ uint4 gather_bytes(uint32 byte, uint32 first, uint32 lane)
{
    uint32 word = byte << (8 * (lane % 4));
    word |= shuffle_xor(word, 1);
    word |= shuffle_xor(word, 2);
    return make_uint4(shuffle_from(word, first), shuffle_from(word, first + 4), shuffle_from(word, first + 8),
                      shuffle_from(word, first + 12));
}

// 16 bytes at `address`, a multiple of 16, of which those in [low, high) are the array's. The others are 0 and never read.
__device__ __forceinline__ uint4 load_within(const char* address, const char* low, const char* high)
{
    if (address >= low && address + vector_bytes <= high) return __ldg(reinterpret_cast<const uint4*>(address));
    uint64 front = 0, back = 0;
#pragma unroll 1
    for (uint32 i = 0; i < vector_bytes; ++i) {
        const uint64 byte = address + i >= low && address + i < high ? uint8(address[i]) : 0;
        if (i < 8) front |= byte << (8 * i);
        else back |= byte << (8 * (i - 8));
    }
    return make_uint4(uint32(front), uint32(front >> 32), uint32(back), uint32(back >> 32));
}

// The blocks of 16 bytes that an array's beginning and its end cut, in every lane: of each one lane loads a byte. All 32 lanes make
// them, and no load waits for another.
struct EdgeBlocks {
    const char *low, *high;  // between them lies the array
    uint4 first, last;       // bytes that are not the array's are 0

    __device__ __forceinline__ void load(const char* begin, const char* end, uint32 lane)
    {
        low = begin, high = end;
        const bool of_last = lane >= vector_bytes;
        const char* edge = of_last ? high : low;
        const char* mine = edge - reinterpret_cast<uint64>(edge) % vector_bytes + lane % vector_bytes;
        const uint32 byte = load_byte(mine, mine >= low && mine < high, 0);
        first = gather_bytes(byte, 0, lane), last = gather_bytes(byte, vector_bytes, lane);
    }
    __device__ __forceinline__ uint4 block(const uint4* block) const
    {
        if (reinterpret_cast<const char*>(block) < low) return first;
        return reinterpret_cast<const char*>(block + 1) > high ? last : __ldg(block);
    }
};

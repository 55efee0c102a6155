// A vector of a row at any address, word by word, without a branch: so the loads of several vectors are in flight at once.
//
// The words of neighbouring lanes lie in the same lines, which the L1 keeps from one load to the next. Nothing but the row is
// read: of elements of two bytes a word that the row's begin or end cuts is loaded by its half.
#pragma once
#include "rowops/reductions.cuh"
#include "rowops/vectors.cuh"

// What is loaded if it is wanted; else the registers stay.
__device__ __forceinline__ void load_if(bool wanted, uint32& word, const char* address)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.u32 %0, [%1]; }"
                 : "+r"(word) : "l"(address), "r"(uint32(wanted)));
}
__device__ __forceinline__ void load_half_if(bool wanted, uint32& half, const char* address)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.u16 %0, [%1]; }"
                 : "+r"(half) : "l"(address), "r"(uint32(wanted)));
}
__device__ __forceinline__ void load_if(bool wanted, uint32& low, uint32& high, const char* address)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %3, 0; @p ld.global.v2.u32 {%0, %1}, [%2]; }"
                 : "+r"(low), "+r"(high) : "l"(address), "r"(uint32(wanted)));
}

// Four words in a row.
__device__ __forceinline__ void load_words_if(bool wanted, uint32* words, const char* address)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.u32 %0, [%4]; @p ld.global.u32 %1, [%4+4];"
                 "@p ld.global.u32 %2, [%4+8]; @p ld.global.u32 %3, [%4+12]; }"
                 : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3]) : "l"(address), "r"(uint32(wanted)));
}

// The first `count` elements (all if as many as a vector has, or more; none if 0 or less) from number `index` on: load() begins,
// and joined() has them. In place of the others it has zeros or, `Inside` an array, where whatever lies beside the row may be
// read as well, anything.
template <class T, bool Inside, int Size = sizeof(T)> struct RowWords {
    static constexpr int32 V = vector_elements<T>;
    union { uint4 raw; uint32 words[4]; };

    __device__ __forceinline__ RowWords() : raw{0, 0, 0, 0} {}
    __device__ __forceinline__ void load(const char* row, uint32 index, int32 count)
    {
        const char* address = row + uint64(index) * Size;
#pragma unroll
        for (int32 i = 0; i < V; ++i) {
            uint32* to = words + i * Size / 4;
            if constexpr (Size == 4) load_if(i < count, to[0], address + i * Size);
            else load_if(i < count, to[0], to[1], address + i * Size);
        }
    }
    __device__ __forceinline__ uint4 joined(const char*, uint32, int32) const { return raw; }
};

// Two elements a word: where the row begins inside a word, a vector lies in five, and each two of them make one.
__device__ __forceinline__ bool begins_inside_word(const char* row) { return reinterpret_cast<uint64>(row) & 2; }

template <class T> struct RowWords<T, true, 2> {
    static constexpr int32 W = vector_elements<T> / 2;
    uint32 words[W + 1];

    __device__ __forceinline__ RowWords()
    {
#pragma unroll
        for (uint32& word : words) word = 0;
    }
    __device__ __forceinline__ void load(const char* row, uint32 index, int32 count)
    {
        const bool by = begins_inside_word(row);
        const char* address = row - 2 * int32(by) + uint64(index) * 2;
        load_words_if(count > 0, words, address);
        load_if(count > 0 && by, words[W], address + 4 * W);
    }
    __device__ __forceinline__ uint4 joined(const char* row, uint32, int32) const
    {
        const uint32 order = begins_inside_word(row) ? 0x5432u : 0x3210u;
        return make_uint4(__byte_perm(words[0], words[1], order), __byte_perm(words[1], words[2], order),
                          __byte_perm(words[2], words[3], order), __byte_perm(words[3], words[4], order));
    }
};

// The same with nothing but the row read, for the begin and the end of an array. The element before the first whole word of a row,
// and the one behind its last, are loaded apart: a second load to a word's register would wait for the first.
template <class T> struct RowWords<T, false, 2> {
    static constexpr int32 V = vector_elements<T>;
    uint32 words[V / 2 + 1], first = 0, last = 0;

    struct Cut {
        bool by, begins;  // whether the row begins inside a word, and whether the vector is the row's first one then
        int32 whole, ends;  // how many words are there from the first one on, and which one is there by half
        __device__ __forceinline__ Cut(const char* row, uint32 index, int32 count)
            : by(begins_inside_word(row)), begins(by && index == 0)
        {
            // In halves of words. The next vector's first element comes along with this one's last.
            const int32 halves = count > 0 ? min(count + by, V + 2 * by) : 0;
            whole = halves >> 1;
            ends = halves & 1 ? whole : -1;
        }
    };

    __device__ __forceinline__ RowWords()
    {
#pragma unroll
        for (uint32& word : words) word = 0;
    }
    __device__ __forceinline__ void load(const char* row, uint32 index, int32 count)
    {
        const Cut cut(row, index, count);
        const char* address = row - 2 * int32(cut.by) + uint64(index) * 2;
#pragma unroll
        for (int32 k = 0; k <= V / 2; ++k) load_if(k < cut.whole && !(k == 0 && cut.begins), words[k], address + 4 * k);
        load_half_if(cut.begins && count > 0, first, row);
        load_half_if(cut.ends >= 0, last, row + uint64(index + count - 1) * 2);
    }
    __device__ __forceinline__ uint4 joined(const char* row, uint32 index, int32 count) const
    {
        const Cut cut(row, index, count);
        const uint32 order = cut.by ? 0x5432u : 0x3210u;
        const auto word = [&](int32 k) { return k == cut.ends ? last : words[k]; };
        return make_uint4(__byte_perm(cut.begins ? first << 16 : word(0), word(1), order), __byte_perm(word(1), word(2), order),
                          __byte_perm(word(2), word(3), order), __byte_perm(word(3), word(4), order));
    }
};

// The same at a multiple of 16 bytes, by one load, with whatever lies past `count` in the last vector.
template <class T> struct RowBlock {
    uint4 raw;
    __device__ __forceinline__ void load(const char* row, uint32 index, int32 count)
    {
        raw = load_row_vector_if(count > 0, row + uint64(index) * sizeof(T));
    }
    __device__ __forceinline__ uint4 joined(const char*, uint32, int32) const { return raw; }
};
template <class T, Begin Where, bool Inside>
using RowVector = typename Chosen<Where == Begin::aligned, RowBlock<T>, RowWords<T, Inside>>::type;

// Copies parts of rows that lie apart, for the elements of chunks that two ranks share.
#pragma once
#include "tree/source.cuh"

// Fields of eight bytes each; all but the first two in bytes.
struct CopyRows {
    const char* source;
    char* target;
    uint64 rows;          // how many
    uint64 width;         // bytes that are copied of each
    uint64 source_apart;  // from one row to the next
    uint64 target_apart;
};

// `source` lies at any address, `target` at multiples of a Word, of which all bytes above are multiples.
template <class Word> __device__ __forceinline__ void copy_rows(const CopyRows& copy)
{
    launch_dependents();
    wait_for_prerequisites();
    const uint64 words = copy.width / sizeof(Word), count = copy.rows * words;
    for (uint64 i = uint64(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += uint64(gridDim.x) * blockDim.x) {
        const uint64 row = i / words, byte = i % words * sizeof(Word);
        const Word value = load_element<Word>(copy.source + row * copy.source_apart + byte);
        *reinterpret_cast<Word*>(copy.target + row * copy.target_apart + byte) = value;
    }
}

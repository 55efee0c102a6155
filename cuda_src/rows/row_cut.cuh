// How the host has cut rows of one or more leaves, and which of them a warp has.
#pragma once
#include "columns/shape.cuh"

// `Problem::count`, which row_strategy.RowStrategy.count makes.
struct RowCut {
    uint32 parts;   // clusters that share a row
    uint32 warps;   // of a block, that a row has
    uint32 blocks;  // of a cluster
    uint32 bits;    // log2 of `warps` where a block has several rows, else that of the most warps of a block
    uint32 places;  // blocks that are resident on a multiprocessor at once, about

    __device__ __forceinline__ explicit RowCut(uint64 word)
        : parts(uint32(word)), warps(uint32(word >> 32) & 255), blocks(uint32(word >> 40) & 255), bits(uint32(word >> 48) & 255),
          places(uint32(word >> 56))
    {}

    // Rows of a block.
    __device__ __forceinline__ uint32 rows() const { return max(1u, blockDim.x / lanes >> bits); }

    // Which of them a warp of the block takes part in, and as the how manieth.
    __device__ __forceinline__ uint32 group(uint32 warp) const { return warp >> bits; }
    __device__ __forceinline__ uint32 member(uint32 warp) const { return warp - (warp >> bits << bits); }
};

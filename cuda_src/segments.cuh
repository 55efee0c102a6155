// Segments of one array, given by offsets: segment i is elements offsets[i] to offsets[i + 1] - 1.
//
// The first of two kernels folds short segments, a warp thirty-two of them, and puts the long ones into a queue; the second
// one cuts these into tiles, one a block, and blocks after the others fold the partials as they come.
#pragma once
#include "reduce_batch.cuh"

// The argument of both entries; `second` is the offsets, `length` the elements of the array, `rows` the segments.
struct SegmentProblem : Problem {
    int64 low, high;
    uint64 capacity;  // entries that the queue has room for, and tiles that the partials have: enough for offsets
    uint64 room;      // that ascend; for others nothing outside is written
};

constexpr uint32 long_leaves = 16;  // a segment of more leaves goes into the queue
constexpr uint32 few_segments = 256;  // up to so many of the queue's have a block each to fold their partials

// Leaves of a tile, each by a warp: fewer where threads need more registers.
template <class Op> constexpr int tile_warps = sizeof(typename Op::Accumulator) > 8 ? 8 : 16;

constexpr uint32 entries_at_once = 8;  // of more, so many have a block together

struct alignas(16) QueueEntry {
    uint64 segment, first_tile, begin, length;  // its elements from number `begin` on
};

// The workspace: the queue's state in the header's place, then the queue and the partials.
struct SegmentQueue {
    uint64* state;   // entries in the upper 24 bits, tiles below
    uint32* done;    // blocks of the second kernel that have ended
    uint32* claims;  // what these have taken of tiles and entries
    QueueEntry* entries;
    char* partials;

    __device__ __forceinline__ explicit SegmentQueue(const SegmentProblem& problem)
    {
        state = reinterpret_cast<uint64*>(problem.workspace);
        done = reinterpret_cast<uint32*>(problem.workspace + 8);
        claims = done + 1;
        entries = reinterpret_cast<QueueEntry*>(problem.workspace + sizeof(GridHeader));
        partials = reinterpret_cast<char*>(entries + problem.capacity);
    }
};
constexpr int tile_bits = 40;

// What the queue holds once all is in it: tiles, and then groups of `each` entries, are the items of the second kernel.
struct QueueContents {
    uint32 count, tiles, each, items;

    __device__ __forceinline__ explicit QueueContents(const SegmentProblem& problem)
    {
        const uint64 state = *SegmentQueue(problem).state;
        count = uint32(min(state >> tile_bits, problem.capacity));
        tiles = uint32(min(state & ((uint64(1) << tile_bits) - 1), problem.room));
        each = count <= few_segments ? 1 : entries_at_once;
        items = tiles + (count + each - 1) / each;
    }
    // Whether the grid has a block for each item.
    __device__ __forceinline__ bool has_blocks() const { return items <= gridDim.x; }
};

constexpr uint64 no_segment = ~uint64(0);  // of an entry for which there is no room, as happens if offsets do not ascend
using SegmentRows = ContiguousRows<OneAxis>;

template <class Op> struct SegmentSource : Source<Op> {
    const SegmentProblem& problem;

    // Offsets that lead outside of the array are taken for its end: nothing outside is ever read.
    static __device__ __forceinline__ uint64 inside_array(const SegmentProblem& p, int64 offset)
    {
        return offset < 0 ? 0 : min(uint64(offset), p.length);
    }
    // Whether its vectors are: it begins and ends at multiples of 16 bytes.
    __device__ __forceinline__ bool is_whole() const
    {
        return (reinterpret_cast<uint64>(this->begin) | this->row.length * sizeof(typename Op::Input)) % vector_bytes == 0;
    }
    __device__ __forceinline__ SegmentSource(const SegmentProblem& p, uint64 first, uint64 end)
        : Source<Op>(p, p.elements + first * sizeof(typename Op::Input), nullptr, end > first ? end - first : 0), problem(p) {}
};

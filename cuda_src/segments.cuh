// Segments of one array, given by offsets: segment i is elements offsets[i] to offsets[i + 1] - 1.
//
// The first of two kernels folds short segments, a warp thirty-two of them, and puts the long ones into a queue; the second
// one cuts these into tiles, which its blocks share out, and the last block of a segment to come folds its partials.
#pragma once
#include "reduce_batch.cuh"

// The argument of both entries; `second` is the offsets, `length` the elements of the array, `rows` the segments.
struct SegmentProblem : Problem {
    int64 low, high;
    uint64 capacity;  // entries that the queue has room for, and tiles that the partials have: enough for offsets
    uint64 room;      // that ascend; for others nothing outside is written
};

constexpr uint32 long_leaves = 16;  // a segment of more leaves goes into the queue
constexpr int segment_warps = 8;

struct QueueEntry {
    uint64 segment, first_tile;
};

// The workspace: the queue's state in the header's place, then the queue, one ticket an entry, and the partials.
struct SegmentQueue {
    uint64* state;  // entries in the upper 24 bits, tiles below
    uint32* done;   // blocks of the second kernel that have ended
    QueueEntry* entries;
    uint32* tickets;
    char* partials;

    __device__ __forceinline__ explicit SegmentQueue(const SegmentProblem& problem)
    {
        state = reinterpret_cast<uint64*>(problem.workspace);
        done = reinterpret_cast<uint32*>(problem.workspace + 8);
        entries = reinterpret_cast<QueueEntry*>(problem.workspace + sizeof(GridHeader));
        tickets = reinterpret_cast<uint32*>(entries + problem.capacity);
        partials = reinterpret_cast<char*>(tickets + (problem.capacity + 3) / 4 * 4);
    }
};
constexpr int tile_bits = 40;
constexpr uint64 no_segment = ~uint64(0);  // of an entry for which there is no room, as happens if offsets do not ascend
using SegmentRows = ContiguousRows<OneAxis>;

template <class Op> struct SegmentSource : Source<Op> {
    const SegmentProblem& problem;

    // Offsets that lead outside of the array are taken for its end: nothing outside is ever read.
    template <class Offset>
    static __device__ __forceinline__ uint64 offset_at(const SegmentProblem& p, uint64 index)
    {
        const int64 offset = int64(reinterpret_cast<const Offset*>(p.second)[index]);
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

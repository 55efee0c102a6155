// Segments of one array, given by offsets: segment i is elements offsets[i] to offsets[i + 1] - 1.
//
// Of two kernels the first folds the short segments, thirty-two by each warp, and puts the long ones into a queue; the second
// cuts these into tiles, one a block, and further blocks fold the partials as they come.
#pragma once
#include "rows/reduce_batch.cuh"

// The argument of both entries: `second` is the offsets, `length` the elements of the array, `rows` the number of segments.
struct SegmentProblem : Problem {
    int64 low, high;
    uint64 capacity;  // how many entries the queue has room for, and how many tiles the partials: enough if
    uint64 room;      // offsets ascend; if they do not, nothing outside is written
};

constexpr uint32 long_leaves = 16;  // a segment of more leaves goes into the queue
constexpr uint32 few_segments = 256;  // with up to so many in the queue, a block folds the partials of each

// Leaves of a tile, one for each warp; fewer where threads need more registers.
template <class Op> constexpr int tile_warps = sizeof(typename Op::Accumulator) > 8 ? 8 : 16;

constexpr uint32 entries_at_once = 8;  // with more in the queue, so many entries share a block

struct alignas(16) QueueEntry {
    uint64 segment, first_tile, begin, length;  // its elements from number `begin` on
};

// The workspace: the queue's state in place of the header, then the queue, then the partials.
struct SegmentQueue {
    uint64* state;   // number of entries in the upper 24 bits, of tiles below
    uint32* done;    // blocks of the second kernel that have ended
    uint32* claims;  // how many tiles and entries these have claimed
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

// What the queue holds when it is complete. The items of the second kernel are the tiles, then groups of `each` entries.
struct QueueContents {
    uint32 count, tiles, each, items;

    __device__ __forceinline__ explicit QueueContents(const SegmentProblem& problem)
    {
        // A strong read: blocks that only fold tiles do not count themselves as done before the queue is emptied.
        const uint64 state = load_relaxed(SegmentQueue(problem).state);
        count = uint32(min(state >> tile_bits, problem.capacity));
        tiles = uint32(min(state & ((uint64(1) << tile_bits) - 1), problem.room));
        each = count <= few_segments ? 1 : entries_at_once;
        items = tiles + (count + each - 1) / each;
    }
    // Whether the grid has a block for each item.
    __device__ __forceinline__ bool has_blocks() const { return items <= gridDim.x; }
};

constexpr uint64 no_segment = ~uint64(0);  // of an entry for which there is no room, as happens if offsets do not ascend
using SegmentRows = ContiguousRows;

template <class Op> struct SegmentSource : Source<Op> {
    const SegmentProblem& problem;

    // Offsets that lead outside the array are clamped to it: nothing outside is ever read.
    static __device__ __forceinline__ uint64 inside_array(const SegmentProblem& p, int64 offset)
    {
        return offset < 0 ? 0 : min(uint64(offset), p.length);
    }
    // Whether it consists of whole vectors: it begins and ends at multiples of 16 bytes.
    __device__ __forceinline__ bool is_whole() const
    {
        return (reinterpret_cast<uint64>(this->begin) | this->row.length * sizeof(typename Op::Input)) % vector_bytes == 0;
    }
    __device__ __forceinline__ SegmentSource(const SegmentProblem& p, uint64 first, uint64 end)
        : Source<Op>(p, p.elements + first * sizeof(typename Op::Input), nullptr, end > first ? end - first : 0), problem(p) {}
};

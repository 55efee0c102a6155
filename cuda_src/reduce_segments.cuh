// Segments of one array, given by offsets: segment i is elements offsets[i] to offsets[i + 1] - 1.
//
// The first kernel folds short segments, a warp thirty-two of them, and puts the long ones into a queue; the second one
// cuts these into tiles, which its blocks share out, and the last block of a segment to come folds its partials.
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

// Thirty-two short segments of a warp: each lane has one of them, as elements from the first one's beginning on.
struct ShortSegments {
    uint64 number, origin;  // the first segment's, and that of its first element
    uint32 begin, length;
};

// These, whose longest has at most S steps: G lanes fold one, as many at once as make eight vectors a lane or thirty-two
// segments. Numbers of 32 bits, for there is more to compute than to load.
template <class Op, int G, int S, class Fetch>
__device__ __forceinline__ void
fold_segments(const SegmentProblem& problem, const ShortSegments& segments, Fetch fetch, uint32 lane)
{
    using T = typename Op::Input;
    constexpr int groups = lanes / G, N = steps / S < G ? steps / S : G, size = sizeof(T);
    constexpr uint32 V = vector_elements<T>;
    const char* origin = problem.elements + segments.origin * size;
#pragma unroll 1
    for (uint32 base = 0; base < lanes; base += N * groups) {
        uint32 begin[N], length[N];
        uint4 v[N * S];
        const auto bytes_of = [=](uint32 count, int t) { return (int32(count) - int32((t * lanes + lane % G) * V)) * size; };
#pragma unroll
        for (int i = 0; i < N; ++i) {
            begin[i] = shuffle_from(segments.begin, base + i * groups + lane / G);
            length[i] = shuffle_from(segments.length, base + i * groups + lane / G);
            const char* mine = origin + (begin[i] + lane % G * V) * size;
#pragma unroll
            for (int t = 0; t < S; ++t) v[i * S + t] = fetch(mine + t * leaf_bytes / steps, bytes_of(length[i], t));
        }
        typename Op::Accumulator a[N];
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const SegmentSource<Op> source(problem, segments.origin + begin[i], segments.origin + begin[i] + length[i]);
            typename Op::Accumulator part[S];
#pragma unroll
            for (int t = 0; t < S; ++t)
                part[t] = fold_vector_part<Op>(source, v[i * S + t], (t * lanes + lane % G) * V, bytes_of(length[i], t));
            a[i] = fold_array<Op, S>(part);
        }
        warp_fold_rows<Op, G, N>(a, lane);
        const uint32 place = base + lane % N * groups + lane / G;
        const uint64 first = segments.origin + shuffle_from(segments.begin, place);
        const SegmentSource<Op> source(problem, first, first + shuffle_from(segments.length, place));
        if (lane % G < N && segments.number + place < problem.rows)
            store_result<Op>(problem, source.row, segments.number + place, a[0]);
    }
}

// Any 16 bytes of which the first `bytes` are wanted, from the two blocks that they lie in.
__device__ __forceinline__ uint4 load_shifted(const char* address, int32 bytes)
{
    const uint32 shift = uint32(reinterpret_cast<uint64>(address)) % vector_bytes;
    const auto* block = reinterpret_cast<const uint4*>(address - shift);
    const uint4 first = load_cached_if(bytes > 0, block);
    return shift_bytes(first, load_cached_if(bytes > 0 && int32(shift) + bytes > int32(vector_bytes), block + 1), shift);
}

template <class Op, class Fetch>
__device__ __forceinline__ void
fold_short_segments(const SegmentProblem& problem, const ShortSegments& segments, uint32 longest, Fetch fetch, uint32 lane)
{
    constexpr uint32 V = vector_elements<typename Op::Input>;
    if (longest <= V) fold_segments<Op, 1, 1>(problem, segments, fetch, lane);
    else if (longest <= 4 * V) fold_segments<Op, 4, 1>(problem, segments, fetch, lane);
    else if (longest <= lanes * V) fold_segments<Op, 32, 1>(problem, segments, fetch, lane);
    else fold_segments<Op, 32, 2>(problem, segments, fetch, lane);
}

template <class Op, class Offset> __device__ __forceinline__ void reduce_short_segments(const SegmentProblem& problem)
{
    using T = typename Op::Input;
    constexpr uint32 V = vector_elements<T>, step = lanes * V;
    launch_dependents();
    wait_for_prerequisites();
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    const uint64 first = (uint64(blockIdx.x) * segment_warps + warp) * lanes;
    if (first >= problem.rows) return;
    const uint64 mine = min(first + lane, problem.rows);  // past the last segment: an empty one
    const uint64 begin = SegmentSource<Op>::template offset_at<Offset>(problem, mine);
    const uint64 end = max(begin, SegmentSource<Op>::template offset_at<Offset>(problem, min(mine + 1, problem.rows)));
    const uint64 length = end - begin, leaves = (length + leaf_elements<T> - 1) / leaf_elements<T>;
    const uint32 longest = warp_max(uint32(min(length, uint64(0xffffffffu))));

    const uint64 origin = shuffle_from(begin, 0);
    const ShortSegments segments{first, origin, uint32(begin - origin), uint32(length)};
    if (sizeof(T) >= 4 && longest <= 2 * step && reinterpret_cast<uint64>(problem.elements) % sizeof(T) == 0) {
        const auto fetch = [](const char* address, int32 bytes) { return load_elements<T>(address, bytes); };
        return fold_short_segments<Op>(problem, segments, longest, fetch, lane);
    }
    const bool inside = __all_sync(0xffffffffu, SegmentRows::inside(SegmentSource<Op>(problem, begin, end)));
    if (inside && longest <= 2 * step)
        return fold_short_segments<Op>(problem, segments, longest, load_shifted, lane);
    if (leaves > long_leaves) {
        const uint64 tiles = (leaves + segment_warps - 1) / segment_warps;
        const SegmentQueue queue(problem);
        const uint64 before = atomic_add_relaxed(queue.state, (uint64(1) << tile_bits) + tiles);
        const uint64 entry = before >> tile_bits, first_tile = before & ((uint64(1) << tile_bits) - 1);
        if (entry < problem.capacity) queue.entries[entry] = QueueEntry{first_tile + tiles <= problem.room ? mine : no_segment, first_tile};
    }
#pragma unroll 1
    for (uint32 i = 0; i < lanes && first + i < problem.rows; ++i) {
        const SegmentSource<Op> source(problem, shuffle_from(begin, i), shuffle_from(end, i));
        const uint64 count = source.leaf_count();
        if (count > long_leaves) continue;
        WarpCounter<Op> counter;
#pragma unroll 1
        for (uint64 leaf = 0; leaf < count; ++leaf)
            counter.push(row_leaf_fold<Op, SegmentRows>(source, leaf, source.is_whole(), lane), lane);
        const auto root = counter.result();
        if (lane == 0) store_result<Op>(problem, source.row, first + i, root);
    }
}

template <class Op, class Offset> __device__ __forceinline__ void reduce_long_segments(const SegmentProblem& problem)
{
    __shared__ BlockSlots<Op, segment_warps> shared;
    __shared__ bool last;
    launch_dependents();
    wait_for_prerequisites();
    const uint32 warp = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    const SegmentQueue queue(problem);
    const uint64 state = *queue.state, count = min(state >> tile_bits, problem.capacity);
    const uint64 tiles = min(state & ((uint64(1) << tile_bits) - 1), problem.room);
    const uint64 each = (tiles + gridDim.x - 1) / gridDim.x, from = blockIdx.x * each, to = min(from + each, tiles);

    uint64 entry = 0;  // the one that tile `from` is of: the last whose first tile is not after it
    for (uint64 beyond = count; from < to && beyond - entry > 1;) {
        const uint64 middle = (entry + beyond) / 2;
        if (queue.entries[middle].first_tile <= from) entry = middle;
        else beyond = middle;
    }
    uint32 turn = 0;
#pragma unroll 1
    for (uint64 tile = from; tile < to; ++tile) {
        while (entry + 1 < count && queue.entries[entry + 1].first_tile <= tile) ++entry;
        const QueueEntry item = queue.entries[entry];
        if (item.segment == no_segment) continue;
        const uint64 begin = SegmentSource<Op>::template offset_at<Offset>(problem, item.segment);
        const SegmentSource<Op> source(problem, begin, SegmentSource<Op>::template offset_at<Offset>(problem, item.segment + 1));
        const uint32 parts = tile_count<Op, segment_warps>(source);
        if (tile - item.first_tile >= parts) continue;  // of an entry beyond the queue's capacity
        auto value = row_leaf_fold<Op, SegmentRows>(source, (tile - item.first_tile) * segment_warps + warp,
                                                       source.is_whole(), lane);
        value = block_fold<Op, segment_warps>(value, shared, turn++);
        auto* slots = reinterpret_cast<Slot<typename Op::Accumulator>*>(queue.partials) + item.first_tile;
        if (threadIdx.x == 0) {
            slots[tile - item.first_tile].publish(value);
            last = atomic_count(&queue.tickets[entry], parts - 1) == parts - 1;
        }
        __syncthreads();
        if (last) {
            value = grid_fold<Op, segment_warps>(slots, parts, shared, turn++);
            if (threadIdx.x == 0) store_result<Op>(problem, source.row, item.segment, value);
        }
        __syncthreads();  // `last` is written again
    }
    // The last block to end empties the queue: all have read its state.
    __syncthreads();
    if (threadIdx.x == 0 && atomic_count_ordered(queue.done, gridDim.x - 1) == gridDim.x - 1) *queue.state = 0;
}

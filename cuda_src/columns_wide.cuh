// The neighbouring rows of one thread of a block where a load takes 16 bytes across them: elements go straight to registers.
#pragma once
#include "overlap.cuh"
#include "wide_lane.cuh"

// Whether a thread's elements go straight to registers: where it loads 16 bytes across its rows, of a second array too.
template <class Op, int C>
constexpr bool are_wide = C > 1 && C * sizeof(typename Op::Input) == vector_bytes && is_same<typename Op::Pivot, Unused> &&
    (!has_second<Op> || sizeof(typename Op::Second) == sizeof(typename Op::Input));

// X threads of the block stand side by side, with C rows each; those behind each other have the same rows, and neighbouring
// lanes of them. Each thread folds K lanes: after each, all move on to the lanes that follow those of the whole block. Copies
// to shared memory, of which each thread takes 4 bytes, would keep the memory less busy
// (benchmarks/NOTES.md, "Columns of aligned rows").
template <class Op, class Kept, int C, int Lanes, int Steps, int K, int X, int Threads> struct WideColumns {
    using T = typename Op::Input;
    using A = typename Op::Accumulator;
    using Lane = WideLane<Op, C, Steps, Threads>;
    using Folds = typename Lane::Folds;
    static constexpr int V = vector_elements<T>, behind = X < int(lanes) ? int(lanes) / X : 1, depth = Threads / X;

    // What all threads of the block have in common: in registers it would take those that the elements need.
    struct Shared {
        typename Lane::Waiting waiting;
        const char* begin;  // the first element
        const char* other;  // and that of a second array
        uint64 first_lane;  // counted over all leaves
    };

    const ShapedProblem& problem;
    Shared& shared;
    uint64 first_row, first_lane, length;  // the block's first row and lane
    int rows;                              // how many the block has
    const char* begin;                     // the block's first element, until it is shared
    const char* other = nullptr;           // and that of a second array

    __device__ __forceinline__ WideColumns(const ShapedProblem& p, Shared& s, uint64 row, int block_rows, uint64 lane)
        : problem(p), shared(s), first_row(row), first_lane(lane), length(p.actual_length()), rows(block_rows)
    {
        begin = p.elements + Kept::offset(p.kept, row, 0, false);
        if constexpr (has_second<Op>) other = p.second + Kept::offset(p.kept, row, 0, true);
    }

    // Whether elements of C rows can be loaded together; all threads of the block agree on it.
    __device__ __forceinline__ bool together() const
    {
        uint64 addresses = reinterpret_cast<uint64>(begin) | uint64(problem.reduced.stride[0]);
        if constexpr (has_second<Op>) {
            if (problem.reduced.count > 1 || problem.kept.second_stride[0] != sizeof(T)) return false;
            addresses |= reinterpret_cast<uint64>(other) | uint64(problem.reduced.second_stride[0]);
        }
        return (addresses | uint64(rows * sizeof(T))) % vector_bytes == 0;
    }

    // Folds the thread's lanes one after the other; all threads of the block call it. Where elements cannot be loaded together,
    // a thread's rows lie X apart instead of side by side, so that neighbouring threads load neighbouring elements.
    template <class Meeting> __device__ __forceinline__ void fold(Meeting& meeting) const
    {
        if (threadIdx.x == 0) shared.begin = begin, shared.other = other, shared.first_lane = first_lane;
        __syncthreads();
        const uint64 leaves_before = (first_lane + depth * K + Lanes - 1) / Lanes;  // including those of this block
        if (!together()) return fold_one_by_one(meeting);
        if (leaves_before * (Lanes * Steps * V) <= length) fold_lanes<Fetch::whole>(meeting);
        else fold_lanes<Fetch::part>(meeting);
    }

private:
    // The number of a lane's first element in its row.
    static __device__ __forceinline__ uint64 index_of(uint64 lane)
    {
        return lane / Lanes * leaf_elements<T> + lane % Lanes * V;
    }
    // Bytes from the block's first row to the thread's.
    __device__ __forceinline__ uint32 across() const
    {
        return uint32(min(int(threadIdx.x % X) * C, rows - C)) * sizeof(T);
    }

    template <class Meeting> __device__ __forceinline__ void fold_one_by_one(Meeting& meeting) const
    {
#pragma unroll 1
        for (uint32 j = 0; j < K; ++j) {
            const uint64 lane = shared.first_lane + threadIdx.x / X + j * depth;
            meeting.begin();
#pragma unroll 1
            for (int c = 0; c < C; ++c) {
                const uint64 row = first_row + min(c * X + int(threadIdx.x % X), rows - 1);
                A a[1];
                // Of any axes, because the compiler would compute ahead of the loop what takes registers: norms would spill.
                const Columns<Op, AnyAxes, 1, Lanes, Steps, behind, depth> one(problem, row, 1, true);
                one.template fold_lanes<1, true>(uint32(lane / Lanes), uint32(lane % Lanes), a);
                meeting.bring(a[0], c);
            }
            meeting.fold(0, j);
        }
    }

    template <Fetch How, class Meeting> __device__ __forceinline__ void fold_lanes(Meeting& meeting) const
    {
        const uint32 past = across();
#pragma unroll 1
        for (uint32 j = 0; j < K; ++j) {
            const uint64 lane = shared.first_lane + threadIdx.x / X + j * depth;
            const uint64 index = index_of(lane);
            const char* at = shared.begin + past + int64(index) * problem.reduced.stride[0];
            const char* other = has_second<Op> ? shared.other + past + int64(index) * problem.reduced.second_stride[0] : nullptr;
            meet(meeting, Lane{problem, shared.waiting, length}.template fold<How>({at, int64(length - index), other}), j);
        }
    }

    // Brings the thread's j-th lane of each row to the meeting, joined with those of its warp's threads of the same rows.
    template <class Meeting> __device__ __forceinline__ void meet(Meeting& meeting, const Folds& folds, uint32 j) const
    {
        meeting.begin();
#pragma unroll
        for (int c = 0; c < C; ++c) {
            A value = folds.of[c];
#pragma unroll
            for (int mask = lanes / behind; mask < int(lanes); mask *= 2) value = Op::combine(value, shuffle_xor(value, mask));
            meeting.bring(value, c);
        }
        meeting.fold(0, j);
    }
};

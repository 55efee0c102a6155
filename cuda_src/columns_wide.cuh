// The neighbouring rows of one thread of a block where a load takes 16 bytes across them: elements go to registers at once.
#pragma once
#include "columns.cuh"

// Whether a thread's elements go to registers at once: where it loads 16 bytes across its rows and nothing else.
template <class Op, int C>
constexpr bool are_wide =
    C > 1 && C * sizeof(typename Op::Input) == vector_bytes && !has_second<Op> && is_same<typename Op::Pivot, Unused>;

// Each thread has K lanes of C rows. Of the block's threads X stand side by side; those behind have the next lanes, and all of
// them together the next after these. Copies to shared memory, of which each thread takes 4 bytes, keep the memory less busy
// (benchmarks/NOTES.md, "Columns of aligned rows").
template <class Op, int C, int Lanes, int Steps, int K, int X, int Threads> struct WideColumns {
    using T = typename Op::Input;
    using A = typename Op::Accumulator;
    static constexpr int V = vector_elements<T>, behind = X < int(lanes) ? int(lanes) / X : 1, depth = Threads / X;
    static constexpr int apart = int(lanes) * V;  // elements from a step to the next
    static constexpr int at_once = power_within(8 / V, Steps);  // steps, 128 bytes in flight

    struct Folds {
        A of[C];
    };

    const ShapedProblem& problem;
    uint64 first_row, first_lane, length;  // the block's row and lane, of those of all leaves
    int rows;                              // that the block has

    __device__ __forceinline__ WideColumns(const ShapedProblem& p, uint64 row, int block_rows, uint64 lane)
        : problem(p), first_row(row), first_lane(lane), length(p.actual_length()), rows(block_rows) {}

    // Whether elements of C rows can be loaded together, which all threads of the block agree on.
    __device__ __forceinline__ bool together() const
    {
        const uint64 addresses = reinterpret_cast<uint64>(begin(0)) | uint64(problem.reduced.stride[0]);
        return (addresses | uint64(rows * sizeof(T))) % vector_bytes == 0;
    }

    // Folds the thread's lanes one after the other; all threads of the block call it. Where elements cannot be loaded together,
    // the thread's c-th row is as far from its first as X threads have of one row each: neighbours are loaded by neighbours.
    template <class Meeting> __device__ __forceinline__ void fold(Meeting& meeting) const
    {
        const uint64 leaves_before = (first_lane + depth * K + Lanes - 1) / Lanes;  // and of this block
        if (!together()) return fold_one_by_one(meeting);
        if (leaves_before * (Lanes * Steps * V) <= length) fold_lanes<Fetch::whole>(meeting);
        else fold_lanes<Fetch::part>(meeting);
    }

private:
    __device__ __forceinline__ const char* begin(int row) const
    {
        return problem.elements + problem.kept.offset(first_row + row, false);
    }

    template <class Meeting> __device__ __forceinline__ void fold_one_by_one(Meeting& meeting) const
    {
#pragma unroll 1
        for (uint32 j = 0; j < K; ++j) {
            const uint64 lane = first_lane + threadIdx.x / X + j * depth;
            meeting.begin();
#pragma unroll 1
            for (int c = 0; c < C; ++c) {
                const uint64 row = first_row + min(c * X + int(threadIdx.x % X), rows - 1);
                A a[1];
                const Columns<Op, 1, Lanes, Steps, behind, depth> one(problem, row, 1, true);
                one.template fold_lanes<1>(uint32(lane / Lanes), uint32(lane % Lanes), a);
                meeting.bring(a[0], c);
            }
            meeting.fold(0, j);
        }
    }

    // Where the thread is in its rows, and how many of their elements are still to come from there on.
    struct Place {
        const char* at;
        int64 left;

        __device__ __forceinline__ void move(int elements, int64 stride) { at += elements * stride, left -= elements; }
    };

    template <Fetch How, class Meeting> __device__ __forceinline__ void fold_lanes(Meeting& meeting) const
    {
        const int64 stride = problem.reduced.stride[0];
        const uint64 first = first_lane + threadIdx.x / X, index = first / Lanes * leaf_elements<T> + first % Lanes * V;
        const char* row = begin(min(int(threadIdx.x % X) * C, rows - C));
        Place place{row + int64(index) * stride, int64(length - index)};
        uint32 lane = uint32(first % Lanes);
#pragma unroll 1
        for (uint32 j = 0; j < K; ++j) {
            meet(meeting, fold_lane<How>(place), j);  // now it is at the lane's place in the next leaf
            lane = (lane + depth) % Lanes;
            if (depth >= Lanes) place.move((depth / Lanes - 1) * Steps * apart, stride);
            else place.move(lane < depth ? (depth - Lanes) * V : depth * V - Steps * apart, stride);
        }
    }

    template <Fetch How> __device__ __forceinline__ Folds fold_lane(Place& place) const
    {
        if constexpr (Op::folds_elements && (How == Fetch::whole || fills_absent<Op>)) return fold_elements<How>(place);
        else return fold_steps<How, Steps>(place);
    }

    // A lane by the elements that stand for all others, which take fewer registers and instructions than accumulators.
    template <Fetch How> __device__ __forceinline__ Folds fold_elements(Place& place) const
    {
        const uint64 index = length - place.left;
        uint4 all;
#pragma unroll 1
        for (int t = 0; t < Steps; t += at_once) {
            uint4 v[at_once * V];
            load<How>(v, place, absent_elements<Op>());
            const uint4 these = combined<at_once * V>(v);
            all = t == 0 ? these : Op::combine_elements(all, these);
        }
        Folds folds;
#pragma unroll
        for (int c = 0; c < C; ++c) folds.of[c] = fold_slots<Fetch::whole, 0, 1>(&all, index, 0, c);
        return folds;
    }

    // The elements that stand for those of N vectors.
    template <int N> static __device__ __forceinline__ uint4 combined(const uint4* v)
    {
        if constexpr (N == 1) return v[0];
        else return Op::combine_elements(combined<N / 2>(v), combined<N / 2>(v + N / 2));
    }

    // N vectors of a lane, which are behind the place then, and `absent` for those that are.
    template <Fetch How, int N> __device__ __forceinline__ void load(uint4 (&v)[N], Place& place, uint4 absent = {}) const
    {
        const int64 stride = problem.reduced.stride[0], left = place.left;
#pragma unroll
        for (int t = 0; t < N; ++t) {
            const auto* address = reinterpret_cast<const uint4*>(place.at);
            const bool present = t / V * apart + t % V < left;
            v[t] = How == Fetch::whole ? load_streaming(address) : load_streaming_if(present, address, absent);
            place.move(t % V < V - 1 ? 1 : apart - V + 1, stride);
        }
    }

    // So many steps of a lane, which are behind the place then; one at a time where elements may be absent. In loops, for the
    // compiler would load those of a whole lane at once.
    template <Fetch How, int Count> __device__ __forceinline__ Folds fold_steps(Place& place) const
    {
        constexpr int together = How == Fetch::whole ? at_once : 1;
        Folds folds;
        if constexpr (Count > together) {
#pragma unroll 1
            for (int half = 0; half < 2; ++half) {
                const Folds b = fold_steps<How, Count / 2>(place);
#pragma unroll
                for (int c = 0; c < C; ++c) folds.of[c] = half == 0 ? b.of[c] : combine_neighbours<Op>(folds.of[c], b.of[c]);
            }
        } else {
            static_assert(How == Fetch::whole || Count == 1, "what is left is counted from the first step on");
            const int64 left = place.left;
            uint4 v[Count * V];
            load<How>(v, place);
#pragma unroll
            for (int c = 0; c < C; ++c) folds.of[c] = fold_slots<How, 0, Count * V>(v, length - left, left, c);
        }
        return folds;
    }

    // Brings the thread's j-th lane of each row to the others', those of the warp's threads with the same rows together.
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

    // Elements First to First + Count - 1 of those loaded, of the thread's c-th row.
    template <Fetch How, int First, int Count>
    __device__ __forceinline__ A fold_slots(const uint4* v, uint64 index, int64 left, int c) const
    {
        if constexpr (Count == 1) {
            constexpr int further = First / V * apart + First % V;
            if (How != Fetch::whole && further >= left) return Op::identity();
            ColumnVector<T, C> elements;
            elements.whole = v[First];
            const auto row = Source<Op>(problem, nullptr, nullptr, length, false).row;
            return Op::map(ItemOf<Op>{elements.elements[c], Unused{}, index + further}, row);
        } else {
            const A a = fold_slots<How, First, Count / 2>(v, index, left, c);
            return combine_neighbours<Op>(a, fold_slots<How, First + Count / 2, Count / 2>(v, index, left, c));
        }
    }
};

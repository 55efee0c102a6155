// How a thread fetches the elements of neighbouring rows: one load takes an element of each.
#pragma once
#include "columns/column_slots.cuh"

// C neighbouring rows of one thread, of which `available` exist; the others are copies of the last one. N vectors of each are
// fetched together, in at most 2^round_levels rounds. If `Where` is aligned, all C elements of a load exist and are aligned to its
// size; else each thread finds out how they can be loaded. `IsStraight`: there is one reduced axis.
template <class Op, int C, int N, bool IsStraight, Begin Where> struct ColumnFetch {
    using T = typename Op::Input;
    using A = typename Op::Accumulator;
    using Slots = ColumnSlots<Op, C>;
    using Place = Walk<IsStraight>;
    using Seconds = ColumnSeconds<Op, C, IsStraight>;
    static constexpr int V = vector_elements<T>, load_bytes = C * sizeof(T);
    static constexpr bool is_aligned = Where == Begin::aligned;
    // Elements of one or two bytes are loaded by the words that hold them, wherever they are.
    static constexpr bool by_words = !is_aligned && sizeof(T) < 4 && load_bytes <= 4;

    // How the elements of C rows come. together: in one load. words: by the two words that hold them. singly: each by itself.
    // bytes: byte by byte where that is needed.
    enum class By { together, words, singly, bytes };
    const ShapedProblem& problem;
    const char* begin;
    const char* other;
    RowOf<Op> rows[C];
    int available;
    By by;

    __device__ __forceinline__ ColumnFetch(const ShapedProblem& p, uint64 row, int present, uint64 length)
        : problem(p), available(is_aligned ? C : present)
    {
        begin = p.elements + p.kept.offset(row, false);
        if constexpr (has_second<Op>) other = p.second + p.kept.offset(row, true);
        by = is_aligned ? By::together : way_to_load();
        const char* joint = nullptr;  // where the row begins that all these columns are parts of
        if constexpr (!IsStraight && !is_same<typename Op::Pivot, Unused>)
            if (p.joined > 1) joint = p.elements + p.kept.offset(row - p.part(row), false);
#pragma unroll
        for (int c = 0; c < C; ++c) rows[c] = Source<Op>(p, joint != nullptr ? joint : begin + beside(c), nullptr, length).row;
    }

protected:
    // Which vectors of the rows a round has: `count` from `number` on, in a leaf whose first element is `first` and which has `left`.
    struct Vectors {
        uint64 first;
        int left;
        uint32 number, count, log_steps;

        // Elements from the leaf's first to the first of the round's t-th vector.
        __device__ __forceinline__ uint32 past(uint32 t) const
        {
            const uint32 step = number + t & (1u << log_steps) - 1;
            return ((number + t >> log_steps) + step * lanes) * V;
        }
        __device__ __forceinline__ uint64 index(uint32 t) const { return first + past(t); }

        // How many elements there are from the t-th vector on; none if not positive.
        __device__ __forceinline__ int left_from(uint32 t) const { return t < count ? left - int(past(t)) : 0; }
    };

    __device__ __forceinline__ uint32 axes() const { return IsStraight ? 1 : uint32(problem.reduced.count); }

    // Bytes from a column to the next, and from the thread's first to its column c, or to the last that exists. Wide loads are for
    // columns that lie side by side: to multiply by a stride takes registers.
    __device__ __forceinline__ int64 across() const { return load_bytes <= 4 ? problem.kept.stride[0] : int64(sizeof(T)); }
    __device__ __forceinline__ int64 beside(int c) const { return min(c, available - 1) * across(); }

    __device__ __forceinline__ By way_to_load() const
    {
        uint64 addresses = reinterpret_cast<uint64>(begin);
        int64 low = begin - problem.elements, high = low + load_bytes;  // of all elements of the rows
        for (uint32 i = 0; i < axes(); ++i) {
            const int64 stride = IsStraight ? problem.step : problem.reduced.stride[i];
            const int64 span = int64((IsStraight ? problem.in_run : problem.reduced.size[i]) - 1) * stride;
            addresses |= uint64(stride);
            low += min(span, int64(0)), high += max(span, int64(0));
        }
        if (axes() > Place::most_axes || (addresses | uint64(across())) % alignof(T) != 0) return By::bytes;
        if (C > 1 && across() != sizeof(T)) return By::singly;
        if (available == C && addresses % load_bytes == 0) return By::together;
        const bool words_inside = low >= problem.low + 3 && high <= problem.high - 3;
        return by_words && available == C && words_inside ? By::words : By::singly;
    }

    // Finds where a round's vectors begin: of several axes in a loop, in which each comes to its place from the last one's, because
    // of the code that divides by their sizes.
    __device__ __forceinline__ void begin_walks(Place (&at)[N], const Vectors& vectors, bool of_second) const
    {
        const char* from = of_second ? other : begin;
#pragma unroll
        for (int t = 0; t < N; ++t) at[t] = Place{from};
#pragma unroll(IsStraight ? N : 1)
        for (int t = 0; t < N; ++t) {
            if constexpr (!IsStraight)
#pragma unroll
                for (int k = 1; k < N; ++k) at[k - 1] = at[k];
            at[IsStraight ? t : N - 1].begin(problem, from, vectors.index(t), of_second);
        }
    }

    // Fetches a round's vectors. In place of an absent element the row's first is loaded again: the compiler would put the use of a
    // conditional load right behind it.
    template <Fetch How, By Way>
    __device__ __forceinline__ void fetch_all(Slots (&v)[N], Place (&at)[N], const Vectors& vectors) const
    {
        begin_walks(at, vectors, false);
#pragma unroll
        for (int t = 0; t < N; ++t) {
            if (How == Fetch::part && uint32(t) >= vectors.count && !(Op::folds_elements && load_bytes == vector_bytes)) {
                // Halves share registers, which are taken apart and put together: none goes round unwritten.
                if constexpr (sizeof(T) == 2)
#pragma unroll
                    for (int s = 0; s < V; ++s) v[t].clear(s);
                continue;  // not break: NVRTC 13 would then keep the vectors in local memory from sm_100 on
            }
            const int left = vectors.left_from(t);
#pragma unroll
            for (int s = 0; s < V; ++s) {
                load<Way>(v[t].of[s], How == Fetch::whole || s < left ? at[t].place : begin);
                at[t].step(problem, false);
            }
        }
    }

    // One element of each row.
    template <By Way> __device__ __forceinline__ void load(ColumnVector<T, C>& v, const char* from) const
    {
        ColumnWords<T, C> u;
        if constexpr (Way == By::words) {
            const uint32 place = uint32(reinterpret_cast<uint64>(from)) % 4;
            const auto* word = reinterpret_cast<const uint32*>(from - place);
            u.words[0] = __funnelshift_r(__ldg(word), __ldg(word + (place + load_bytes > 4 ? 1 : 0)), place * 8);
            v = u.loaded;
        } else if constexpr (Way == By::singly) {
#pragma unroll
            for (int c = 0; c < C; ++c) v.elements[c] = *reinterpret_cast<const T*>(from + beside(c));
        } else if constexpr (load_bytes == vector_bytes) {
            const uint4 raw = load_streaming(reinterpret_cast<const uint4*>(from));
            u.words[0] = raw.x, u.words[1] = raw.y, u.words[2] = raw.z, u.words[3] = raw.w;
            v = u.loaded;
        } else {
            v.whole = __ldg(reinterpret_cast<const decltype(v.whole)*>(from));
        }
    }

    // The same for any number of reduced axes and elements at any address, which are rare, in compact code.
    __device__ __forceinline__ void fetch_bytes(Slots (&v)[N], const Vectors& vectors) const
    {
#pragma unroll
        for (int t = 0; t < N; ++t)
#pragma unroll
            for (int s = 0; s < V; ++s) v[t].clear(s);
#pragma unroll 1
        for (int i = 0; i < N * V; ++i) {
            const bool there = i % V < vectors.left_from(i / V);
            Place at;
            at.begin(problem, begin, there ? vectors.index(i / V) + i % V : 0, false);
            ColumnVector<T, C> x;
#pragma unroll
            for (int c = 0; c < C; ++c) x.elements[c] = load_element<T>(at.place + beside(c));
#pragma unroll
            for (int k = 0; k < N * V; ++k)
                if (k == i) v[k / V].of[k % V] = x;
        }
    }
};

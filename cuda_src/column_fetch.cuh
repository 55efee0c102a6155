// How a thread fetches elements of neighbouring rows that lie a stride apart: one load takes one element of each row.
#pragma once
#include "column_slots.cuh"

// C rows of one thread, which lie as `Kept` says. Each has `Lanes` lanes of `Steps` steps, powers of two: fewer than 32 and 8
// where rows are shorter than a leaf. `Behind` threads of a warp, a power of two, have the same rows, and neighbouring lanes of
// them. The next lane of each thread is `Apart` lanes further on.
template <class Op, class Kept, int C, int Lanes, int Steps, int Behind = 1, int Apart = Behind> struct ColumnFetch {
    using T = typename Op::Input;
    using A = typename Op::Accumulator;
    using Loaded = ColumnVector<T, C>;
    using Slots = ColumnSlots<Op, C>;
    using Seconds = ColumnSeconds<Op, C>;
    static constexpr int V = Slots::V;
    const char* begin;
    const char* other;
    RowOf<Op> rows[C];
    const ShapedProblem& problem;
    uint64 length;
    int available;
    bool aligned, misplaced;  // to a load across the C rows; not even to an element

    // The thread's rows are number `row` and the C - 1 after it, of which `present` exist; the others are copies of the last
    // one. Threads that exchange values must load in the same way: `all_present` is whether each of them has C rows.
    __device__ __forceinline__
    ColumnFetch(const ShapedProblem& p, uint64 row, int present, bool all_present) : problem(p), available(present)
    {
        length = p.actual_length();
        begin = p.elements + Kept::offset(p.kept, row, 0, false);
        if constexpr (!is_same<typename Op::Second, Unused>) other = p.second + Kept::offset(p.kept, row, 0, true);
        const uint64 addresses = reinterpret_cast<uint64>(begin) | uint64(p.reduced.stride[0]);
        aligned = all_present && addresses % (C * sizeof(T)) == 0;
        misplaced = addresses % alignof(T) != 0;
#pragma unroll
        for (int c = 0; c < C; ++c) rows[c] = Source<Op>(p, begin + min(c, available - 1) * sizeof(T), nullptr, length).row;
    }

protected:
    static __device__ __forceinline__ constexpr uint32 place_of(uint32 lane, uint32 number)
    {
        const uint32 further = number / Steps * Apart;
        return further / Lanes * leaf_elements<T> + (lane + further % Lanes) * V + number % Steps * (lanes * V);
    }
    // Elements from vector `t` to the next.
    static __device__ __forceinline__ constexpr int next_vector(uint32 t)
    {
        return int(place_of(0, t + 1)) - int(place_of(0, t));
    }
    static __device__ __forceinline__ uint64 index_of(uint32 leaf, uint32 lane, uint32 number)
    {
        return uint64(leaf) * leaf_elements<T> + place_of(lane, number);
    }

    // How many elements the row has from a vector's first on; none if not positive. 2^30 stands for more.
    template <Fetch How> __device__ __forceinline__ int present(uint32 leaf, uint32 lane, uint32 number) const
    {
        if (How == Fetch::whole) return V;
        const int64 left = int64(length) - int64(leaf) * leaf_elements<T>;
        return int(max(min(left, int64(1 << 30)), int64(0))) - int(place_of(lane, number));
    }

    // Loads the second array's elements that go with N vectors from `number` on.
    template <Fetch How, int N>
    __device__ __forceinline__ void load_seconds(Seconds (&y)[N], uint32 leaf, uint32 lane, uint32 number) const
    {
        if constexpr (has_second<Op>) {
            const bool placed = seconds_are_placed<Op>(problem);
#pragma unroll
            for (int t = 0; t < N; ++t) {
                const char* from = other + int64(index_of(leaf, lane, number + t)) * problem.reduced.second_stride[0];
                y[t].load(problem, from, present<How>(leaf, lane, number + t), available, placed);
            }
        }
    }

    // Fetches N vectors from `number` on, which is a multiple of N.
    template <Fetch How, int N>
    __device__ __forceinline__ void fetch(Slots (&v)[N], uint32 leaf, uint32 lane, uint32 number) const
    {
        const char* address = begin + int64(index_of(leaf, lane, number)) * problem.reduced.stride[0];
#pragma unroll
        for (int t = 0; t < N; ++t) {
            fetch_vector<How>(v[t], address, present<How>(leaf, lane, number + t));
            address += next_vector(t) * problem.reduced.stride[0];
        }
    }

private:
    // A vector of each row, from `address` on, of which the first `there` elements exist.
    template <Fetch How> __device__ __forceinline__ void fetch_vector(Slots& v, const char* address, int there) const
    {
        if constexpr (How == Fetch::whole || How == Fetch::part || !gathers<T>) {
            fetch_slots<How, 0, V>(v, address, there);
        } else if (sizeof(Loaded) >= 4 && there >= V && are_words_inside(address)) {
            const int64 stride = problem.reduced.stride[0];
#pragma unroll
            for (int s = 0; s < V; ++s) v.of[s] = fetch_words(address + s * stride);
            v.gather();
        } else {
            // Few bytes are fetched one by one: a quarter of the vector's at a time.
            v.clear();
#pragma unroll 1
            for (int s = 0; s < V; s += V / 4) {
                v.make_room();
                fetch_slots<How, V - V / 4, V / 4>(v, address + s * problem.reduced.stride[0], there - s);
            }
        }
    }

    // Count slots from the First on. The address moves from one to the next: a product with the stride for each would take the
    // registers of elements in flight.
    template <Fetch How, int First, int Count>
    __device__ __forceinline__ void fetch_slots(Slots& v, const char* address, int there) const
    {
#pragma unroll
        for (int s = 0; s < Count; ++s, address += problem.reduced.stride[0]) {
            // The compiler would put the use of a conditional load right behind it. So in place of an absent element the row's
            // first one is loaded again.
            fetch_slot<How>(v, First + s, s < there ? address : begin);
        }
        if constexpr (How == Fetch::whole || How == Fetch::part) v.gather();
    }

    // Whether the words that hold bytes of the rows, from the element at `address` to the last one of the vector, lie in the
    // array.
    __device__ __forceinline__ bool are_words_inside(const char* address) const
    {
        const char *low = problem.elements + problem.low + 3, *high = problem.elements + problem.high - 4 * (Slots::words + 1);
        const char* last = address + (V - 1) * problem.reduced.stride[0];
        return address >= low && address <= high && last >= low && last <= high;
    }

    // One element of each row, which are bytes at any address, by the words that hold them.
    static __device__ __forceinline__ Loaded fetch_words(const char* from)
    {
        const uint32 place = uint32(reinterpret_cast<uint64>(from));
        const auto* word = reinterpret_cast<const uint32*>(from - place % 4);
        ColumnWords<T, C> u;
        uint32 next = __ldg(word);
#pragma unroll
        for (int q = 0; q < Slots::words; ++q) {
            const uint32 before = next;
            next = __ldg(word + q + 1);
            u.words[q] = __funnelshift_r(before, next, place * 8);
        }
        return u.loaded;
    }

    // One element of each row.
    template <Fetch How> __device__ __forceinline__ void fetch_slot(Slots& v, int s, const char* from) const
    {
        if constexpr (How == Fetch::whole || How == Fetch::part || !gathers<T>) {
            load_across<How>(v.of[s], from, available);
        } else {
#pragma unroll
            for (int c = 0; c < C; ++c) v.put(s, c, load_element<T>(from + min(c, available - 1)));
        }
    }
};

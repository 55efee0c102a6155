// A vector of each of a thread's neighbouring rows, loaded slot by slot, and the slot level of the tree.
#pragma once
#include "columns/column_loads.cuh"
#include "tree/vector.cuh"

// Whether elements that lie across C rows are gathered into vectors of each row: bytes are, because four of them share a
// register either way.
template <class T> constexpr bool gathers = sizeof(T) == 1;

// Whether the vector of a row is then folded at once, as in rows. What stands for absent elements must be known.
template <class Op, Fetch How>
constexpr bool folds_at_once = gathers<typename Op::Input> && !has_second<Op> &&
    (Op::packed || Op::folds_whole_vectors || Op::folds_with_row || Op::folds_vectors) &&
    (How == Fetch::whole || Op::has_absent || Op::repeats_first);

// The elements of one vector of each of C rows.
template <class Op, int C> struct ColumnSlots {
    using T = typename Op::Input;
    using A = typename Op::Accumulator;
    static constexpr int V = vector_elements<T>;
    static constexpr int words = (sizeof(T) * C + 3) / 4;  // registers of a load
    ColumnVector<T, C> of[V];  // as they are loaded
    union { T elements[V]; uint32 words[4]; uint4 whole; } row[C];  // gathered

    // Before elements change places in a loop: as LaneCounter::clear. The compiler must not see that the zeros are never used.
    __device__ __forceinline__ void clear(int s)
    {
        ColumnWords<T, C> u;
        u.words[0] = 0;
#pragma unroll
        for (int q = 0; q < words; ++q) asm volatile("mov.b32 %0, 0;" : "=r"(u.words[q]));
        of[s].whole = u.loaded.whole;
    }

    // Gathers the vectors of all rows, once all their elements are loaded together.
    __device__ __forceinline__ void gather()
    {
        if constexpr (gathers<T>) {
#pragma unroll
            for (int q = 0; q < words; ++q)
#pragma unroll
                for (int s = 0; s < V; s += 4) transpose(q, s);
        }
    }

    // Folds the row in place `c`, which has the first `there` elements; these have numbers from `index` on.
    template <Fetch How, class Seconds>
    __device__ __forceinline__ A
    fold(const RowOf<Op>& of_row, int c, const Seconds& y, uint64 index, int there) const
    {
        if constexpr (!folds_at_once<Op, How>) {
            return fold_slots<0, V>(of_row, c, y, index, there);
        } else {
            const auto source = with_pivot_from_here(RowAlone<Op>{of_row});
            if constexpr (How == Fetch::whole) return fold_vector<Op>(source, row[c].whole, index);
            const uint4 v = join_bytes(row[c].whole, repeated(absent(source.row, c)), there * int(sizeof(T)));
            const A a = fold_vector<Op>(source, v, index);
            return Op::has_absent ? a : select(there > 0, a, Op::identity());
        }
    }

private:
    // What stands for an absent element of a row.
    __device__ __forceinline__ T absent(const RowOf<Op>& of_row, int c) const
    {
        if constexpr (Op::has_absent) return Op::absent(of_row);
        else return row[c].elements[0];
    }
    static __device__ __forceinline__ uint4 repeated(T x)
    {
        union { T element; uint32 word; } u = {x};
        const uint32 word = __byte_perm(u.word, 0, 0);
        return make_uint4(word, word, word, word);
    }

    __device__ __forceinline__ uint32 word(int s, int q) const
    {
        if constexpr (sizeof(of[s]) < 4) {
            return of[s].whole;
        } else {
            const ColumnWords<T, C> u = {of[s]};
            return u.words[q];
        }
    }

    // Gathers slots s to s + 3 of the four rows whose bytes the loads' words `q` hold.
    __device__ __forceinline__ void transpose(int q, int s)
    {
        const uint32 a = word(s, q), b = word(s + 1, q), c = word(s + 2, q), d = word(s + 3, q);
        const uint32 left = __byte_perm(a, b, 0x5140), right = __byte_perm(a, b, 0x7362);  // two rows each, of slots a and b
        const uint32 left_after = __byte_perm(c, d, 0x5140), right_after = __byte_perm(c, d, 0x7362);
        const uint32 columns[4] = {__byte_perm(left, left_after, 0x5410), __byte_perm(left, left_after, 0x7632),
                                   __byte_perm(right, right_after, 0x5410), __byte_perm(right, right_after, 0x7632)};
#pragma unroll
        for (int k = 0; k < 4; ++k)
            if (4 * q + k < C) row[4 * q + k].words[s / 4] = columns[k];
    }

    // Folds slots First to First + Count - 1 one by one. Depth first, so that a thread holds few accumulators.
    template <int First, int Count, class Seconds>
    __device__ __forceinline__ A
    fold_slots(const RowOf<Op>& of_row, int c, const Seconds& y, uint64 index, int there) const
    {
        if constexpr (Count == 1) {
            const T x = gathers<T> ? row[c].elements[First] : of[First].elements[c];
            return First < there ? Op::map(ItemOf<Op>{x, y.at(First, c), index + First}, of_row) : Op::identity();
        } else {
            const A a = fold_slots<First, Count / 2>(of_row, c, y, index, there);
            return combine_neighbours<Op>(a, fold_slots<First + Count / 2, Count / 2>(of_row, c, y, index, there));
        }
    }
};

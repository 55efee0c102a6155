// The reductions of a row operation: none, one, or several at once, as one operator; and the source of a row's elements.
#pragma once
#include "tree/leaf_steps.cuh"
#include "rowops/in_rows.cuh"

template <class A, class B> struct PairOf { A a; B b; };

// The same in words, without padding: what nobody has written would be shuffled and stored along.
template <class A, class B> struct WordsOf {
    uint32 first[sizeof(A) / 4], second[sizeof(B) / 4];
    WordsOf() = default;
    __device__ __forceinline__ WordsOf(A a, B b)
    {
        put(first, a);
        put(second, b);
    }
    __device__ __forceinline__ A a() const { return taken<A>(first); }
    __device__ __forceinline__ B b() const { return taken<B>(second); }

private:
    template <class T> static __device__ __forceinline__ void put(uint32* words, T value)
    {
        union { T whole; uint32 words[sizeof(T) / 4]; } u;
        u.whole = value;
#pragma unroll
        for (uint32 i = 0; i < sizeof(T) / 4; ++i) words[i] = u.words[i];
    }
    template <class T> static __device__ __forceinline__ T taken(const uint32* words)
    {
        union U { T whole; uint32 words[sizeof(T) / 4]; __device__ U() {} } u;
#pragma unroll
        for (uint32 i = 0; i < sizeof(T) / 4; ++i) u.words[i] = words[i];
        return u.whole;
    }
};

template <class A, class B> struct Both;
template <class Op> constexpr bool is_several = false;
template <class A, class B> constexpr bool is_several<Both<A, B>> = true;

template <bool First, class A, class B> struct Chosen { using type = A; };
template <class A, class B> struct Chosen<false, A, B> { using type = B; };

// What all elements of a row share for an operator: made of the first element or, for terms, what the row is given.
template <class Op, class Given>
__device__ __forceinline__ typename Op::Pivot shared_of(typename Op::Input first, const Given& given)
{
    if constexpr (is_same<typename Op::Pivot, Unused>) return {};
    else if constexpr (is_same<typename Op::Pivot, Given>) return given;
    else if constexpr (is_several<Op>) return Op::pivot(first, given);
    else return Op::pivot(first);
}

// Both reductions of the same elements. Each level of the tree combines both, so each has its own bits.
template <class A, class B>
struct Both : Operator<typename A::Input, WordsOf<typename A::Accumulator, typename B::Accumulator>, Unused> {
    using Input = typename A::Input;
    using Second = typename Chosen<has_second<A>, typename A::Second, typename B::Second>::type;
    using Accumulator = WordsOf<typename A::Accumulator, typename B::Accumulator>;
    static constexpr bool has_pivots = !is_same<typename A::Pivot, Unused> || !is_same<typename B::Pivot, Unused>;
    using Pivot = typename Chosen<has_pivots, PairOf<typename A::Pivot, typename B::Pivot>, Unused>::type;

    template <class Given> static __device__ __forceinline__ Pivot pivot(Input first, const Given& given)
    {
        return {shared_of<A>(first, given), shared_of<B>(first, given)};
    }
    // One of the two's own row and item.
    template <bool First> static __device__ __forceinline__ auto row_of(const Row<Pivot>& row)
    {
        if constexpr (First) {
            RowOf<A> r{row.length, {}, {row.initial[0], row.initial[1]}};
            if constexpr (!is_same<typename A::Pivot, Unused>) r.pivot = row.pivot.a;
            return r;
        } else {
            RowOf<B> r{row.length, {}, {row.initial[0], row.initial[1]}};
            if constexpr (!is_same<typename B::Pivot, Unused>) r.pivot = row.pivot.b;
            return r;
        }
    }
    template <class Op, class I> static __device__ __forceinline__ ItemOf<Op> item_of(const I& item)
    {
        if constexpr (has_second<Op>) return {item.x, item.y, item.index};
        else return {item.x, {}, item.index};
    }

    static __device__ __forceinline__ Accumulator identity() { return {A::identity(), B::identity()}; }
    template <class I> static __device__ __forceinline__ Accumulator map(const I& item, const Row<Pivot>& row)
    {
        return {A::map(item_of<A>(item), row_of<true>(row)), B::map(item_of<B>(item), row_of<false>(row))};
    }
    static __device__ __forceinline__ Accumulator combine(Accumulator x, Accumulator y)
    {
        return {A::combine(x.a(), y.a()), B::combine(x.b(), y.b())};
    }
};

// The fold of nothing, for operations that need no result of a row.
template <class In> struct NoReduction : Operator<In, uint32, Unused> {
    static constexpr bool has_absent = true;
    template <class R> static __device__ __forceinline__ In absent(const R&) { return element_of_bits<In>(0); }
    static __device__ __forceinline__ uint32 identity() { return 0; }
    template <class I, class R> static __device__ __forceinline__ uint32 map(const I&, const R&) { return 0; }
    static __device__ __forceinline__ uint32 combine(uint32, uint32) { return 0; }
};

// A row whose elements the caller has loaded: what the folds of vectors need of a source.
template <class Op> struct HeldRow {
    static constexpr SecondsLie seconds_lie = SecondsLie::in_vectors;
    RowOf<Op> row;
    __device__ __forceinline__ typename Op::Accumulator
    map(typename Op::Input x, typename Op::Second y, uint64 index) const
    {
        return Op::map(ItemOf<Op>{x, y, index}, row);
    }
};

// A reduction of terms, numbers that are made of an element, of what lies beside it and of what its row is given: `Terms` has
// Input, Second, Given and term(item, given), and `Inner` reduces the terms.
template <class Inner, class Terms>
struct OfTerms : Operator<typename Terms::Input, typename Inner::Accumulator, typename Inner::Result> {
    using Second = typename Terms::Second;
    using Pivot = typename Terms::Given;
    using A = typename Inner::Accumulator;
    static constexpr int results = Inner::results;
    static __device__ __forceinline__ A identity() { return Inner::identity(); }
    template <class R> static __device__ __forceinline__ RowOf<Inner> inner(const R& row)
    {
        return {row.length, {}, {row.initial[0], row.initial[1]}};
    }
    template <class I, class R> static __device__ __forceinline__ A map(const I& item, const R& row)
    {
        return Inner::map(ItemOf<Inner>{Terms::term(item, row.pivot), {}, item.index}, inner(row));
    }
    static __device__ __forceinline__ A combine(A a, A b) { return Inner::combine(a, b); }
    template <class R> static __device__ __forceinline__ typename Inner::Result finish(A a, const R& row, int k)
    {
        return Inner::finish(a, inner(row), k);
    }
    template <class R> static __device__ __forceinline__ typename Inner::Result empty(const R& row, int k)
    {
        return Inner::empty(inner(row), k);
    }
};

// The k-th result of a row that has this fold; `low` and `high` are the operator's constants.
template <class Op>
__device__ __forceinline__ auto
result_of_row(typename Op::Accumulator root, RowOf<Op> row, int k, uint64 low, uint64 high)
{
    row.initial[0] = low;
    row.initial[1] = high;
    if constexpr (finishes_empty<Op>) return number(Op::finish(root, row, k));
    else return number(row.length == 0 ? Op::empty(row, k) : Op::finish(root, row, k));
}

// The slot level of a vector of which `count` elements exist (none if 0 or less; in whole vectors all or none), with what lies
// beside them. If elements stand for absent ones they are put into registers of their own even where all are absent: else the
// compiler would keep what it has made of a vector's elements until they are written.
template <class Op, bool Whole = false>
__device__ __forceinline__ typename Op::Accumulator
fold_held(const HeldRow<Op>& source, uint4 raw, const typename Op::Second* y, uint32 index, int32 count, bool may_be_cut = true)
{
    using T = typename Op::Input;
    constexpr int32 V = vector_elements<T>;
    union { uint4 raw; T elements[V]; } u;
    u.raw = raw;
    if constexpr (has_second<Op>) {
        if (count >= V) return fold_elements<Op, 0, V, true>(source, u.elements, y, index, vector_bytes);
        if (Whole || count <= 0) return Op::identity();
        return fold_elements<Op, 0, V, false>(source, u.elements, y, index, count * int32(sizeof(T)));
    } else if constexpr (fills_absent<Op>) {
        if (Whole) raw = select(count > 0, raw, absent_elements<Op>());
        else if (may_be_cut) raw = join_bytes(raw, absent_elements<Op>(), count * int32(sizeof(T)));
        return fold_vector<Op>(source, raw, Seconds<Op>{}, index);
    } else {
        if (count >= V) return fold_vector<Op>(source, raw, Seconds<Op>{}, index);
        if (Whole || count <= 0) return Op::identity();
        return fold_elements<Op, 0, V, false>(source, u.elements, y, index, count * int32(sizeof(T)));
    }
}

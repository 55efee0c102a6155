// Operators made of other operators. They nest in this order, the last one outermost:
// Counted, IgnoringNaN, Mapped, Masked, then WithInitial, or AboutGiven (AboutSecond) and Rooted.
#pragma once
#include "operators/operator_sum.cuh"

// What an element that is left out becomes: the identity, unless the operator has a `skipped` of its own.
template <class Op> __device__ __forceinline__ auto skipped_of(int) -> decltype(Op::skipped()) { return Op::skipped(); }
template <class Op> __device__ __forceinline__ typename Op::Accumulator skipped_of(long) { return Op::identity(); }
template <class Op> __device__ __forceinline__ typename Op::Accumulator skipped() { return skipped_of<Op>(0); }

template <class T> __device__ __forceinline__ bool is_nan(T x)
{
    if constexpr (is_complex<T>) return x.re != x.re || x.im != x.im;
    else return number(x) != number(x);
}

// What a user's float becomes as an integer: its whole part, the smallest or largest value if that is out of range, and 0 for
// NaN. C++ leaves these cases undefined, and the instructions wrap in 8 and 16 bits.
template <class To> __device__ __forceinline__ To whole_part(float64 x)
{
    constexpr uint32 bits = 8 * sizeof(To) - is_signed_integer<To>;
    constexpr float64 above = float64(1ull << (bits - 1)) * 2.0, least = is_signed_integer<To> ? -above : 0.0;
    if (x != x) return To(0);
    if (x >= above) return To(~0ull >> (64 - bits));
    return To(x <= least ? least : x);
}

// What a user's finish returns -> result; a value of the result's own type that C++ cannot compute with stays as it is, and a
// real number becomes a complex one without an imaginary part.
template <class Out, class T> __device__ __forceinline__ Out result_of(T x)
{
    if constexpr (is_integer<Out> && (is_same<T, float32> || is_same<T, float64>)) return whole_part<Out>(x);
    else if constexpr (is_complex<Out> && !is_complex<T>) return Out{narrow<decltype(Out::re)>(x), 0};
    else if constexpr (is_same<T, Out> && !is_integer<T> && !is_same<T, float32> && !is_same<T, float64>) return x;
    else return narrow<Out>(x);
}

// An operator with a map of its own: functions that fold several elements at once would bypass the map, so there are none.
template <class Op> struct Remapped : Op {
    static constexpr bool packed = false, folds_whole_vectors = false, folds_leaves = false, has_absent = false;
    static constexpr bool folds_vectors = false, folds_numbers = false, folds_elements = false, repeats_first = false;
    static constexpr bool folds_with_row = false, folds_aligned_with_row = false, has_absent_pair = false;
};

template <class A> struct Tally {
    A value;
    Split64 count;
};

// Counts the elements that are not left out: that count is the row's length in finish.
template <class Op> struct Counted : Remapped<Op> {
    using Accumulator = Tally<typename Op::Accumulator>;
    static constexpr bool folds_lanes = false;

    static __device__ __forceinline__ Accumulator identity() { return {Op::identity(), Split64(0)}; }
    static __device__ __forceinline__ Accumulator skipped() { return {::skipped<Op>(), Split64(0)}; }
    template <class I, class R> static __device__ __forceinline__ Accumulator map(const I& item, const R& row)
    {
        return {Op::map(item, row), Split64(1)};
    }
    static __device__ __forceinline__ Accumulator combine(Accumulator a, Accumulator b)
    {
        return {Op::combine(a.value, b.value), Split64(a.count.whole() + b.count.whole())};
    }
    template <class R> static __device__ __forceinline__ typename Op::Result finish(Accumulator a, R row, int k)
    {
        row.length = a.count.whole();
        return Op::finish(a.value, row, k);
    }
};

template <class Op> struct IgnoringNaN : Remapped<Op> {
    static constexpr bool folds_leaves = Op::folds_numbers, folds_vectors = folds_leaves;
    template <uint32 vectors = 8>
    static __device__ __forceinline__ typename Op::Accumulator fold_leaf(const uint4* v, uint64 index)
    {
        const auto x = Op::template fold_numbers<vectors>(v);
        return IgnoringNaN::map(Item<typename Op::Input, Unused>{x, {}, index}, Unused{});
    }
    static constexpr bool folds_elements = Op::folds_numbers && Op::folds_elements;
    static __device__ __forceinline__ uint4 combine_elements(uint4 a, uint4 b)
    {
        return Op::template combine_elements<true>(a, b);
    }
    template <class I, class R> static __device__ __forceinline__ typename Op::Accumulator map(const I& item, const R& row)
    {
        return is_nan(item.x) ? skipped<Op>() : Op::map(item, row);
    }
};

// The operator over F::map(item) in place of the elements; F::Input and F::Second are what the arrays hold.
template <class Op, class F> struct Mapped : Remapped<Op> {
    using Input = typename F::Input;
    using Second = typename F::Second;
    static __device__ __forceinline__ typename Op::Pivot pivot(Input first)
    {
        return Op::pivot(F::map(Item<Input, Unused>{first, {}, 0}));
    }
    template <class I, class R> static __device__ __forceinline__ typename Op::Accumulator map(const I& item, const R& row)
    {
        return Op::map(Item<typename Op::Input, Unused>{F::map(item), {}, item.index}, row);
    }
};

// Reduces only the elements where the second array is true.
template <class Op> struct Masked : Remapped<Op> {
    using Second = boolean;
    template <class I, class R> static __device__ __forceinline__ typename Op::Accumulator map(const I& item, const R& row)
    {
        return item.y.bits != 0 ? Op::map(item, row) : skipped<Op>();
    }
};

// Adds one element to each row: the accumulator made of the caller's initial value.
template <class Op> struct WithInitial : Op {
    template <class R>
    static __device__ __forceinline__ typename Op::Result finish(typename Op::Accumulator a, const R& row, int k)
    {
        return Op::finish(Op::combine(initial(row), a), row, k);
    }
    template <class R> static __device__ __forceinline__ typename Op::Result empty(const R& row, int k)
    {
        return Op::finish(initial(row), row, k);
    }

private:
    template <class R> static __device__ __forceinline__ typename Op::Accumulator initial(const R& row)
    {
        union { uint64 words[2]; typename Op::Accumulator value; } u;
        static_assert(sizeof(u) == sizeof(row.initial), "an initial value has 16 bytes at most");
        u.words[0] = row.initial[0];
        u.words[1] = row.initial[1];
        return u.value;
    }
};

// The operator about a pivot that is made of the whole array's first element, which the chunk need not have.
template <class Op> struct AboutGiven : Op {
    static constexpr bool pivot_is_given = true;
};

// The pivot is made of what the second array has for an element: the first element of its row, where that lies elsewhere.
template <class Op> struct AboutSecond : Remapped<Op> {
    using Second = typename Op::Input;
    using Pivot = Unused;
    template <class I, class R>
    static __device__ __forceinline__ typename Op::Accumulator map(const I& item, const R& shared)
    {
        RowOf<Op> row;
        row.length = shared.length;
        row.pivot = Op::pivot(item.y);
        return Op::map(ItemOf<Op>{item.x, {}, item.index}, row);
    }
};

// The accumulator itself, in words, in place of the results: what a chunk of an array leaves to be folded with others'.
template <class A> struct Words { uint32 word[sizeof(A) / 4]; };
template <class Op> struct Rooted : Op {
    using Result = Words<typename Op::Accumulator>;
    static constexpr int results = 1;
    template <class R> static __device__ __forceinline__ Result finish(typename Op::Accumulator a, const R&, int)
    {
        union { typename Op::Accumulator whole; Result words; } u;
        u.whole = a;
        return u.words;
    }
    template <class R> static __device__ __forceinline__ Result empty(const R& row, int)
    {
        return finish(Op::identity(), row, 0);
    }
};

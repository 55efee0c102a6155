// What an operator is: the protocol that every kernel is written against.
//
// An operator is a struct of static members. It inherits defaults from Operator, and has
//   Input, Result        types of the first array's elements and of the results;
//   Second               type of a second array's elements (a mask, the other factor of a dot product), or Unused;
//   Accumulator          any trivially copyable struct of whole 32-bit words;
//   Pivot                what all elements of a row share besides its length, made of the row's first element, or Unused;
//   results              how many values one row gives: 1, or 2 for pairs such as (min, max), stored as planes;
//   identity()           combining with it returns the other operand bit for bit; it stands for what is absent;
//   pivot(first)         only if Pivot is not Unused;
//   pivot_is_given       whether `first` is what the launch's second address points to, not the row's first element;
//   map(item, row)       one element -> accumulator;
//   combine(a, b)        commutative bit for bit; callers put the part of lower index first where that is cheap;
//   ordered(a, b)        optional: the value of combine where every index in a is below every index in b; may be cheaper;
//   finish(a, row, k)    accumulator -> the k-th result;
//   empty(row, k)        the k-th result over no elements;
//   packed               whether fold_packed(vector) folds the elements of 16 bytes at once, to the same bits; zero bytes
//                        must then be elements that change nothing;
//   has_absent           whether absent(row) is an element that changes no result, not even the sign of a zero, if it comes
//                        after the elements of a row that has some; without a pivot it is the same for every row;
//   repeats_first        for operators without such an element: whether copies of a vector's first element, if that exists,
//                        can stand for absent ones after it;
//   has_absent_pair      whether absent_first() and absent_second() are such elements of two arrays beside each other;
//   folds_whole_vectors  whether fold_packed(vector) may be used if all 16 bytes are elements, though not otherwise;
//   folds_with_row       the same of fold_with_row(vector, row);
//   folds_aligned_with_row  the same, in kernels for aligned arrays alone;
//   folds_leaves         whether fold_leaf(vectors, index) folds a lane's eight vectors of a leaf at once, to the same bits;
//                        the first element of the t-th one has number index + 32 V t. Vectors past the end hold absent
//                        elements or, if the operator has none, copies of the lane's first vector;
//   folds_vectors        whether fold_leaf<N> does so for any power of two of them;
//   folds_numbers        whether fold_numbers<N>(vectors) gives the one element that stands for all elements of N vectors
//                        if those that are NaN are left out; a NaN if all are NaN;
//   folds_elements       whether combine_elements(a, b) gives, for 16 bytes of elements each, the elements that stand for
//                        both, place by place, to the same bits in whatever order;
//   folds_lanes          whether fold_lanes(value) folds the values of a warp's 32 lanes at once, to the same bits.
#pragma once
#include "base/rounding.cuh"

struct Unused {};

// One element of a row: `y` is the second array's, `index` its number in the row. What map does not use costs nothing.
template <class Input, class Second> struct Item {
    Input x;
    Second y;
    uint64 index;
};

// What all elements of a row share. `initial` holds the bits of the caller's initial value, as the operator reads them.
template <class Pivot> struct Row {
    uint64 length;
    Pivot pivot;
    uint64 initial[2];
};

template <class In, class Acc, class Out> struct Operator {
    using Input = In;
    using Second = Unused;
    using Accumulator = Acc;
    using Result = Out;
    using Pivot = Unused;
    static constexpr int results = 1;
    static constexpr bool pivot_is_given = false;
    static constexpr bool packed = false;
    static constexpr bool has_absent = false;
    static constexpr bool repeats_first = false;
    static constexpr bool has_absent_pair = false;
    static constexpr bool folds_whole_vectors = false;
    static constexpr bool folds_with_row = false;
    static constexpr bool folds_aligned_with_row = false;
    static constexpr bool folds_leaves = false;
    static constexpr bool folds_vectors = false;
    static constexpr bool folds_numbers = false;
    static constexpr bool folds_elements = false;
    static constexpr bool folds_lanes = false;
};

template <class Op> using ItemOf = Item<typename Op::Input, typename Op::Second>;
template <class Op> using RowOf = Row<typename Op::Pivot>;

template <class Op>
__device__ __forceinline__ auto combine_ordered(typename Op::Accumulator a, typename Op::Accumulator b, int)
    -> decltype(Op::ordered(a, b))
{
    return Op::ordered(a, b);
}
template <class Op>
__device__ __forceinline__ typename Op::Accumulator
combine_ordered(typename Op::Accumulator a, typename Op::Accumulator b, long)
{
    return Op::combine(a, b);
}

// Combines two neighbours, `a` being the one that comes first.
template <class Op>
__device__ __forceinline__ typename Op::Accumulator combine_neighbours(typename Op::Accumulator a, typename Op::Accumulator b)
{
    return combine_ordered<Op>(a, b, 0);
}

// A part's accumulator, as if its row began `by` elements before the part. Only operators that know places differ there.
template <class Op>
__device__ __forceinline__ auto moved_by(typename Op::Accumulator a, uint64 by, int) -> decltype(Op::moved(a, by))
{
    return Op::moved(a, by);
}
template <class Op> __device__ __forceinline__ typename Op::Accumulator moved_by(typename Op::Accumulator a, uint64, long)
{
    return a;
}

// A leaf of a row as a warp holds it: loaded, folded and written.
#pragma once
#include "rowops/held.cuh"

// Whether the words that the leaf from element `begin` on lies in are all the arrays'. All 32 lanes call it.
template <class R>
__device__ __forceinline__ bool leaf_inside(const RowProblem<R>& problem, const RowPlace<R>& place, uint32 begin, uint32 length)
{
    constexpr uint32 V = Held<R>::V;
    return all_agree(place.lies_inside(problem, begin, (min(begin + leaf_elements<typename R::Input>, length) + V - 1) / V * V));
}

// A lane's part of leaf `leaf` of a row, as it is held by a warp; loads all vectors at once.
template <class R, Begin Where, bool Short = false>
__device__ __forceinline__ void
load_leaf(Held<R>& held, const RowProblem<R>& problem, const RowPlace<R>& place, uint32 leaf, uint32 length, uint32 lane)
{
    constexpr uint32 V = Held<R>::V;
    const uint32 begin = leaf * leaf_elements<typename R::Input>, first = begin + lane * V;
    const bool inside = leaf_inside(problem, place, begin, length);
    held.template load<Where, steps, Short>(inside, [&](uint32 t) {
        const uint32 index = first + t * lanes * V;
        return VectorPlace<R>{place, index, left_from(index, length)};
    });
}

// The fold of N of a lane's vectors, from number First on. Of rows of one, two or four steps, which are common, the others are
// absent and cost nothing.
template <class R, Begin Where, uint32 First, uint32 N>
__device__ __forceinline__ typename R::Op::Accumulator
fold_present_steps(const Held<R>& held, const RowProblem<R>& problem, const HeldRow<typename R::Op>& source, uint32 begin,
                   uint32 length, bool is_full, uint32 lane)
{
    using Op = typename R::Op;
    constexpr uint32 V = Held<R>::V;
    if constexpr (N == 1) {
        const uint32 index = begin + (First * lanes + lane) * V;
        const bool may_be_cut = !is_full && left_from(begin + (First + 1) * lanes * V, length) < 0;
        return fold_step<R, Where>(held, First, problem, source, index, is_full ? int32(V) : left_from(index, length), may_be_cut);
    } else {
        constexpr uint32 half = N / 2;
        auto value = fold_present_steps<R, Where, First, half>(held, problem, source, begin, length, is_full, lane);
        if (First > 0 || all_agree(left_from(begin + (First + half) * lanes * V, length) > 0))
            value = combine_neighbours<Op>(
                value, fold_present_steps<R, Where, First + half, half>(held, problem, source, begin, length, is_full, lane));
        return value;
    }
}

// The fold of that leaf; every lane holds the result. Leaves past the end are absent. All 32 lanes call it.
template <class R, Begin Where>
__device__ __forceinline__ typename R::Op::Accumulator
fold_leaf(const Held<R>& held, const RowProblem<R>& problem, const HeldRow<typename R::Op>& source, uint32 leaf, uint32 length,
          uint32 lane)
{
    using Op = typename R::Op;
    using T = typename R::Input;
    const uint32 begin = leaf * leaf_elements<T>;
    const bool is_full = all_agree(left_from(begin, length) >= int32(leaf_elements<T>));
    if constexpr (Op::folds_leaves)
        if (is_full) return warp_fold<Op>(Op::fold_leaf(held.x, begin + lane * Held<R>::V));
    return warp_fold<Op>(fold_present_steps<R, Where, 0, steps>(held, problem, source, begin, length, is_full, lane));
}

// Writes a lane's part of a leaf. `whole` is the length of the arrays, `length` how many elements there are in this row.
template <class R, Begin Where>
__device__ __forceinline__ void
write_leaf(const Held<R>& held, const RowProblem<R>& problem, const RowPlace<R>& place, const typename R::Values& values,
           uint32 leaf, uint32 length, uint32 lane)
{
    constexpr uint32 V = Held<R>::V;
    const uint32 first = leaf * leaf_elements<typename R::Input> + lane * V, whole = uint32(problem.length);
    Across<R::outputs> across;
#pragma unroll
    for (uint32 t = 0; t < steps; ++t) {
        across.follows = t > 0;
        across.continues = t + 1 < steps;
        const uint32 index = first + t * lanes * V;
        const int32 left = left_from(index, whole);
        if (Where == Begin::anywhere ? all_agree(left > 0) : left > 0)  // anywhere, lanes write together
            R::template write<Where>(problem, place, index, left, length, held.x[t], held.second(t), values, across,
                                     R::template columns<Where>(problem, index, left));
    }
}

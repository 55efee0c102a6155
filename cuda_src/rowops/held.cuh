// What a lane holds of a row: eight vectors, of both arrays or merged, and how they are loaded, folded and written.
#pragma once
#include "rowops/row_words.cuh"
#include "rowops/stores.cuh"

// Whether the elements of the second array are kept beside those of the first.
template <class R> constexpr bool keeps_second = R::arrays > 1 && !R::merges;

// One vector of a row in a lane.
template <class R> __device__ __forceinline__ uint4 merged(uint4 x, uint4 y)
{
    using T = typename R::Input;
    constexpr uint32 V = vector_elements<T>;
    union { uint4 raw; T elements[V]; } u, v;
    u.raw = x;
    v.raw = y;
    R::template merge<V>(u.elements, v.elements);
    return u.raw;
}

template <class R>
__device__ __forceinline__ typename R::Input merged_element(typename R::Input x, typename R::Input y)
{
    R::template merge<1>(&x, &y);
    return x;
}

// Where a vector is, and how many elements of its row there are from its first one on.
template <class R> struct VectorPlace {
    const RowPlace<R>& place;
    uint32 index;
    int32 count;
};

// A lane's eight vectors; those of the second array take no registers where they are not kept.
template <class R> struct Held {
    static constexpr uint32 V = vector_elements<typename R::Input>;
    using Op = typename R::Op;
    uint4 x[steps];
    uint4 y[keeps_second<R> ? steps : 1];

    // Loads N vectors from number `base` on, all at once. `vector(t)` says where the t-th one is: its row's place, the index of
    // its first element, and how many elements there are from that one on.
    template <Begin Where, bool Inside, uint32 N, class VectorOf>
    __device__ __forceinline__ void load_some(uint32 base, VectorOf vector)
    {
        using T = typename R::Input;
        RowVector<T, Where, Inside> first[N], other[R::arrays > 1 ? N : 1];
#pragma unroll
        for (uint32 k = 0; k < N; ++k) {
            const auto at = vector(base + k);
            first[k].load(at.place.x, at.index, at.count);
            if constexpr (R::arrays > 1) other[k].load(at.place.y, at.index, at.count);
        }
#pragma unroll
        for (uint32 k = 0; k < N; ++k) {
            const auto at = vector(base + k);
            x[base + k] = first[k].joined(at.place.x, at.index, at.count);
            if constexpr (R::arrays > 1) {
                const uint4 second = other[k].joined(at.place.y, at.index, at.count);
                if constexpr (R::merges) x[base + k] = merged<R>(x[base + k], second);
                else y[base + k] = second;
            }
        }
    }
    // N of them, in parts where both arrays, or words in place of vectors, take more registers than what is held.
    template <Begin Where, bool Inside, uint32 N, class VectorOf> __device__ __forceinline__ void load_parts(VectorOf vector)
    {
        constexpr uint32 most = steps / ((R::merges ? 2 : 1) * (Where == Begin::anywhere ? 2 : 1)), part = N < most ? N : most;
#pragma unroll
        for (uint32 base = 0; base < N; base += part) {
            load_some<Where, Inside, part>(base, vector);
            if (base + part < N) __syncwarp();  // orders nothing: it keeps the compiler from loading all parts at once
        }
    }
    // The same; if rows may be `Short`, without a second half that no lane has: what is loaded in one go has no branch in between.
    template <Begin Where, bool Inside, uint32 N, bool Short, class VectorOf>
    __device__ __forceinline__ void load_present(VectorOf vector)
    {
        if constexpr (Short && Where == Begin::anywhere) {
            if (all_agree(vector(N / 2).count > 0)) load_parts<Where, Inside, N>(vector);
            else load_parts<Where, Inside, N / 2>(vector);
        } else {
            load_parts<Where, Inside, N>(vector);
        }
    }
    // The first N; `inside`, which all lanes have alike, is whether what lies beside the row may be read as well. If rows may be
    // `Short`, a half that no lane has is left out.
    template <Begin Where, uint32 N = steps, bool Short = false, class VectorOf>
    __device__ __forceinline__ void load(bool inside, VectorOf vector)
    {
        if constexpr (Where == Begin::aligned || sizeof(typename R::Input) > 2) load_present<Where, true, N, Short>(vector);
        else if (inside) load_present<Where, true, N, Short>(vector);
        else load_present<Where, false, N, Short>(vector);
    }
    // Elements of both arrays lie steps apart.
    __device__ __forceinline__ void
    load_strided(uint32 t, const RowProblem<R>& problem, const RowPlace<R>& place, uint32 index, int32 count)
    {
        using T = typename R::Input;
        x[t] = load_strided_vector<T>(place.x, problem.element_step[0], index, count);
        if constexpr (R::arrays > 1) {
            const uint4 other = load_strided_vector<T>(place.y, problem.element_step[1], index, count);
            if constexpr (R::merges) x[t] = merged<R>(x[t], other);
            else y[t] = other;
        }
    }
    // N whole vectors of such arrays, all at once. `index_of(t)` is the index of the t-th one's first element.
    template <uint32 N, class IndexOf>
    __device__ __forceinline__ void
    load_strided_whole(const RowProblem<R>& problem, const RowPlace<R>& place, IndexOf index_of)
    {
        StridedVector<typename R::Input> first[N], other[R::arrays > 1 ? N : 1];
#pragma unroll
        for (uint32 t = 0; t < N; ++t) {
            first[t].load(place.x, problem.element_step[0], index_of(t));
            if constexpr (R::arrays > 1) other[t].load(place.y, problem.element_step[1], index_of(t));
        }
#pragma unroll
        for (uint32 t = 0; t < N; ++t) {
            x[t] = first[t].joined();
            if constexpr (R::merges) x[t] = merged<R>(x[t], other[t].joined());
            else if constexpr (R::arrays > 1) y[t] = other[t].joined();
        }
    }
    __device__ __forceinline__ uint4 second(uint32 t) const { return y[keeps_second<R> ? t : 0]; }
};

// The row that a reduction sees: its length and, where the operator has a pivot, the first element, read from memory.
template <class R>
__device__ __forceinline__ HeldRow<typename R::Op>
held_row(const RowPlace<R>& place, const typename R::Given& given, uint32 length)
{
    using Op = typename R::Op;
    using T = typename R::Input;
    HeldRow<Op> source;
    source.row.length = length;
    source.row.initial[0] = source.row.initial[1] = 0;
    if constexpr (!is_same<typename Op::Pivot, Unused>) {
        T first = element_of_bits<T>(0);
        if (R::needs_first && length > 0) {
            first = load_row_element<T>(place.x);
            if constexpr (R::merges) first = merged_element<R>(first, load_row_element<T>(place.y));
        }
        source.row.pivot = shared_of<Op>(first, given);
    }
    return source;
}

// How many elements of a row of `length` there are from number `index` on: none, or a negative number, past its end.
__device__ __forceinline__ int32 left_from(uint32 index, uint32 length) { return int32(length) - int32(index); }

// Whether there is all of a vector or nothing: in rows that lie in whole vectors, all of which are reduced.
template <class R, Begin Where> constexpr bool in_whole_vectors = Where == Begin::aligned && !R::masks;

// The slot level of a lane's t-th vector, which begins with element `index`; whether it may be cut all lanes have alike.
template <class R, Begin Where>
__device__ __forceinline__ typename R::Op::Accumulator
fold_step(const Held<R>& held, uint32 t, const RowProblem<R>& problem, const HeldRow<typename R::Op>& source, uint32 index,
          int32 count, bool may_be_cut = true)
{
    using Op = typename R::Op;
    typename Op::Second y[Held<R>::V];
    if constexpr (has_second<Op>) R::template beside<Where>(y, problem, index, count, held.second(t));
    return fold_held<Op, in_whole_vectors<R, Where>>(source, held.x[t], y, index, count, may_be_cut);
}

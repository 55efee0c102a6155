// Where the smallest and the largest are: a key and an index.
#pragma once
#include "operator_keys.cuh"

// A key and the index that goes with it, in words, for a 64-bit member would pad a 32-bit key.
template <class Key> struct Place {
    Key key;
    Split64 index;
};

// Of several elements of the same key, zeros of both signs among them, the first counts, or with `Last` the last. What
// is absent has index -1.
template <class In, class Key, class Out, bool Largest, bool Last> struct ArgExtreme : Operator<In, Place<Key>, Out> {
    static __device__ __forceinline__ Place<Key> identity()
    {
        return {Largest ? lowest<Key> : highest<Key>, Split64(~uint64(0))};
    }
    template <class I, class R> static __device__ __forceinline__ Place<Key> map(const I& item, const R&)
    {
        Key key = key_of<Key>(item.x, Largest ? highest<Key> : lowest<Key>);
        if (is_float<In> && key == Key(-1)) key = 0;  // -0.0 is no less than +0.0 here
        return {key, Split64(item.index)};
    }
    static __device__ __forceinline__ Place<Key> combine(Place<Key> a, Place<Key> b)
    {
        const uint64 i = a.index.whole(), j = b.index.whole();
        const bool later = Last ? int64(j) > int64(i) : j < i;
        return beats(b.key, a.key) || (b.key == a.key && later) ? b : a;
    }
#if __CUDA_ARCH__ >= 800
    // The key that wins, then, word by word, the least of the indices that go with it; for `Last` of these without their
    // sign complemented, so that -1 comes after all others either way.
    static constexpr bool folds_lanes = sizeof(Key) == 4;
    static __device__ __forceinline__ Place<Key> fold_lanes(Place<Key> a)
    {
        constexpr uint32 all = 0xffffffffu, flip_high = Last ? all >> 1 : 0u, flip_low = Last ? all : 0u;
        Place<Key> best;
        best.key = Largest ? __reduce_max_sync(all, a.key) : __reduce_min_sync(all, a.key);
        bool counts = a.key == best.key;
        best.index.high = __reduce_min_sync(all, counts ? a.index.high ^ flip_high : all) ^ flip_high;
        counts = counts && a.index.high == best.index.high;
        best.index.low = __reduce_min_sync(all, counts ? a.index.low ^ flip_low : all) ^ flip_low;
        return best;
    }
#endif
    template <class R> static __device__ __forceinline__ Out finish(Place<Key> a, const R&, int)
    {
        return Out(a.index.whole());
    }
    template <class R> static __device__ __forceinline__ Out empty(const R& row, int) { return finish(identity(), row, 0); }

protected:
    static __device__ __forceinline__ bool beats(Key a, Key b) { return Largest ? a > b : a < b; }
};

// Where everything in a comes before everything in b (what is absent comes last) the index need not be compared.
template <class In, class Key, class Out, bool Largest> struct ArgFirst : ArgExtreme<In, Key, Out, Largest, false> {
    // Elements that take a register each are folded by their values, with one instruction an element and no index; the
    // place of the winning value is then found in five steps, each of which keeps the half that has it first.
    static constexpr bool folds_leaves = sizeof(In) == 4, folds_vectors = folds_leaves;
    template <uint32 vectors = 8> static __device__ __forceinline__ Place<Key> fold_leaf(const uint4* v, uint64 index)
    {
        union { uint4 raw[vectors]; In elements[vectors * slots]; } u;
#pragma unroll
        for (uint32 t = 0; t < vectors; ++t) u.raw[t] = v[t];
        const In won = extreme_or_nan<Largest, vectors * slots>(u.elements);
        const uint32 place = first_place<vectors * slots>(u.elements, won);
        return ArgFirst::map(Item<In, Unused>{won, {}, index + place}, Unused{});
    }
    // Of equal elements the first wins, and what is absent comes last.
    static constexpr bool has_absent = true;
    template <class R> static __device__ __forceinline__ In absent(const R&) { return losing_element<In, Largest>(); }
    static __device__ __forceinline__ Place<Key> ordered(Place<Key> a, Place<Key> b)
    {
        return ArgFirst::beats(b.key, a.key) ? b : a;
    }

private:
    static constexpr uint32 slots = 4, apart = 128;  // elements of a vector, and from one of a lane's vectors to the next

    // How far behind a lane's first element the first of N is that has the winning value. Overwrites x.
    template <uint32 N> static __device__ __forceinline__ uint32 first_place(In* x, In won)
    {
        if constexpr (N == 1) {
            return 0;
        } else {
            constexpr uint32 half = N / 2, skip = half < slots ? half : half / slots * apart;
            const In front = extreme_or_nan<Largest, half>(x);
            // Zeros of both signs are equal. `front` does not beat `won`; where that is NaN, only a NaN is as good.
            const bool behind = !((front == won) | (front != front));
#pragma unroll
            for (uint32 i = 0; i < half; ++i) x[i] = behind ? x[i + half] : x[i];
            return (behind ? skip : 0) + first_place<half>(x, won);
        }
    }
};
template <class In, class Acc, class Out> using ArgMin = ArgFirst<In, Acc, Out, false>;
template <class In, class Acc, class Out> using ArgMax = ArgFirst<In, Acc, Out, true>;
template <class In, class Acc, class Out> using LastArgMin = ArgExtreme<In, Acc, Out, false, true>;
template <class In, class Acc, class Out> using LastArgMax = ArgExtreme<In, Acc, Out, true, true>;

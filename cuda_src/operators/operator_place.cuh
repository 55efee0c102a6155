// Where the smallest and the largest elements are: a key and an index.
#pragma once
#include "operators/operator_keys.cuh"

// A key and its index, in 32-bit words, because a 64-bit member would pad a 32-bit key.
template <class Key> struct Place {
    Key key;
    Split64 index;
};

// Of several elements with the same key, which zeros of both signs have, the first counts, or with `Last` the last. What is
// absent has index -1.
template <class In, class Key, class Out, bool Largest, bool Last> struct ArgExtreme : Operator<In, Place<Key>, Out> {
    static __device__ __forceinline__ Place<Key> identity()
    {
        return {Largest ? lowest<Key> : highest<Key>, Split64(~uint64(0))};
    }
    template <class I, class R> static __device__ __forceinline__ Place<Key> map(const I& item, const R&)
    {
        Key key = key_of<Key>(item.x, Largest ? highest<Key> : lowest<Key>);
        if (is_float<In> && key == Key(-1)) key = 0;  // -0.0 counts as +0.0 here
        return {key, Split64(item.index)};
    }
    static __device__ __forceinline__ Place<Key> combine(Place<Key> a, Place<Key> b)
    {
        const uint64 i = a.index.whole(), j = b.index.whole();
        const bool later = Last ? int64(j) > int64(i) : j < i;
        return beats(b.key, a.key) || (b.key == a.key && later) ? b : a;
    }
#if __CUDA_ARCH__ >= 800
    // Finds the key that wins, then, word by word, the least of the indices that go with it. For `Last` these have all bits but
    // their sign complemented, so that -1 comes after all others either way.
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
    // The same place, counted from `by` elements before those that it was found in.
    static __device__ __forceinline__ Place<Key> moved(Place<Key> a, uint64 by)
    {
        a.index = Split64(a.index.whole() + by);
        return a;
    }
    template <class R> static __device__ __forceinline__ Out finish(Place<Key> a, const R&, int)
    {
        return Out(a.index.whole());
    }
    template <class R> static __device__ __forceinline__ Out empty(const R& row, int) { return finish(identity(), row, 0); }

protected:
    static __device__ __forceinline__ bool beats(Key a, Key b) { return Largest ? a > b : a < b; }
};

// Where everything in a comes before everything in b (what is absent comes last), the indices need not be compared.
template <class In, class Key, class Out, bool Largest> struct ArgFirst : ArgExtreme<In, Key, Out, Largest, false> {
    // Elements that take a register or two, or half of one where the device compares two at once, are folded by value, at about
    // one instruction an element and without an index. The place of the winning value is then found in five or six steps, each
    // of which keeps the half in which the value comes first.
    static constexpr bool folds_leaves = sizeof(In) >= 4 || compares_pairs<In> || widens_to_pairs<In>;
    static constexpr bool folds_vectors = folds_leaves;
    template <uint32 vectors = 8> static __device__ __forceinline__ Place<Key> fold_leaf(const uint4* v, uint64 index)
    {
        U won;
        uint32 place;
        if constexpr (widens_to_pairs<In>) {
            // Units take twice the registers of elements: they are made one vector at a time, and again for the first vector
            // that has the winning value.
            uint4 raw[vectors];
            U best[vectors], units[slots];
#pragma unroll
            for (uint32 t = 0; t < vectors; ++t) best[t] = extreme_unit<In, Largest>(raw[t] = v[t]);
            won = best_of<vectors>(best);
            place = first_vector<vectors>(raw, best, won);
            widened_units<In>(raw[0], units);
            place += first_place<slots>(units, won);
        } else {
            union { uint4 raw[vectors]; U units[vectors * slots]; } u;
#pragma unroll
            for (uint32 t = 0; t < vectors; ++t) u.raw[t] = v[t];
            won = best_of<vectors * slots>(u.units);
            place = first_place<vectors * slots>(u.units, won);
        }
        return ArgFirst::map(Item<In, Unused>{element_of<In>(won), {}, index + place}, Unused{});
    }
    // Of equal elements the first wins, and what is absent comes last.
    static constexpr bool has_absent = true;
    template <class R> static __device__ __forceinline__ In absent(const R&) { return losing_element<In, Largest>(); }
    static __device__ __forceinline__ Place<Key> ordered(Place<Key> a, Place<Key> b)
    {
        return ArgFirst::beats(b.key, a.key) ? b : a;
    }

private:
    using U = Unit<In>;
    // Elements of a unit, units of a vector, and elements from one of a lane's vectors to its next.
    static constexpr uint32 width = compares_pairs<In> || widens_to_pairs<In> ? 2 : 1, slots = 16 / sizeof(In) / width;
    static constexpr uint32 apart = 32 * slots * width;

    // The unit that wins; of pairs, the element that wins, in both halves.
    template <uint32 N> static __device__ __forceinline__ U best_of(const U* x)
    {
        return extreme_half<Largest>(extreme_of<Largest, false, N>(x));
    }

    // Among N of a lane's vectors, the first that has the winning value: how many elements it lies behind v[0], whose place it
    // takes. `best` holds each vector's extreme unit. Overwrites both arrays.
    template <uint32 N> static __device__ __forceinline__ uint32 first_vector(uint4* v, U* best, U won)
    {
        if constexpr (N > 1) {
            constexpr uint32 half = N / 2;
            const bool behind = !ties(best_of<half>(best), won);
#pragma unroll
            for (uint32 i = 0; i < half; ++i) {
                const uint4 front = v[i], back = v[i + half];
                v[i] = make_uint4(behind ? back.x : front.x, behind ? back.y : front.y, behind ? back.z : front.z,
                                  behind ? back.w : front.w);
                best[i] = behind ? best[i + half] : best[i];
            }
            return (behind ? half * apart : 0) + first_vector<half>(v, best, won);
        } else {
            return 0;
        }
    }

    // Of N units, the first element with the winning value: how many elements it lies behind the lane's first. Overwrites x.
    template <uint32 N> static __device__ __forceinline__ uint32 first_place(U* x, U won)
    {
        if constexpr (N > 1) {
            constexpr uint32 half = N / 2, skip = half < slots ? half * width : half / slots * apart;
            const bool behind = !ties(best_of<half>(x), won);
#pragma unroll
            for (uint32 i = 0; i < half; ++i) x[i] = behind ? x[i + half] : x[i];
            return (behind ? skip : 0) + first_place<half>(x, won);
        } else if constexpr (width == 2) {
            const U front = repeat_first(x[0]);
            return !ties(extreme_half<Largest>(front), won);
        } else {
            return 0;
        }
    }

    // Whether what does not beat `won` is as good. Zeros of either sign are, and if `won` is NaN, only a NaN is.
    static __device__ __forceinline__ bool ties(In x, In won) { return (x == won) | (x != x); }
    template <class T> static __device__ __forceinline__ bool ties(Pair<T> x, Pair<T> won)
    {
        return x.bits == won.bits || (is_float<T> && ((x.bits | won.bits) & 0x7fff7fffu) == 0);
    }
};
template <class In, class Acc, class Out> using ArgMin = ArgFirst<In, Acc, Out, false>;
template <class In, class Acc, class Out> using ArgMax = ArgFirst<In, Acc, Out, true>;
template <class In, class Acc, class Out> using LastArgMin = ArgExtreme<In, Acc, Out, false, true>;
template <class In, class Acc, class Out> using LastArgMax = ArgExtreme<In, Acc, Out, true, true>;

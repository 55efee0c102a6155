// Several axes of an array, and of a second one beside it: where the element of a number lies.
#pragma once
#include "base/types.cuh"

constexpr uint32 max_axes = 8;

// What a number of axes have, as words of an argument: that of axis i is word number First + i * Apart.
template <class T, uint32 First, uint32 Apart> struct EachAxis {
    uint64 words[First + (max_axes - 1) * Apart + 1];
    __device__ __forceinline__ T operator[](uint32 i) const { return T((words + First)[i * Apart]); }

    // That of axis i + 1: a sum of 32 bits, which may wrap, would have an address of its own.
    __device__ __forceinline__ T after(uint32 i) const { return T((words + First + Apart)[i * Apart]); }
};

// The strides of one array, of which those of neighbouring axes stand so many words apart.
template <uint32 Apart> struct Strides {
    const uint64* first;
    __device__ __forceinline__ int64 operator[](uint32 i) const { return int64(first[i * Apart]); }
};

// One word of an argument.
template <uint32 Place> struct OneWord {
    uint64 words[Place + 1];
    __device__ __forceinline__ operator uint64() const { return words[Place]; }
};

// Axes of both arrays, the innermost first; strides in bytes. Their number is word `Count` of the argument's part that lies here.
// The words of one axis stand `Between` words from each other, and those of neighbouring axes `Apart`.
//
// Indices are divided by axes' sizes through multiplication. With 2^(l-1) < d <= 2^l, the host makes m = ceil(2^(63+l) / d), a
// word whose highest bit is set, and n / d is n * m / 2^(63+l), rounded down: m is too large by less than one, so the quotient by
// less than n / 2^(63+l), which for n < 2^63 is less than the 1 / d by which it may be. Outermost axes have no divisor: m is 0.
template <uint32 Count, uint32 First, uint32 Between, uint32 Apart> struct AxesAt {
    union {
        OneWord<Count> count;
        EachAxis<uint64, First, Apart> size;
        EachAxis<uint64, First + Between, Apart> reciprocal;
        EachAxis<int64, First + 2 * Between, Apart> stride;
        EachAxis<int64, First + 3 * Between, Apart> second_stride;
    };

    __device__ __forceinline__ Strides<Apart> strides(bool of_second) const
    {
        return {of_second ? second_stride.words + First + 3 * Between : stride.words + First + 2 * Between};
    }

    // How often the size of axis i, not the outermost one, goes into `index`, which is below 2^63.
    __device__ __forceinline__ uint64 over(uint64 index, uint32 i) const
    {
        return __umul64hi(index, reciprocal[i]) >> (63 - __clzll(size[i] - 1));
    }

    // The same in 32 bits, for indices and sizes below 2^31: as exact, because d such words are too large by no more than 2^l.
    __device__ __forceinline__ uint32 over_few(uint32 index, uint32 i) const
    {
        return __umulhi(index, uint32(reciprocal[i] >> 32) + 1) >> (31 - __clz(int(size[i]) - 1));
    }

    // Bytes from the first element to element `index`, in the first or the second array.
    __device__ __forceinline__ int64 offset(uint64 index, bool of_second) const
    {
        return offset_by(strides(of_second), index);
    }

    // The same with other strides.
    template <class By> __device__ __forceinline__ int64 offset_by(const By& by, uint64 index) const
    {
        return offset_along(by, index, 0, uint32(count));
    }

    // The same along axes `i` to `end` - 1 alone.
    template <class By> __device__ __forceinline__ int64 offset_along(const By& by, uint64 index, uint32 i, uint32 end) const
    {
        int64 sum = 0;
#pragma unroll 1
        for (; i + 1 < end; ++i) {
            const uint64 rest = over(index, i);
            sum += int64(index - rest * size[i]) * by[i];
            index = rest;
        }
        return sum + int64(index) * by[i];
    }

    // Whether the `past` elements after element `first` all lie less than 2^31 bytes from it, in both arrays. An axis along
    // which they reach its end counts in full.
    __device__ __forceinline__ bool is_near(uint64 first, uint64 past) const
    {
        uint64 reach = 0, second_reach = 0;
        uint32 i = 0;
#pragma unroll 1
        for (; i + 1 < count; ++i) {
            const uint64 rest = over(first, i), carried = over(first - rest * size[i] + past, i);
            const uint64 along = carried > 0 ? size[i] - 1 : past;
            reach += along * magnitude(stride[i]);
            second_reach += along * magnitude(second_stride[i]);
            first = rest;
            past = carried;
        }
        return ((reach + past * magnitude(stride[i])) | (second_reach + past * magnitude(second_stride[i]))) >> 31 == 0;
    }

    // Bytes from element `first`, the same for all lanes, to those past[n] elements after it, in the first array and, if `Both`,
    // in the second. These are near and less than 2^13 elements away; `past` is used up. What is added up may leave 32 bits, whose
    // arithmetic wraps; the sum does not.
    template <uint32 N, bool Both = false>
    __device__ __forceinline__ void near_offsets(uint64 first, uint32* past, int32* offsets, int32* seconds = nullptr) const
    {
#pragma unroll
        for (uint32 n = 0; n < N; ++n) {
            offsets[n] = int32(past[n] * uint32(stride[0]));
            if (Both) seconds[n] = int32(past[n] * uint32(second_stride[0]));
        }
#pragma unroll 1
        for (uint32 i = 0; i + 1 < count; ++i) {
            const uint64 rest = over(first, i);
            const Divisor by(*this, first - rest * size[i], i);
            // What a carry adds to the steps along this axis.
            const uint32 jump = uint32(stride.after(i) - size[i] * stride[i]);
            const uint32 second_jump = uint32(second_stride.after(i) - size[i] * second_stride[i]);
#pragma unroll
            for (uint32 n = 0; n < N; ++n) {
                past[n] = by.carried(past[n]);
                offsets[n] = int32(uint32(offsets[n]) + past[n] * jump);
                if (Both) seconds[n] = int32(uint32(seconds[n]) + past[n] * second_jump);
            }
            first = rest;
        }
    }

    // Bytes from the first element to those past[n] elements after element `first`, which may be far from each other but are less
    // than 2^13 elements away: where that element lies and, for the others, what their carries add. `past` is used up.
    template <uint32 N>
    __device__ __forceinline__ void far_offsets(uint64 first, uint32* past, bool of_second, int64* offsets) const
    {
        const auto by = strides(of_second);
        int64 begin = 0;
        uint32 i = 0;
#pragma unroll
        for (uint32 n = 0; n < N; ++n) offsets[n] = int64(past[n]) * by[0];
#pragma unroll 1
        for (; i + 1 < count; ++i) {
            const uint64 rest = over(first, i), along = first - rest * size[i];
            const Divisor divisor(*this, along, i);
            const int64 jump = by[i + 1] - int64(size[i]) * by[i];
#pragma unroll
            for (uint32 n = 0; n < N; ++n) offsets[n] += int64(past[n] = divisor.carried(past[n])) * jump;
            begin += int64(along) * by[i];
            first = rest;
        }
        begin += int64(first) * by[i];
#pragma unroll
        for (uint32 n = 0; n < N; ++n) offsets[n] += begin;
    }

    // How many elements there are from each of those past[n] elements after element `first` to the end of its run along the
    // innermost axis, itself included, or `most` if there are more. The elements exist: an outermost axis has no divisor.
    template <uint32 N>
    __device__ __forceinline__ void left_in_runs(uint64 first, const uint32* past, uint32 most, uint32* left) const
    {
        const Divisor by(*this, first - over(first, 0) * size[0], 0);
#pragma unroll
        for (uint32 n = 0; n < N; ++n)
            left[n] = min(most, by.size - (by.from + past[n] - by.carried(past[n]) * by.size));
    }

private:
    // Divides what lies less than 2^13 elements past element `at` along an axis. A division is one multiplication of 32 bits, exact
    // as in over() for indices below 2^31: the word is again too large by no more than one, and d such words by no more than 2^l.
    // An axis of more than 2^30 elements, in which at most one carry occurs, is taken for its last 2^30, and all elements before
    // these for the first of them.
    struct Divisor {
        uint32 size, from, word, shift;
        __device__ __forceinline__ Divisor(const AxesAt& axes, uint64 at, uint32 i)
        {
            constexpr uint64 most = 1u << 30;
            const uint64 left_out = axes.size[i] > most ? axes.size[i] - most : 0;
            size = uint32(axes.size[i] - left_out);
            from = at > left_out ? uint32(at - left_out) : 0;
            word = left_out > 0 ? 1u << 31 : uint32(axes.reciprocal[i] >> 32) + 1;
            shift = 31 - __clz(size - 1);
        }
        __device__ __forceinline__ uint32 carried(uint32 past) const { return __umulhi(from + past, word) >> shift; }
    };

    static __device__ __forceinline__ uint64 magnitude(int64 x) { return uint64(x < 0 ? -x : x); }
};

// By kinds of words: all sizes, then all reciprocals, and so on.
using Axes = AxesAt<0, 1, max_axes, 1>;

// A launch finds none of its argument in a cache, and waits for each line of 64 bytes that it touches. So the numbers of kept and
// of reduced axes stand together, and what is known of one kept axis. Reduced ones stand by kinds of words: kernels for columns
// read the strides of three at a time, and would spill otherwise. In the order of fields.shape_values.
constexpr uint32 words_of_kept = 5;
using KeptAxes = AxesAt<0, 2, 1, words_of_kept>;
using ReducedAxes = AxesAt<1, 2 + max_axes * words_of_kept, max_axes, 1>;

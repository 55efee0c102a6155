// Several axes of an array, and of a second one beside it: where the element of a number lies.
#pragma once
#include "base/types.cuh"

constexpr uint32 max_axes = 8;

// Axes of both arrays, the innermost first; strides in bytes. In the order of kernels._AXES.
//
// Indices are divided by axes' sizes through multiplication. With 2^(l-1) < d <= 2^l, the host makes m = ceil(2^(63+l) / d), a
// word whose highest bit is set, and n / d is n * m / 2^(63+l), rounded down: m is too large by less than one, so the quotient by
// less than n / 2^(63+l), which for n < 2^63 is less than the 1 / d by which it may be. Outermost axes have no divisor: m is 0.
struct Axes {
    uint64 count;
    uint64 size[max_axes];
    uint64 reciprocal[max_axes];
    int64 stride[max_axes];
    int64 second_stride[max_axes];

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
        return offset_by(of_second ? second_stride : stride, index);
    }

    // The same with other strides.
    __device__ __forceinline__ int64 offset_by(const int64* by, uint64 index) const
    {
        int64 sum = 0;
        uint32 i = 0;
#pragma unroll 1
        for (; i + 1 < count; ++i) {
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
            const uint32 jump = uint32(stride[i + 1] - size[i] * stride[i]);
            const uint32 second_jump = uint32(second_stride[i + 1] - size[i] * second_stride[i]);
#pragma unroll
            for (uint32 n = 0; n < N; ++n) {
                past[n] = by.carried(past[n]);
                offsets[n] = int32(uint32(offsets[n]) + past[n] * jump);
                if (Both) seconds[n] = int32(uint32(seconds[n]) + past[n] * second_jump);
            }
            first = rest;
        }
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
        __device__ __forceinline__ Divisor(const Axes& axes, uint64 at, uint32 i)
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

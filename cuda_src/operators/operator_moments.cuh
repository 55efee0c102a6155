// Mean and variance in one pass, about the row's first element.
//
// With d = x - pivot, n var = sum d^2 - (sum d)^2 / n. The difference cancels by a factor of
//     sum d^2 / (n var) = 1 + n (mean - pivot)^2 / (n var) <= 1 + n,
// since the pivot is itself one of the n elements: (mean - pivot)^2 is a term of n var. If the pivot is within k standard
// deviations of the mean the factor is at most 1 + k^2, whatever the mean is. So float64 keeps at least 53 - log2(1 + n) bits,
// and 50 for nearly every row, where the sum of squares about zero keeps none once the mean is 2^26 times the deviation.
//
// Deviations of float64 have two units. Squares of less than 2^960 add up to less than 2^1024, however many there are. A larger
// deviation is counted in units of 2^560, in which it is 2^-80 at least and 2^465 at most, and so is everything that it is
// combined with; then `squares` is negative. The change of units is exact, but for what is less than 2^-1074 beside 2^-160.
// An empty asm keeps what is rare behind a branch: the compiler would compute it for all elements, and select.
#pragma once
#include "operators/operator_sum.cuh"

// Sums of the deviations, for complex elements of both parts, and of their squares.
template <int Parts> struct Moments { float64 sums[Parts], squares; };

constexpr float64 from_units = 0x1p560, to_units = 0x1p-560;

__device__ __forceinline__ bool has_sign(float64 x) { return __double2hiint(x) < 0; }
// Whether a square is 2^960 at least, or NaN, of either sign.
__device__ __forceinline__ bool is_large(float64 square) { return uint32(__double2hiint(square)) >= 0x7bf00000u; }
template <int Parts> __device__ __forceinline__ Moments<Parts> in_units(Moments<Parts> a)
{
    const bool known = has_sign(a.squares);
#pragma unroll
    for (int k = 0; k < Parts; ++k) a.sums[k] = known ? a.sums[k] : a.sums[k] * to_units;
    a.squares = known ? a.squares : -(a.squares * to_units * to_units);
    return a;
}
template <int Parts> __device__ __forceinline__ Moments<Parts> added(Moments<Parts> a, Moments<Parts> b)
{
#pragma unroll
    for (int k = 0; k < Parts; ++k) a.sums[k] += b.sums[k];
    a.squares += b.squares;
    return a;
}
// What deviations are counted from: zero if the pivot is not finite, since infinity - infinity would hide what the mean is.
template <class T> __device__ __forceinline__ float64 finite_or_zero(T x) { return x - x == 0 ? float64(x) : 0.0; }

// A part of a complex element; the element itself if it is real.
template <class T> __device__ __forceinline__ auto part_of(T x, int k)
{
    if constexpr (is_complex<T>) return k == 0 ? x.re : x.im;
    else return number(x);
}

template <class In, class Out> struct MomentsOf : Operator<In, Moments<is_complex<In> ? 2 : 1>, Out> {
    static constexpr int parts = is_complex<In> ? 2 : 1;
    static constexpr bool has_units = is_same<In, float64> || is_same<In, complex128>;
    using Pivot = In;  // as it was loaded: converting it at once would wait for it before the other loads
    using M = Moments<parts>;

    static __device__ __forceinline__ In pivot(In first) { return first; }
    static __device__ __forceinline__ M identity()
    {
        if constexpr (parts == 2) return {{-0.0, -0.0}, 0.0};
        else return {{-0.0}, 0.0};
    }
    // One more element equal to the pivot adds +0.0 to both sums, as the row's first element does already.
    static constexpr bool has_absent = parts == 1;
    template <class R> static __device__ __forceinline__ In absent(const R& row) { return row.pivot; }

    template <class I, class R> static __device__ __forceinline__ M map(const I& item, const R& row)
    {
        M a = map_in_ones(item.x, row.pivot);
        if (has_units && __builtin_expect(is_large(a.squares), false)) a = map_in_units(item.x, row.pivot);
        return a;
    }
    // For bytes, from the sums of elements and of squares, in integers: exactly what the tree's sums within a vector are. For
    // 16 bits a word at a time. For float64 with one look at the size of both.
    static constexpr bool is_half = sizeof(In) == 2 && is_float<In>;
    static constexpr bool folds_with_row = is_byte_integer<In> || is_same<In, float64>, folds_aligned_with_row = is_half;
    template <class R> static __device__ __forceinline__ M fold_with_row(uint4 v, const R& row)
    {
        if constexpr (is_byte_integer<In>) {
            constexpr int32 n = 16;
            const int32 from = int32(number(row.pivot)), sum = int32(sum_packed<In, false>(v));
            return {{float64(sum - n * from)}, float64(sum_of_squares<In>(v) - from * (2 * sum - n * from))};
        } else if constexpr (is_half) {
            const float64 from = origin(row.pivot);
            const VectorOf<In> u = {v};
            const auto pair = [&](uint32 i) -> M {
                const float64 x = float64(number_in(u, 2 * i)) - from, y = float64(number_in(u, 2 * i + 1)) - from;
                return {{x + y}, x * x + y * y};
            };
            const M half = added(pair(0), pair(1));
            return added(half, added(pair(2), pair(3)));
        } else {
            const VectorOf<In> u = {v};
            const M a = map_in_ones(u.elements[0], row.pivot), b = map_in_ones(u.elements[1], row.pivot);
            if (__builtin_expect(is_large(a.squares) || is_large(b.squares), false))
                return map_both(u.elements[0], u.elements[1], row.pivot);
            return added(a, b);
        }
    }
    static __device__ __forceinline__ M combine(M a, M b)
    {
        if (has_units && __builtin_expect((__double2hiint(a.squares) | __double2hiint(b.squares)) < 0, false)) {
            asm volatile("");
            a = in_units(a);
            b = in_units(b);
        }
        return added(a, b);
    }

protected:
    static __device__ __forceinline__ float64 origin(In pivot, int k = 0) { return finite_or_zero(part_of(pivot, k)); }
    static __device__ __forceinline__ M map_in_ones(In x, In pivot)
    {
        M a;
#pragma unroll
        for (int k = 0; k < parts; ++k) a.sums[k] = float64(part_of(x, k)) - origin(pivot, k);
        a.squares = a.sums[0] * a.sums[0];
        if constexpr (parts == 2) a.squares += a.sums[1] * a.sums[1];
        return a;
    }
    static __device__ __forceinline__ M map_both(In x, In y, In pivot)
    {
        asm volatile("");
        const M a = map_in_ones(x, pivot), b = map_in_ones(y, pivot);
        return MomentsOf::combine(is_large(a.squares) ? map_in_units(x, pivot) : a,
                                  is_large(b.squares) ? map_in_units(y, pivot) : b);
    }
    static __device__ __forceinline__ M map_in_units(In x, In pivot)
    {
        asm volatile("");
        M a;
#pragma unroll
        for (int k = 0; k < parts; ++k) a.sums[k] = float64(part_of(x, k)) * to_units - origin(pivot, k) * to_units;
        a.squares = a.sums[0] * a.sums[0];
        if constexpr (parts == 2) a.squares += a.sums[1] * a.sums[1];
        a.squares = -a.squares;
        return a;
    }

    // The sum of squared deviations from the mean, divided by n - ddof, which the caller's
    // words hold; in the accumulator's units.
    template <class R> static __device__ __forceinline__ compensated variance_in_units(M a, const R& row)
    {
        const float64 n = float64(row.length), degrees = n - __longlong_as_double(row.initial[0]);
        float64 products = a.sums[0] * (a.sums[0] / n);
        if constexpr (parts == 2) products += a.sums[1] * (a.sums[1] / n);
        const float64 rest = (has_units && has_sign(a.squares) ? -a.squares : a.squares) - products;
        return quotient(compensated(rest < 0.0 ? 0.0 : rest), degrees > 0.0 ? degrees : 0.0);
    }
    template <class R> static __device__ __forceinline__ compensated variance(M a, const R& row)
    {
        const compensated found = variance_in_units(a, row);
        return has_units && has_sign(a.squares) ? compensated(found.high * from_units * from_units) : found;
    }
    template <class R> static __device__ __forceinline__ compensated deviation(M a, const R& row)
    {
        const compensated found = root(variance_in_units(a, row).high);
        return has_units && has_sign(a.squares) ? compensated(found.high * from_units) : found;
    }
};

template <class In, class Acc, class Out> struct Variance : MomentsOf<In, Out> {
    template <class A, class R> static __device__ __forceinline__ Out finish(A a, const R& row, int)
    {
        return narrow<Out>(Variance::variance(a, row));
    }
    template <class R> static __device__ __forceinline__ Out empty(const R&, int) { return quiet_nan<Out>(); }
};

template <class In, class Acc, class Out> struct Deviation : Variance<In, Acc, Out> {
    template <class A, class R> static __device__ __forceinline__ Out finish(A a, const R& row, int)
    {
        return narrow<Out>(Deviation::deviation(a, row));
    }
};

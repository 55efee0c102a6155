// Rows of more vectors than a warp has lanes and of at most one leaf, of small elements that are contiguous, at any address. A warp
// takes one after the other, so that all vectors of a lane lie alike: they have one address and one shift.
#pragma once
#include "rows/short_rows.cuh"

// Whether an operator's rows may go this way.
template <class Op, class Rows> constexpr bool may_be_wide =
    Rows::where == Begin::anywhere && Rows::are_contiguous && sizeof(typename Op::Input) <= 2 &&
    sizeof(typename Op::Accumulator) <= 8 && is_same<typename Op::Pivot, Unused> &&
    (!has_second<Op> || (Op::has_absent_pair && sizeof(typename Op::Input) == 2));

// The vectors that begin `shift` bytes after the blocks `low`, which the blocks `high` follow. Of all alike, so that a branch
// chooses whole words, instead of selects for each.
template <uint32 N> __device__ __forceinline__ void join_alike(uint4 (&low)[N], const uint4 (&high)[N], uint32 shift)
{
    const uint32 bits = shift % 4 * 8;
    const auto join = [&](uint4& to, uint32 a, uint32 b, uint32 c, uint32 d, uint32 e) {
        to = make_uint4(__funnelshift_r(a, b, bits), __funnelshift_r(b, c, bits), __funnelshift_r(c, d, bits),
                        __funnelshift_r(d, e, bits));
    };
#pragma unroll
    for (uint32 t = 0; t < N; ++t) {
        const uint4 v = low[t], w = high[t];
        if (shift < 4) join(low[t], v.x, v.y, v.z, v.w, w.x);
        else if (shift < 8) join(low[t], v.y, v.z, v.w, w.x, w.y);
        else if (shift < 12) join(low[t], v.z, v.w, w.x, w.y, w.z);
        else join(low[t], v.w, w.x, w.y, w.z, w.w);
    }
}

// N of the lane's vectors of an array's row, a step apart. `left` bytes of the row begin where the first of them does.
template <uint32 N> __device__ __forceinline__ void load_alike(uint4 (&v)[N], const char* first, int32 left)
{
    const uint32 shift = uint32(reinterpret_cast<uint64>(first)) % vector_bytes;
    uint64 place = reinterpret_cast<uint64>(first) - shift;
    asm volatile("" : "+l"(place));  // else the compiler makes an address for each load
    const auto* block = reinterpret_cast<const uint4*>(place);
    const int32 left_of_next = shift == 0 ? 0 : left + int32(shift) - int32(vector_bytes);
    uint4 next[N];
#pragma unroll
    for (uint32 t = 0; t < N; ++t) {
        v[t] = load_cached_where(left > int32(t * lanes * vector_bytes), block + t * lanes);
        next[t] = load_cached_where(left_of_next > int32(t * lanes * vector_bytes), block + t * lanes + 1);
    }
    join_alike(v, next, shift);
}

// The fold of a vector, and of what goes with it, of which so many bytes exist; `whole`: all, in every lane.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator
fold_wide(const S& source, uint4 x, uint4 y, uint64 index, int32 bytes, bool whole)
{
    if constexpr (has_second<Op>) {
        union { uint4 raw; Seconds<Op> seconds; } u, rest;
        VectorOf<typename Op::Input> absent;
#pragma unroll
        for (uint32 i = 0; i < Seconds<Op>::V; ++i) absent.elements[i] = Op::absent_first(), rest.seconds.elements[i] = Op::absent_second();
        u.raw = y;
        if (!whole) x = join_bytes(x, absent.raw, bytes), u.raw = join_bytes(y, rest.raw, bytes);
        return fold_vector<Op>(source, x, u.seconds, index);
    } else if constexpr (Op::packed) {
        return Op::fold_packed(whole ? x : keep_bytes(x, bytes));
    } else if constexpr (fills_absent<Op>) {
        return fold_vector<Op>(source, whole ? x : join_bytes(x, absent_elements<Op>(), bytes), index);
    } else {
        return fold_vector_part<Op>(source, x, index, bytes);
    }
}

// The lane's part of a row of `bytes` bytes in 2^step_bits steps, of which no block lies partly outside an array.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator
lane_fold_wide(const S& source, const char* second, uint32 bytes, uint32 step_bits, uint32 lane)
{
    constexpr uint32 at_once = 2, step_bytes = lanes * vector_bytes;
    LaneCounter<Op, log2_of(steps / at_once)> counter;
    counter.clear();
    typename Op::Accumulator value = Op::identity();
#pragma unroll 1
    for (uint32 step = 0; step < 1u << step_bits; step += at_once) {
        typename Op::Accumulator a[at_once];
        const uint32 before = step * step_bytes, mine = before + lane * vector_bytes;
        const int32 left = int32(bytes) - int32(mine);
        uint4 x[at_once], y[at_once] = {};
        load_alike(x, source.begin + mine, left);
        if constexpr (has_second<Op>) load_alike(y, second + mine, left);
#pragma unroll
        for (uint32 t = 0; t < at_once; ++t) {
            const uint32 past = t * step_bytes;
            a[t] = Op::identity();
            if (before + past < bytes)
                a[t] = fold_wide<Op>(source, x[t], y[t], (mine + past) / sizeof(typename Op::Input), left - int32(past),
                                     before + past + step_bytes <= bytes);
        }
        value = counter.push(fold_array<Op, at_once>(a), step / at_once);
    }
    return value;
}

// Reduces a warp's rows, and returns whether it did: not where a block lies partly outside an array.
template <class Op, class Rows>
__device__ __forceinline__ bool reduce_wide_rows(const ShortRowsProblem& problem, uint64 first, uint32 length, uint32 lane)
{
    using T = typename Op::Input;
    // Each lane finds a row.
    const uint32 bytes = length * uint32(sizeof(T)), its_row = lane & (1u << problem.row_bits) - 1;
    const uint64 its = min(first + its_row, problem.rows - 1);
    const char *begin = problem.elements + problem.kept.offset(its, false), *second = nullptr;
    bool inside = Rows::template all_inside<T>(problem, begin, begin + bytes);
    if constexpr (has_second<Op>) {
        second = problem.second + problem.kept.offset(its, true);
        inside = inside && problem.reduced.second_stride[0] == sizeof(T) &&
            second - vector_bytes >= problem.second + problem.second_low &&
            second + (bytes + vector_bytes) <= problem.second + problem.second_high;
    }
    if (!__all_sync(0xffffffffu, inside)) return false;
#pragma unroll 1
    for (uint32 r = 0; r < 1u << problem.row_bits; ++r) {
        const char* row_second = has_second<Op> ? shuffle_from(second, r) : nullptr;
        const ShapedSource<Op> source(problem, shuffle_from(begin, r), row_second, length);
        const auto value = warp_fold<Op>(lane_fold_wide<Op>(source, row_second, bytes, problem.step_bits, lane));
        launch_dependents();
        if (lane == 0 && first + r < problem.rows) store_result<Op>(problem, source.row, first + r, value);
    }
    return true;
}

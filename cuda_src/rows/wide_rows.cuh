// Rows of more vectors than a warp has lanes and of at most one leaf, of small elements that are contiguous, at any address. A warp
// takes one after the other, so that all vectors of a lane lie alike: they have one address and one shift.
#pragma once
#include "rows/short_rows.cuh"

// Whether an operator's rows may go this way.
template <class Op, class Rows> constexpr bool may_be_wide =
    Rows::where == Begin::anywhere && Rows::are_contiguous && sizeof(typename Op::Input) <= 2 && Op::results == 1 &&
    (sizeof(typename Op::Accumulator) <= 4 || is_integer<typename Op::Accumulator>) &&
    (has_second<Op> ? Op::has_absent_pair : Op::packed || fills_absent<Op>);

// A lane's vectors of a row, a step apart, so that all begin alike between 16-byte blocks: as those and the ones behind them.
template <uint32 N> struct VectorsAlike {
    static constexpr uint32 step_bytes = lanes * vector_bytes;
    uint4 low[N], high[N];
    uint32 shift;

    // `left` bytes of the row begin where the first vector does. What lies past them is not loaded and has no meaning. If the
    // row is `cut`, it ends in a block that lies partly past the array's `end`: of that its elements are loaded.
    template <class T> __device__ __forceinline__ void load(const char* first, int32 left, bool cut, const char* end)
    {
        shift = uint32(reinterpret_cast<uint64>(first)) % vector_bytes;
        uint64 place = reinterpret_cast<uint64>(first) - shift;
        asm volatile("" : "+l"(place));  // else the compiler makes an address for each load
        const auto* block = reinterpret_cast<const uint4*>(place);
        const int32 left_of_next = shift == 0 ? 0 : left + int32(shift) - int32(vector_bytes);
        if (!cut) {
#pragma unroll
            for (uint32 t = 0; t < N; ++t) {
                low[t] = load_cached_where(left > int32(t * step_bytes), block + t * lanes);
                high[t] = load_cached_where(left_of_next > int32(t * step_bytes), block + t * lanes + 1);
            }
        } else {  // that block's elements stand in all places where no other is loaded
            const uint32 of_last = uint32(reinterpret_cast<uint64>(end)) % vector_bytes;
            const uint4 last = load_elements<T>(end - of_last, int32(of_last), make_uint4(0, 0, 0, 0));
            const int32 room = int32(uint32(reinterpret_cast<uint64>(end)) - uint32(place) - of_last);
            const int32 low_left = min(left, room), high_left = min(left_of_next, room - int32(vector_bytes));
#pragma unroll
            for (uint32 t = 0; t < N; ++t) {
                low[t] = load_cached_if(low_left > int32(t * step_bytes), block + t * lanes, last);
                high[t] = load_cached_if(high_left > int32(t * step_bytes), block + t * lanes + 1, last);
            }
        }
    }
    // Vector t. The warp's are alike, so that a branch chooses whole words, and no select for each.
    __device__ __forceinline__ uint4 joined(uint32 t) const
    {
        const uint4 v = low[t], w = high[t];
        const uint32 bits = shift % 4 * 8;
        const auto join = [&](uint32 a, uint32 b, uint32 c, uint32 d, uint32 e) {
            return make_uint4(__funnelshift_r(a, b, bits), __funnelshift_r(b, c, bits), __funnelshift_r(c, d, bits),
                              __funnelshift_r(d, e, bits));
        };
        if (shift < 4) return join(v.x, v.y, v.z, v.w, w.x);
        if (shift < 8) return join(v.y, v.z, v.w, w.x, w.y);
        if (shift < 12) return join(v.z, v.w, w.x, w.y, w.z);
        return join(v.w, w.x, w.y, w.z, w.w);
    }
};

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
    } else {
        return fold_vector<Op>(source, whole ? x : join_bytes(x, absent_elements<Op>(), bytes), index);
    }
}

// A row of an array, and the array's end.
struct WideRow {
    const char *begin, *end;
    bool cut;
};

// The lane's part of a row of `bytes` bytes in 2^step_bits steps.
template <class Op, class S>
__device__ __forceinline__ typename Op::Accumulator
lane_fold_wide(const S& source, const WideRow& row, const WideRow& second, uint32 bytes, uint32 step_bits, uint32 lane)
{
    using T = typename Op::Input;
    constexpr uint32 at_once = has_second<Op> || sizeof(T) == 1 ? 2 : 4, step_bytes = lanes * vector_bytes;
    LaneCounter<Op, log2_of(steps / at_once)> counter;
    counter.clear();
    typename Op::Accumulator value = Op::identity();
#pragma unroll 1
    for (uint32 step = 0; step < 1u << step_bits; step += at_once) {
        typename Op::Accumulator a[at_once];
        const uint32 mine = step * step_bytes + lane * vector_bytes;
        const int32 rest = int32(bytes - step * step_bytes), left = rest - int32(lane * vector_bytes);
        VectorsAlike<at_once> x, y;
        x.template load<T>(row.begin + mine, left, row.cut, row.end);
        if constexpr (has_second<Op>) y.template load<T>(second.begin + mine, left, second.cut, second.end);
#pragma unroll
        for (uint32 t = 0; t < at_once; ++t) {
            const int32 past = t * step_bytes;
            a[t] = Op::identity();
            if (rest <= past) continue;
            uint4 beside = {};
            if constexpr (has_second<Op>) beside = y.joined(t);
            a[t] = fold_wide<Op>(source, x.joined(t), beside, (mine + past) / sizeof(T), left - past, rest - past >= int32(step_bytes));
        }
        value = counter.push(fold_array<Op, at_once>(a), step / at_once);
    }
    return value;
}

// Reduces a warp's rows, and returns whether it did: not where a row begins in a block that lies partly before its array.
template <class Op, class Rows>
__device__ __forceinline__ bool reduce_wide_rows(const ShortRowsProblem& problem, uint64 first, uint32 length, uint32 lane)
{
    using T = typename Op::Input;
    const auto fits = [](const char* row, const char* low) {
        const uint64 begin = reinterpret_cast<uint64>(row);
        return begin % sizeof(T) == 0 && begin - begin % vector_bytes >= reinterpret_cast<uint64>(low);
    };
    const uint32 bytes = length * uint32(sizeof(T));
    const auto row_of = [=](const char* begin, const char* end) {
        return WideRow{begin, end, end - begin < int64(bytes + -(reinterpret_cast<uint64>(begin) + bytes) % vector_bytes)};
    };
    // Each lane finds a row.
    const uint64 its = min(first + (lane & (1u << problem.row_bits) - 1), problem.rows - 1);
    const char *begin = problem.elements + problem.kept.offset(its, false), *second = nullptr;
    bool all_fit = fits(begin, problem.elements + problem.low);
    if constexpr (has_second<Op>) {
        second = problem.second + problem.kept.offset(its, true);
        all_fit = all_fit && problem.reduced.second_stride[0] == sizeof(T) && fits(second, problem.second + problem.low_second);
    }
    if (!__all_sync(0xffffffffu, all_fit)) return false;
#pragma unroll 1
    for (uint32 r = 0; r < 1u << problem.row_bits; ++r) {
        const WideRow row = row_of(shuffle_from(begin, r), problem.elements + problem.high);
        WideRow beside = {};
        if constexpr (has_second<Op>) beside = row_of(shuffle_from(second, r), problem.second + problem.high_second);
        const ShapedSource<Op> source(problem, row.begin, beside.begin, length);
        const auto value = warp_fold<Op>(lane_fold_wide<Op>(source, row, beside, bytes, problem.step_bits, lane));
        launch_dependents();
        if (lane == 0 && first + r < problem.rows) store_result<Op>(problem, source.row, first + r, value);
    }
    return true;
}

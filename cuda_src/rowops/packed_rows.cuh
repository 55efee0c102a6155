// Short rows at any address that lie one behind the other, as those of odd lengths do: a warp's rows are one run of elements.
//
// Lanes take vectors of these rows without gaps, whole ones first, then the rows' last ones. So no lane is idle, and what a cut
// vector costs is paid once for all rows, not in each step. Folds of vectors go to their places in the tree through shared memory.
// What is written are the run's blocks of 16 bytes, most of one row and some across the seam of two: both by whole blocks.
#pragma once
#include "rowops/blocks.cuh"

constexpr uint32 packed_at_once = 2;  // vectors of a lane that are loaded together: of more, warps wait for the kernel's code

// Whether an operation's rows may be taken so: where the folds of vectors are what costs, as those of exponentials. Normalisation
// gains nothing by it.
template <class R, Begin Where> constexpr bool may_be_packed =
    Where == Begin::anywhere && R::in_blocks && R::outputs > 0 && R::Op::folds_whole_vectors && sizeof(typename R::Op::Accumulator) <= 8;

// Whether rows lie so, and what is written as far into blocks of 16 bytes as what is read.
template <class R> __device__ __forceinline__ bool lie_packed(const RowProblem<R>& problem)
{
    const int64 bytes = int64(problem.length * sizeof(typename R::Input));
    bool all = problem.kept.count == 1 && problem.length >= Held<R>::V && problem.kept.strides(false)[0] == bytes;
#pragma unroll
    for (uint32 k = 0; k < R::outputs; ++k)
        all = all && problem.output_stride[k][0] == bytes &&
            (problem.addresses[R::first_output + k] - problem.addresses[0]) % vector_bytes == 0;
    return all;
}

// The run of a warp's rows. An index here is one of the run's elements.
template <class R> struct PackedRows {
    using T = typename R::Input;
    using Op = typename R::Op;
    static constexpr uint32 V = Held<R>::V;
    const RowProblem<R>& problem;
    uint64 first;  // row
    uint32 count, n, lane;  // rows, elements of each

    RowPlace<R> run;  // of the first row

    __device__ __forceinline__ PackedRows(const RowProblem<R>& problem, uint64 first, uint32 count, uint32 lane)
        : problem(problem), first(first), count(count), n(uint32(problem.length)), lane(lane), run(problem, first) {}

    __device__ __forceinline__ RowPlace<R> place(uint32 row) const
    {
        RowPlace<R> found = run;
        found.x += row * n * uint32(sizeof(T));
#pragma unroll
        for (uint32 k = 0; k < R::outputs; ++k) found.outputs[k] += row * n * uint32(sizeof(T));
        return found;
    }
    __device__ __forceinline__ uint32 length(uint32 row) const
    {
        return R::length(problem, R::given(problem, first + row), first + row);
    }

    // The folds of all vectors, each in its row's part of `slots`, which has `each` of them.
    template <bool Inside>
    __device__ __forceinline__ void fold_vectors(typename Op::Accumulator* slots, uint32 each_bits) const
    {
        const uint32 whole = n / V, all = count * whole, inverse = (1u << 20) / whole + 1;  // k inverse >> 20 is k / whole
        const uint32 vectors = all + (n % V > 0 ? count : 0);
        const char* x = run.x;
        const auto row_of = [&](uint32 k) { return k < all ? k * inverse >> 20 : min(k - all, count - 1); };
#pragma unroll 1
        for (uint32 base = lane; base - lane < vectors; base += packed_at_once * lanes) {
            Held<R> held;
            RowVector<T, Begin::anywhere, Inside> loaded[packed_at_once];
            const auto of = [&](uint32 t) {
                struct { uint32 k, row, index; int32 left; const char* address; } v;
                v.k = base + t * lanes;
                v.row = row_of(v.k);
                v.index = (v.k < all ? v.k - v.row * whole : whole) * V;
                v.left = v.k < vectors ? left_from(v.index, length(v.row)) : 0;
                v.address = x + (v.row * n + v.index) * uint32(sizeof(T));
                return v;
            };
#pragma unroll
            for (uint32 t = 0; t < packed_at_once; ++t) {
                const auto v = of(t);
                loaded[t].load(v.address, 0, v.left);
            }
#pragma unroll
            for (uint32 t = 0; t < packed_at_once; ++t) {
                if (base - lane + t * lanes >= vectors) continue;
                const auto v = of(t);
                held.x[t] = loaded[t].joined(v.address, 0, v.left);
                const auto source = held_row<R>(place(v.row), R::given(problem, first + v.row), length(v.row));
                const auto folded = fold_step<R, Begin::anywhere>(held, t, problem, source, v.index, v.left);
                if (v.k < vectors) slots[v.row << each_bits | v.index / V] = folded;
            }
        }
    }

    // Writes the run, of which `values` has what each row comes to.
    __device__ __forceinline__ void write(const typename R::Values* values)
    {
        run.find_outputs(problem, first);
        const uint32 total = count * n, before = min(before_blocks(run), total), blocks = (total - before) / V;
        const uint32 inverse = (1u << 22) / n + 1;  // index inverse >> 22 is index / n
        Across<R::outputs> across, next;
#pragma unroll 1
        for (uint32 k = lane; k - lane < blocks; k += blocks_at_once * lanes) {
            uint4 raw[blocks_at_once];
            const auto of = [&](uint32 t) {
                struct { uint32 index, row, in_row; bool is_whole; } b;
                b.index = before + (k + t * lanes) * V;
                b.row = min(b.index * inverse >> 22, count - 1);
                b.in_row = b.index - b.row * n;
                b.is_whole = k + t * lanes < blocks && b.in_row + V <= n;
                return b;
            };
#pragma unroll
            for (uint32 t = 0; t < blocks_at_once; ++t) {
                const auto b = of(t);
                raw[t] = load_row_vector_if(b.is_whole, run.x + b.index * uint32(sizeof(T)));
            }
#pragma unroll
            for (uint32 t = 0; t < blocks_at_once; ++t) {
                const auto b = of(t);
                if (b.is_whole)
                    R::template write<Begin::aligned>(problem, place(b.row), b.in_row, V, length(b.row), raw[t], raw[t],
                                                      values[b.row], across, typename R::Columns{});
            }
        }
        // Blocks of two rows: what both come to, joined.
#pragma unroll 1
        for (uint32 row = lane; row + 1 < count; row += lanes) {
            const uint32 seam = (row + 1) * n, own = (seam - before) % V, index = seam - own;
            if (own == 0 || index + V > total) continue;
            const uint4 raw = load_row_vector_if(true, run.x + index * uint32(sizeof(T)));
            R::template write<Begin::kept>(problem, run, n - own, V, length(row), raw, raw, values[row], across,
                                           typename R::Columns{});
            R::template write<Begin::kept>(problem, run, 0 - own, V, length(row + 1), raw, raw, values[row + 1], next,
                                           typename R::Columns{});
#pragma unroll
            for (uint32 k = 0; k < R::outputs; ++k)
                store_word(reinterpret_cast<uint4*>(run.outputs[k] + index * uint32(sizeof(T))),
                           join_bytes(across.carried[k], next.carried[k], int32(own * sizeof(T))));
        }
        // What lies before and behind all blocks, of the first row and of the last one.
        const uint32 index = lane < V ? lane : before + blocks * V + lane - V;
        if (lane >= 2 * V || index >= (lane < V ? before : total)) return;
        const uint32 row = min(index * inverse >> 22, count - 1);
        union { uint4 raw; T element; } u;
        u.raw = make_uint4(0, 0, 0, 0);
        u.element = load_row_element<T>(run.x + index * uint32(sizeof(T)));
        R::template write<Begin::aligned, 1>(problem, place(row), index - row * n, 1, length(row), u.raw, u.raw, values[row], across,
                                             typename R::Columns{});
    }
};

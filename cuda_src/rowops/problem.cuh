// What a kernel for row operations is given, and where a row's elements lie.
//
// The struct R that Python generates for an operation and its types has
//   Input, Number         types of the row's elements, and in which expressions compute;
//   Op                    the reduction, `Both` of several, or NoReduction;
//   arrays                how many arrays of rows are read: 1 or 2;
//   merges                whether both are merged into one element first: merge<V>(x, y), of V elements, into x;
//   needs_first, looks    whether values() reads the row's first element, or others;
//   masks                 whether a row may have fewer elements than the arrays: see `length`;
//   in_blocks             whether all that elements are written from is at their own place, and as wide, 2 or 4 bytes;
//   outputs, addresses    how many arrays of rows are written, and how many addresses the argument begins with:
//                         first both arrays, then the others as the generated code knows;
//   parameters, tables    how many scalars the operation has, and how many arrays that its expressions look into;
//   Given                 what a row is given: given(problem, number);
//   length(problem, given)        how many of the row's elements there are;
//   Values                what its reductions come to: values(problem, given, number, source, root), by one warp, whose
//                         lane `keeps` writes what is kept of each row;
//   Columns               what lies beside the columns of one vector: columns<Where>(problem, index, count) loads it;
//   write<Where>(problem, place, index, count, length, x, y, values, across, columns)     writes the elements of one vector; how
//                         those of all lanes follow each other, store_across needs to know. write<Where, 1> only its first one.
#pragma once
#include "columns/axes.cuh"
#include "rowops/numbers.cuh"
#include "rowops/quotient.cuh"
#include "tree/block.cuh"
#include "tree/cluster.cuh"

__host__ __device__ constexpr uint32 at_least_one(uint32 n) { return n > 0 ? n : 1; }

// The argument of every entry. Of `cut` each kernel says what it means; rows are numbered in C order of the kept axes.
template <class R> struct RowProblem {
    char* addresses[R::addresses];
    uint64 length, rows, cut;
    float64 parameters[at_least_one(R::parameters)];
    Axes kept;  // strides of the first and of the second array
    int64 output_stride[at_least_one(R::outputs)][max_axes];
    int64 element_step[R::arrays + R::outputs];  // bytes from one element of a row to the next
    uint64 table_elements[at_least_one(R::tables)];
    int64 extents[R::arrays][2];  // the first byte of each array of rows that is read, and the one past its last, from its address
};

// An array that expressions look into: table[k] is a number, NaN where there is no element k.
template <class T, class Number> struct Table {
    const T* elements;
    uint64 count;
    __device__ __forceinline__ Number operator[](int64 k) const
    {
        return uint64(k) < count ? Number(number(elements[k])) : not_a_number<Number>();
    }
};

// Where one row lies in all arrays of rows.
template <class R> struct RowPlace {
    const char* x;
    const char* y;
    char* outputs[at_least_one(R::outputs)];

    RowPlace() = default;
    __device__ __forceinline__ RowPlace(const RowProblem<R>& problem, uint64 row) : y(nullptr)
    {
        x = problem.addresses[0] + offset(problem, problem.kept.strides(false), row);
        if constexpr (R::arrays > 1) y = problem.addresses[1] + offset(problem, problem.kept.strides(true), row);
    }
    // Most arrays have one axis besides the rows', for which there is no loop.
    template <class By> static __device__ __forceinline__ int64 offset(const RowProblem<R>& problem, const By& by, uint64 row)
    {
        return problem.kept.count == 1 ? int64(row) * by[0] : problem.kept.offset_by(by, row);
    }
    // Whether words that `first` to `end` elements of the row lie in, and one more, are all the arrays', and nobody writes what lies
    // beside the row there: in place, its neighbours are written by others.
    __device__ __forceinline__ bool lies_inside(const RowProblem<R>& problem, uint32 first, uint32 end) const
    {
        const auto inside = [&](uint32 k, const char* row) {
            const int64 at = row - problem.addresses[k];
            bool apart = true;
#pragma unroll
            for (uint32 j = 0; j < R::outputs; ++j) apart = apart && problem.addresses[R::first_output + j] != problem.addresses[k];
            return apart && at + int64(first) * int64(sizeof(typename R::Input)) - 4 >= problem.extents[k][0] &&
                at + int64(end) * int64(sizeof(typename R::Input)) + 4 <= problem.extents[k][1];
        };
        bool all = inside(0, x);
        if constexpr (R::arrays > 1) all = all && inside(1, y);
        return all;
    }
    // Whether all that is written begins as far into a block of 16 bytes as the first array's row.
    __device__ __forceinline__ bool has_same_blocks() const
    {
        bool all = true;
#pragma unroll
        for (uint32 k = 0; k < R::outputs; ++k) all = all && (outputs[k] - x) % vector_bytes == 0;
        return all;
    }
    // Apart, and after the reduction: kept all along, the addresses would take registers that the elements need.
    __device__ __forceinline__ void find_outputs(const RowProblem<R>& problem, uint64 row)
    {
        constexpr uint32 before = R::first_output;
#pragma unroll
        for (uint32 k = 0; k < R::outputs; ++k)
            outputs[k] = problem.addresses[before + k] + offset(problem, problem.output_stride[k], row);
    }
};

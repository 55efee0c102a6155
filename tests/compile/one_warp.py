"""A leaf folded by one simulated warp, and leaves whose smallest and largest elements are not easy to tell."""

import struct

import ml_dtypes
import numpy as np

from lowlevel_reduce.compiler import Program, compile_program
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.simulator import machine, ptx

OPTIONS = ("-fmad=false",)

LEAF = """\
#include "operators.cuh"
#include "leaf.cuh"
using Op = {struct};
// The leaf of `length` elements at x, which starts `first` elements into its row.
extern "C" __global__ void leaf(const uint4* x, Op::Result* out, uint64 length, uint64 first)
{{
    const Source<Op> source(Problem{{}}, reinterpret_cast<const char*>(x), nullptr, length);
    auto value = lane_fold_aligned<Op>(source, source.begin, first, uint32(length * sizeof(Op::Input)), threadIdx.x);
    value = warp_fold<Op>(value);
    for (int k = 0; k < Op::results; ++k)
        if (threadIdx.x == 0) out[k] = Op::finish(value, source.row, k);
}}
"""
VECTORS = """\
#include "operators.cuh"
#include "leaf.cuh"
using Op = {struct};
// The same, at any address and of any length.
extern "C" __global__ void vectors(const char* x, Op::Result* out, uint64 length, uint64 first)
{{
    const Source<Op> source(Problem{{}}, x, nullptr, length);
    auto value = lane_fold_edge<Op>(source, x, first, length * sizeof(Op::Input), threadIdx.x);
    value = warp_fold<Op>(value);
    for (int k = 0; k < Op::results; ++k)
        if (threadIdx.x == 0) out[k] = Op::finish(value, source.row, k);
}}
"""


def kernel(entry, template, operation, dtype, architecture):
    """Return the kernel, parsed, of an operator over a type."""
    return parse(entry, template.format(struct=operation.struct(operation.types(element_type(dtype)))), architecture)


def parse(entry, text, architecture):
    """Return a kernel, parsed."""
    image = compile_program(Program(entry, text, options=OPTIONS), architecture, output="ptx")
    return ptx.parse(image.data.decode()).kernels[entry]


def run(parsed, result, count, arrays, *numbers, offset=0):
    """Run a kernel by one warp; return the `count` results that it wrote. The arrays start `offset` bytes off."""
    memory = machine.GlobalMemory()
    addresses = []
    for array in arrays:
        addresses.append(memory.allocate(offset + array.nbytes) + offset)
        memory.write(addresses[-1], array.tobytes())
    size = count * np.dtype(result).itemsize
    out = memory.allocate(size)
    arguments = [*addresses, out, *numbers]
    launch(parsed, memory, struct.pack(f"{len(arguments)}Q", *arguments))
    return np.frombuffer(memory.read(out, size), result)


def launch(parsed, memory, arguments, threads=32):
    """Run a kernel by one block of so many threads, with these bytes as its arguments."""
    machine.run(
        machine.Launch(
            kernel=parsed,
            grid=(1, 1, 1),
            block=(threads, 1, 1),
            cluster=None,
            dynamic_shared_bytes=0,
            arguments=arguments,
            cooperative=False,
            resident_blocks=1,
            seed=None,
        ),
        memory,
    )


def leaves(dtype):
    """Yield leaves, whole and not: ties everywhere, worse than zeros, and NaN of any bits."""
    dtype = element_type(dtype).dtype
    rng = np.random.default_rng(4)
    vector, unsigned = 16 // dtype.itemsize, np.dtype(f"u{dtype.itemsize}")
    for length in (256 * vector, 129 * vector, vector):
        yield rng.integers(0, 3, length).astype(dtype)
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            yield np.full(length, limits.max, dtype)
            yield np.full(length, limits.min, dtype)
            yield rng.integers(limits.min, limits.max, length, dtype, endpoint=True)
            continue
        yield -rng.integers(1, 4, length).astype(dtype)
        yield np.full(length, -np.inf, dtype)
        yield np.full(length, np.inf, dtype)
        zeros = np.where(rng.random(length) < 0.5, -0.0, 0.0).astype(dtype)
        yield zeros
        for one in (0.0, -0.0):
            few = np.full(length, -one, dtype)
            few[rng.integers(0, length)] = one
            yield few
            for other in (1, -1):
                yield np.where(rng.random(length) < 0.5, other, few).astype(dtype)
        x = rng.standard_normal(length).astype(dtype)
        yield x
        quiet = int(np.array(np.nan, dtype).view(unsigned))
        sign = 1 << (8 * dtype.itemsize - 1)
        signalling = int(np.array(np.inf, dtype).view(unsigned)) + 1
        some = x.copy()
        some.view(unsigned)[rng.integers(0, length, 3)] = (quiet | sign | 1, signalling, quiet)
        yield some
        yield np.full(length, signalling | sign, unsigned).view(dtype)
        last = np.full(length, -np.inf, dtype)
        last[-1] = ml_dtypes.finfo(dtype).smallest_subnormal
        yield last

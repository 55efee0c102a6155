"""Where an extreme is: a lane's part of a leaf, and the 32 lanes at once, against the combination that defines them."""

import struct
from functools import cache

import numpy as np
import pytest

from lowlevel_reduce import tree
from lowlevel_reduce.compiler import Program, compile_program, supported_architectures
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.errors import NoCompilerError
from lowlevel_reduce.operators import resolve
from lowlevel_reduce.simulator import machine, ptx

try:
    supported_architectures()
except NoCompilerError as error:
    pytest.skip(str(error), allow_module_level=True)

OPTIONS = ("-fmad=false",)
ARCHITECTURES = ("sm_75", "sm_90")  # the first has no max.NaN and no redux
VARIANTS = {"argmin": ("argmin", False), "argmax": ("argmax", False), "last argmax": ("argmax", True)}

LEAF = """\
#include "operators.cuh"
#include "leaf.cuh"
using Op = {struct};
// The leaf of `length` elements at x, which starts `first` elements into its row.
extern "C" __global__ void leaf(const uint4* x, int64* out, uint64 length, uint64 first)
{{
    const Source<Op> source(Problem{{}}, reinterpret_cast<const char*>(x), nullptr, length);
    auto value = lane_fold_aligned<Op>(source, source.begin, first, uint32(length) * 4, threadIdx.x);
    value = warp_fold<Op>(value);
    if (threadIdx.x == 0) *out = Op::finish(value, source.row, 0);
}}
"""
LANES = """\
#include "operators.cuh"
#include "warp.cuh"
using Op = {struct};
extern "C" __global__ void lanes(const int32* keys, const uint64* indices, int64* out)
{{
    const auto value = warp_fold<Op>(Op::Accumulator{{keys[threadIdx.x], Split64(indices[threadIdx.x])}});
    out[threadIdx.x] = int64(value.index.whole());
}}
"""


@cache
def kernel(entry, template, variant, dtype, architecture):
    op, last = VARIANTS[variant]
    operation = resolve(op, last=last)
    text = template.format(struct=operation.struct(operation.types(element_type(dtype))))
    image = compile_program(Program(entry, text, options=OPTIONS), architecture, output="ptx")
    return ptx.parse(image.data.decode()).kernels[entry]


def run(parsed, outputs, arrays, *numbers):
    """Run a kernel by one warp; return what it wrote."""
    memory = machine.GlobalMemory()
    addresses = []
    for array in arrays:
        addresses.append(memory.allocate(array.nbytes))
        memory.write(addresses[-1], array.tobytes())
    out = memory.allocate(8 * outputs)
    arguments = [*addresses, out, *numbers]
    launch = machine.Launch(
        kernel=parsed,
        grid=(1, 1, 1),
        block=(32, 1, 1),
        cluster=None,
        dynamic_shared_bytes=0,
        arguments=struct.pack(f"{len(arguments)}Q", *arguments),
        cooperative=False,
        resident_blocks=1,
        seed=None,
    )
    machine.run(launch, memory)
    return np.frombuffer(memory.read(out, 8 * outputs), np.int64)


def leaves(dtype):
    """Yield leaves, whole and not: ties everywhere, worse than zeros, and NaN of any bits."""
    rng = np.random.default_rng(4)
    for length in (1024, 516, 4):
        yield rng.integers(0, 3, length).astype(dtype)
        if np.dtype(dtype).kind == "u":
            yield np.full(length, 2**32 - 1, dtype)
            yield np.zeros(length, dtype)
            continue
        yield -rng.integers(1, 4, length).astype(dtype)
        worst = -np.inf if dtype == "float32" else np.iinfo(dtype).min
        yield np.full(length, worst, dtype)
        if dtype == "float32":
            yield np.where(rng.random(length) < 0.5, -0.0, 0.0).astype(dtype)
            x = rng.standard_normal(length).astype(dtype)
            x.view(np.uint32)[rng.integers(0, length, 3)] = (0xFFC00001, 0x7F800001, 0x7FC00000)
            yield x


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_leaf(variant, dtype, architecture):
    op, last = VARIANTS[variant]
    parsed = kernel("leaf", LEAF, variant, dtype, architecture)
    for x in leaves(dtype):
        first = 1 << 33
        assert run(parsed, 1, [x], x.size, first)[0] - first == tree.reduce(x, op, last=last), x.size


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_lanes_far_apart(variant, architecture):
    op, last = VARIANTS[variant]
    operation = resolve(op, last=last)
    types = operation.types(element_type("float32"))
    parsed = kernel("lanes", LANES, variant, "float32", architecture)
    rng = np.random.default_rng(5)
    for absent in (0, 20, 32):
        for _ in range(3):
            keys = rng.integers(-2, 2, 32).astype(np.int32)
            indices = rng.integers(0, 3, 32).astype(np.uint64) << np.uint64(32)
            indices |= rng.permutation(32).astype(np.uint64) << np.uint64(27)
            for field, nothing in zip((keys, indices), operation.identity(types), strict=True):
                field[32 - absent :] = nothing
            expected = (keys[:1], indices[:1])
            for lane in range(1, 32):
                expected = operation.combine(expected, (keys[lane : lane + 1], indices[lane : lane + 1]), types)
            got = run(parsed, 32, [keys, indices])
            assert (got == expected[1].view(np.int64)).all()

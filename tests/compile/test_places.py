"""Where an extreme is: a lane's part of a leaf, and the 32 lanes at once, against the combination that defines them."""

import numpy as np
import pytest
from one_warp import LEAF, VECTORS, fold, kernels, leaves, run

from lowlevel_reduce import tree
from lowlevel_reduce.compiler import supported_architectures
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.errors import NoCompilerError
from lowlevel_reduce.operators import resolve

try:
    supported_architectures()
except NoCompilerError as error:
    pytest.skip(str(error), allow_module_level=True)

ARCHITECTURES = ("sm_75", "sm_80", "sm_90")  # the first has no max.NaN, no pairs and no redux
VARIANTS = {"argmin": ("argmin", False), "argmax": ("argmax", False), "last argmax": ("argmax", True)}
TYPES = ["float32", "int32", "uint32", "float16", "bfloat16", "float64", "int64", "uint64", "int16", "float8_e5m2"]
# Bytes are compared as 16 bits, e4m3 from sm_89 on; integers as float16 before sm_90, then as integers.
WIDENED = {
    "float8_e4m3fn": ("sm_89", "sm_90", "sm_120"),
    "int8": ("sm_80", "sm_90", "sm_120"),
    "uint8": ("sm_80", "sm_90"),
    "uint16": ("sm_90",),
}

LANES = """\
#include "operators.cuh"
#include "tree/warp.cuh"
using Op = {struct};
extern "C" __global__ void all_lanes(const int32* keys, const uint64* indices, int64* out)
{{
    const auto value = warp_fold<Op>(Op::Accumulator{{keys[threadIdx.x], Split64(indices[threadIdx.x])}});
    out[threadIdx.x] = int64(value.index.whole());
}}
"""


def kernels_of(entry, template, variant, dtype, architectures=ARCHITECTURES):
    op, last = VARIANTS[variant]
    return kernels(entry, template, resolve(op, last=last), dtype, architectures)


def check(folded, variant, arrays, *, first=0, offset=0):
    op, last = VARIANTS[variant]
    arrays = list(arrays)
    found = fold(folded, np.int64, 1, arrays, first=first, offset=offset)
    for x, (got,) in zip(arrays, found, strict=True):
        assert got - first == tree.reduce(x, op, last=last), x.size


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_leaf(variant, dtype):
    for leaf in kernels_of("leaf", LEAF, variant, dtype):
        check(leaf, variant, leaves(dtype), first=1 << 33)


@pytest.mark.parametrize("dtype", WIDENED)
@pytest.mark.parametrize("variant", ["argmin", "argmax"])
def test_a_leaf_of_bytes(variant, dtype):
    for leaf in kernels_of("leaf", LEAF, variant, dtype, WIDENED[dtype]):
        check(leaf, variant, leaves(dtype), first=1 << 33)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_vectors_at_any_address(variant, dtype):
    some = list(leaves(dtype))[::5]
    for vectors in kernels_of("vectors", VECTORS, variant, dtype):
        check(vectors, variant, [x[:-1] for x in some], first=1 << 33)
        check(vectors, variant, some, offset=6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_lanes_far_apart(variant):
    op, last = VARIANTS[variant]
    operation = resolve(op, last=last)
    types = operation.types(element_type("float32"))
    rng = np.random.default_rng(5)
    for lanes in kernels_of("all_lanes", LANES, variant, "float32"):
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
                got = run(lanes, np.int64, 32, [keys, indices])
                assert (got == expected[1].view(np.int64)).all()

"""The smallest and the largest of whole leaves, of pairs and of vectors cut by an edge, against the tree."""

import numpy as np
import pytest
from one_warp import LEAF, VECTORS, fold, kernels, leaves

from lowlevel_reduce import tree
from lowlevel_reduce.compiler import supported_architectures
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.errors import NoCompilerError
from lowlevel_reduce.operators import resolve

try:
    supported_architectures()
except NoCompilerError as error:
    pytest.skip(str(error), allow_module_level=True)

ARCHITECTURES = ("sm_75", "sm_80", "sm_90")  # the first compares neither pairs nor so that a NaN wins
# Bytes are compared as 16 bits, e4m3 from sm_89 on; integers as float16 before sm_90, then as integers.
WIDENED = {
    "float8_e4m3fn": ("sm_89", "sm_90", "sm_120"),
    "float8_e5m2": ("sm_80", "sm_90"),
    "int8": ("sm_80", "sm_90", "sm_120"),
    "uint8": ("sm_80", "sm_90"),
    "uint16": ("sm_90",),
}
VARIANTS = {
    **{op: (op, {}) for op in ("min", "max", "minmax")},
    **{f"{op} nan": (op, {"nan": "ignore"}) for op in ("min", "max")},
}


def kernels_of(entry, template, variant, dtype, architectures=ARCHITECTURES):
    op, options = VARIANTS[variant]
    return kernels(entry, template, resolve(op, **options), dtype, architectures)


def check(folded, variant, arrays, **where):
    op, options = VARIANTS[variant]
    arrays = list(arrays)
    results = 2 if op == "minmax" else 1
    found = fold(folded, element_type(arrays[0].dtype).dtype, results, arrays, **where)
    for x, got in zip(arrays, found, strict=True):
        expected = tree.reduce(x, op, **options)
        expected = np.array(expected if isinstance(expected, tuple) else (expected,))
        assert got.tobytes() == expected.tobytes(), (got, expected, x.size)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_leaf(variant, dtype):
    for leaf in kernels_of("leaf", LEAF, variant, dtype):
        check(leaf, variant, leaves(dtype))


@pytest.mark.parametrize("dtype", WIDENED)
@pytest.mark.parametrize("variant", ["min", "max nan", "minmax"])
def test_a_leaf_of_bytes(variant, dtype):
    for leaf in kernels_of("leaf", LEAF, variant, dtype, WIDENED[dtype]):
        check(leaf, variant, leaves(dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_vectors_at_any_address(variant, dtype):
    some = list(leaves(dtype))[::3]
    for vectors in kernels_of("vectors", VECTORS, variant, dtype):
        check(vectors, variant, [x[:-1] for x in some])
        check(vectors, variant, some, offset=6)


@pytest.mark.parametrize(
    ("dtype", "architecture"), [("float8_e4m3fn", "sm_90"), ("int8", "sm_80"), ("uint16", "sm_90")]
)
@pytest.mark.parametrize("variant", ["max", "minmax"])
def test_vectors_of_bytes_at_any_address(variant, dtype, architecture):
    vector, some = 16 // element_type(dtype).itemsize, list(leaves(dtype))[-6:]
    for vectors in kernels_of("vectors", VECTORS, variant, dtype, [architecture]):
        check(vectors, variant, [x[:size] for x in some for size in (x.size - 1, x.size - vector + 1)])
        check(vectors, variant, some, offset=6)

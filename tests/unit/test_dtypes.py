"""The table of types against NumPy's rules and against the CUDA C++ that uses its names."""

import re

import ml_dtypes
import numpy as np
import pytest

from lowlevel_reduce import UnsupportedError
from lowlevel_reduce.compiler import source_root
from lowlevel_reduce.dtypes import COMPENSATED, ELEMENT_TYPES, accumulator_bytes, element_type
from lowlevel_reduce.operators import resolve

SUM = resolve("sum")


@pytest.mark.parametrize("entry", ELEMENT_TYPES, ids=lambda entry: entry.name)
def test_entry(entry):
    assert element_type(entry.name) is entry is element_type(entry.dtype)
    assert entry.vector * entry.itemsize == 16
    assert entry.leaf == 256 * entry.vector
    if not entry.name.startswith(("bfloat16", "float8")):
        assert entry.result == np.sum(np.zeros(1, entry.dtype)).dtype.name
    header = (source_root() / "base/types.cuh").read_text(encoding="utf-8")
    assert re.search(rf"\b{entry.c_name};|struct {entry.c_name} ", header)


def test_types_of_ml_dtypes_by_name_and_dtype():
    assert element_type("bfloat16") is element_type(ml_dtypes.bfloat16)
    assert element_type("float8_e4m3") is element_type("float8_e4m3fn") is element_type(ml_dtypes.float8_e4m3fn)
    assert element_type("float8_e5m2") is element_type(ml_dtypes.float8_e5m2)


def test_another_float8_is_not_taken_for_ours():
    with pytest.raises(UnsupportedError, match="cannot be reduced"):
        element_type(np.dtype(ml_dtypes.float8_e4m3))


def test_16_byte_elements_fill_a_vector_each():
    assert (element_type("complex128").vector, element_type("complex128").leaf) == (1, 256)
    assert [entry.name for entry in ELEMENT_TYPES if entry.is_complex] == ["complex64", "complex128"]
    assert {entry.name for entry in ELEMENT_TYPES if entry.is_float} == {
        "float8_e4m3fn",
        "float8_e5m2",
        "float16",
        "bfloat16",
        "float32",
        "float64",
    }


@pytest.mark.parametrize(
    ("dtype", "accumulate", "accumulator", "result"),
    [
        ("float8_e4m3", None, "float32", "float32"),
        ("float8_e5m2", "compensated", "compensated", "float32"),
        ("complex64", None, "complex128", "complex64"),
        ("float16", None, "float32", "float16"),
        ("bfloat16", "float64", "float64", "bfloat16"),
        ("float32", None, "float64", "float32"),
        ("float32", "float32", "float32", "float32"),
        ("float64", "compensated", "compensated", "float64"),
        ("int8", None, "int64", "int64"),
        ("int8", "int8", "int64", "int8"),
        ("int8", "int64", "int64", "int64"),
        ("uint16", None, "uint64", "uint64"),
        ("bool", None, "int64", "int64"),
    ],
)
def test_accumulators(dtype, accumulate, accumulator, result):
    entry = element_type(dtype)
    assert SUM.accumulator(entry, accumulate) == accumulator
    assert SUM.result_type(entry, None, accumulate) == result


@pytest.mark.parametrize("dtype", ["clongdouble", "datetime64[s]", "object", "S3", "longdouble"])
def test_refuses_other_types(dtype):
    with pytest.raises(UnsupportedError, match="cannot be reduced"):
        element_type(dtype)


def test_refuses_nonsense():
    for dtype in ("flaot32", "(2,f4"):  # of the second NumPy says SyntaxError
        with pytest.raises(TypeError, match="not understood"):
            element_type(dtype)
    with pytest.raises(UnsupportedError, match="accumulates in"):
        SUM.accumulator(element_type("int8"), "int16")
    with pytest.raises(UnsupportedError, match="not int32"):
        SUM.result_type(element_type("float32"), "int32")
    for accumulate in ("kahan", "", 3):
        with pytest.raises(TypeError, match=f"accumulate is a dtype or 'compensated', not {accumulate!r}"):
            SUM.accumulator(element_type("float32"), accumulate)


def test_accumulator_sizes():
    assert [accumulator_bytes(name) for name in ("float32", "float64", "int64", COMPENSATED)] == [4, 8, 8, 16]

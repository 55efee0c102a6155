"""Operators over large arrays fit the registers that leave a multiprocessor two blocks of 16 warps."""

import pytest
from test_kernels import Case, whole_programs

from lowlevel_reduce.loading import compile_kernel

OPERATORS = (
    "sum",
    "mean",
    "prod",
    "norm1",
    "norm2",
    "sum_squares",
    "count_nonzero",
    "max",
    "minmax",
    "argmin",
    "norm_inf",
)
FULL = [*(Case(op, "float32") for op in OPERATORS), Case("norm2", "complex64"), Case("sum", "complex64"),
        Case("sum", "float64"), Case("sum", "int64"), Case("prod", "float64")]  # fmt: skip


@pytest.mark.parametrize("case", FULL, ids=str)
def test_two_blocks_of_a_multiprocessor(case):
    """With more registers there would be one, at four fifths of the memory's speed."""
    (source,) = whole_programs(case, {"strategy": "tiles", "leaves": 100_000}, "sm_90")
    use = compile_kernel(source._replace(spare=()), "sm_90").kernels[source.entry]
    assert (use.registers <= 64, use.spill_store_bytes) == (True, 0)

"""Operators over large arrays fit the registers that leave a multiprocessor two blocks of 16 warps."""

import pytest
from test_kernels import Case, row_programs, whole_programs

from lowlevel_reduce.compiler import nvrtc
from lowlevel_reduce.plans.loading import compile_kernel

OPERATORS = ("sum", "mean", "prod", "norm1", "norm2", "sum_squares", "max", "minmax", "argmin", "norm_inf")
FULL = [*(Case(op, "float32") for op in OPERATORS), Case("norm2", "complex64"), Case("sum", "complex64"),
        Case("sum", "float64"), Case("sum", "int64"), Case("prod", "float64")]  # fmt: skip

# NVRTC 13.5 spills four words of squares of float32, so that plans take 72 registers there; 12.9 and 13.0 spill none.
SPILLED = 16 if nvrtc.version() > (13, 0) else 0
SQUARES = ("norm2-float32", "sum_squares-float32", "norm2-complex64")


@pytest.mark.parametrize("case", FULL, ids=str)
def test_two_blocks_of_a_multiprocessor(case):
    """With more registers there would be one, at four fifths of the memory's speed."""
    source, _ = whole_programs(case, {"strategy": "tiles", "leaves": 100_000}, "sm_90")
    use = compile_kernel(source._replace(spare=()), "sm_90").kernels[source.entry]
    assert use.registers <= 64
    assert use.spill_store_bytes <= (SPILLED if str(case) in SQUARES else 0)


@pytest.mark.parametrize("op", ["sum", "mean", "max"])
def test_four_blocks_of_eight_warps(op):
    source, _ = whole_programs(Case(op, "float32"), {"strategy": "tiles", "leaves": 1 << 10}, "sm_90")
    use = compile_kernel(source._replace(spare=()), "sm_90").kernels[source.entry]
    assert use.registers <= 64
    assert use.spill_store_bytes == 0


@pytest.mark.parametrize("cluster", [2, 8])
@pytest.mark.parametrize("op", ["sum", "max"])
def test_two_blocks_in_clusters(op, cluster):
    mapping = {"strategy": "tiles", "leaves": 100_000, "cluster": cluster}
    source, _ = whole_programs(Case(op, "float32"), mapping, "sm_90")
    use = compile_kernel(source._replace(spare=()), "sm_90").kernels[source.entry]
    assert use.registers <= 64
    assert use.spill_store_bytes == 0


@pytest.mark.parametrize("op", ["sum", "max"])
def test_two_blocks_of_rows(op):
    """With a block for each row; with one at a time such rows take 13 percent longer."""
    source, _ = row_programs(Case(op, "float32"), (1 << 14, 1 << 14), 1, "sm_90")
    use = compile_kernel(source._replace(spare=()), "sm_90").kernels[source.entry]
    assert use.registers <= 64
    assert use.spill_store_bytes == 0

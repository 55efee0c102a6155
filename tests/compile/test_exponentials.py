"""The exponential that sums relative to a maximum are made of, against NumPy's in a wider type."""

import numpy as np
import pytest
from one_warp import parse, run

from lowlevel_reduce.compiler import supported_architectures
from lowlevel_reduce.errors import NoCompilerError

try:
    supported_architectures()
except NoCompilerError as error:
    pytest.skip(str(error), allow_module_level=True)

TEXT = """\
#include "operators.cuh"
extern "C" __global__ void each(const {type}* x, {type}* y, uint64 n)
{{
    for (uint32 i = threadIdx.x; i < n; i += 32) y[i] = decay(x[i]);
}}
"""


def decays(x):
    kind = {4: "float32", 8: "float64"}[x.itemsize]
    return run(parse("each", TEXT.format(type=kind), "sm_90"), x.dtype, x.size, [x], x.size)


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="no type wider than float64 here")
@pytest.mark.parametrize("sign", [1, -1])
def test_float64_is_within_one_place(sign):
    rng = np.random.default_rng(0)
    whole = np.log(2) * (np.arange(1000) + 0.5)  # where the nearest power of two changes
    x = np.concatenate([rng.uniform(0, 1, 2000), rng.uniform(0, 708, 4000), 2.0 ** rng.uniform(-1070, 0, 300), whole])
    x = np.concatenate([x, np.nextafter(whole, 0), np.nextafter(whole, np.inf), [0.0, 5e-324, 708.0]])
    x = x[x <= 708] * sign
    exact = np.exp(-np.abs(x).astype(np.longdouble))
    error = np.abs(decays(x).astype(np.longdouble) - exact) / np.spacing(exact.astype(np.float64))
    assert error.max() < 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_no_number_or_far_away(dtype):
    x = np.array([0.0, -0.0, np.nan, -np.nan, 1e5, -1e30, np.inf, -np.inf, np.finfo(dtype).max], dtype)
    found = decays(x)
    assert found[:4].tolist() == [1.0] * 4
    assert (found[4:] >= 0).all()
    assert (found[4:] < 1e-37).all()

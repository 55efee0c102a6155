"""The kernels of arrays in parts, for every architecture: they compile and spill nothing."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from lowlevel_reduce import Operator
from lowlevel_reduce.combining import divided
from lowlevel_reduce.compiler import supported_architectures
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.errors import NoCompilerError
from lowlevel_reduce.kernels import partials_kernel_source
from lowlevel_reduce.loading import compile_kernel
from lowlevel_reduce.operators.adapters import rooted
from lowlevel_reduce.policy import DeviceFacts
from lowlevel_reduce.selection import operator_text, request_of, select

try:
    KNOWN = supported_architectures()
except NoCompilerError as error:
    pytest.skip(str(error), allow_module_level=True)

ARCHITECTURES = [name for name in ("sm_75", "sm_90", "sm_120") if name in KNOWN]
PAIR = Operator(
    "pair",
    map="Accumulator{x, x}",
    combine="Accumulator{a.low + b.low, fmax(a.high, b.high)}",
    identity="Accumulator{0, -1}",
    finish=("a.low", "a.high"),
    accumulator="struct { double low, high; }",
    accumulator_bytes=16,
)
CASES = [
    ("sum", "float32", {}),
    ("sum", "uint8", {}),
    ("sum", "float64", {"accumulate": "compensated"}),
    ("mean", "float16", {"nan": "ignore"}),
    ("prod", "complex64", {}),
    ("max", "bfloat16", {}),
    ("minmax", "float64", {}),
    ("argmax", "float32", {}),
    ("argmin", "int8", {"last": True}),
    ("logsumexp", "float32", {}),
    ("softmax_stats", "float64", {}),
    ("dot", "float32", {}),
    ("mean_var", "float32", {}),
    ("var", "complex128", {}),
    (PAIR, "float32", {}),
]
# An array's chunks, few and many, long and of a leaf; and its rest.
SHAPES = [(3, 1 << 24), (128, 1 << 21), (1000, 1 << 10), (1, 999)]


def name_of(case):
    return "-".join([getattr(case[0], "name", case[0]), case[1], *case[2]])


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_no_kernel_of_arrays_in_parts_spills(case):
    op, dtype, options = case
    accumulate = options.get("accumulate")
    reduction = divided(op, **{name: value for name, value in options.items() if name != "accumulate"})
    types = reduction.types(element_type(dtype), accumulate)
    jobs = [(partials_kernel_source(operator_text(reduction, types))[0], name) for name in ARCHITECTURES]
    for shape in SHAPES:
        request = request_of(rooted(reduction, types), shape=shape, axis=1, dtype=dtype)
        facts = DeviceFacts((9, 0), 132, clusters=True, cooperative=True)
        jobs += [(source, "sm_90") for source in select(request, facts).sources]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(lambda job: compile_kernel(*job), dict.fromkeys(jobs)))
    for cubin in made:
        for name, use in cubin.kernels.items():
            assert (use.spill_store_bytes, use.spill_load_bytes) == (0, 0), (name, cubin.architecture, use)

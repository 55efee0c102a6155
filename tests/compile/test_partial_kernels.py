"""The kernels of arrays in parts, for every architecture: they compile and spill nothing."""

import pytest

from lowlevel_reduce import Operator
from lowlevel_reduce.compiler import supported_architectures
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.errors import NoCompilerError
from lowlevel_reduce.operators import resolve
from lowlevel_reduce.operators.adapters import about_second, rooted
from lowlevel_reduce.parts.all_chunks import suits
from lowlevel_reduce.parts.combining import divided
from lowlevel_reduce.parts.cut import Place
from lowlevel_reduce.plans.loading import compile_kernel
from lowlevel_reduce.strategy.selection import operator_text, request_of, select
from lowlevel_reduce.strategy.stubs import chunks_kernel_source, partials_kernel_source, parts_kernel_source, with_twins
from lowlevel_reduce.strategy.whole import DeviceFacts

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


def reduction_of(case):
    op, dtype, options = case
    accumulate = options.get("accumulate")
    reduction = divided(op, **{name: value for name, value in options.items() if name != "accumulate"})
    return reduction, reduction.types(element_type(dtype), accumulate)


def is_narrow(case):
    """Tell whether one launch may do for all chunks."""
    reduction, types = reduction_of(case)
    return suits(rooted(reduction, types), types.element.dtype, (1, 1), Place(0, 3 * 4096, 2, 4096), 4096)


def check(sources, architecture):
    for source in sources:
        for name, use in compile_kernel(source, architecture).kernels.items():
            assert (use.spill_store_bytes, use.spill_load_bytes) == (0, 0), (name, architecture, use)


@pytest.mark.drawn("architecture", 1)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_no_kernel_of_partials_spills(case, architecture):
    check(partials_kernel_source(operator_text(*reduction_of(case)))[:1], architecture)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_no_kernel_of_shares_spills(case, alone):
    check(parts_kernel_source(operator_text(*reduction_of(case)), alone=alone)[:1], "sm_90")


@pytest.mark.parametrize("case", [case for case in CASES if is_narrow(case)], ids=name_of)
def test_no_kernel_of_all_chunks_spills(case):
    reduction, types = reduction_of(case)
    text = operator_text(rooted(reduction, types), rooted(reduction, types).types(types.element))
    check(with_twins([chunks_kernel_source(text)]), "sm_90")


@pytest.mark.parametrize("case", [case for case in CASES if case[0] in ("mean_var", "var")], ids=name_of)
@pytest.mark.parametrize(("shape", "behind"), [((64, 19, 4096, 1), 1), ((1, 40, 4096, 128), 128)])
def test_no_kernel_about_a_second_array_spills(case, shape, behind):
    op, dtype, options = case
    reduction = about_second(resolve(op, **options))
    itemsize = element_type(dtype).itemsize
    request = request_of(
        rooted(reduction, reduction.types(element_type(dtype))),
        shape=shape,
        axis=2,
        dtype=dtype,
        second_strides_bytes=(behind * itemsize, 0, 0, itemsize),
    )
    facts = DeviceFacts((9, 0), 132, clusters=True, cooperative=True)
    check(with_twins(select(request, facts).sources), "sm_90")


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_no_kernel_of_chunks_spills(case, shape, few):
    reduction, types = reduction_of(case)
    request = request_of(rooted(reduction, types), shape=shape, axis=1, dtype=case[1])
    facts = DeviceFacts((9, 0), 132, clusters=True, cooperative=True)
    check(few(list(with_twins(select(request, facts).sources)), 1), "sm_90")

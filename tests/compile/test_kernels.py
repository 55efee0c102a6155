"""Every kernel: compiles, keeps out of local memory, loads 16 bytes at a time.

Operators, kernels and architectures meet pairwise, not all with all, so that it stays a matter of minutes.
"""

import os
import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from kept import listing

from lowlevel_reduce import Operator, layout
from lowlevel_reduce.compiler import supported_architectures
from lowlevel_reduce.dtypes import ELEMENT_TYPES, element_type
from lowlevel_reduce.errors import NoCompilerError
from lowlevel_reduce.operators import resolve
from lowlevel_reduce.plans.loading import compile_kernel
from lowlevel_reduce.strategy import rows, whole
from lowlevel_reduce.strategy.base import Task
from lowlevel_reduce.strategy.selection import needs_many_registers, operator_text
from lowlevel_reduce.strategy.stubs import kernel_sources, row_kernel_source, segment_kernel_sources, with_twins

try:
    KNOWN = supported_architectures()
except NoCompilerError as error:
    pytest.skip(str(error), allow_module_level=True)

ARCHITECTURES = [name for name in ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120") if name in KNOWN]


@dataclass(frozen=True)
class Case:
    """An operator over a type."""

    factors = ("op", "dtype", "accumulate", "options")  # what a sample shows each value of

    op: str
    dtype: str
    accumulate: str | None = None
    options: dict = field(default_factory=dict)

    def __str__(self):
        return "-".join([self.op, self.dtype, *filter(None, [self.accumulate]), *self.options])

    @property
    def reduction(self):
        return resolve(self.op, **self.options)

    @property
    def types(self):
        return self.reduction.types(element_type(self.dtype), self.accumulate)


OPERATORS = [
    Case("sum", "float32"),
    Case("sum", "float8_e4m3fn"),
    Case("sum", "uint8"),
    Case("sum", "float64", "compensated"),
    Case("sum", "float16", "compensated"),
    Case("sum", "complex64"),
    Case("sum", "complex128"),
    Case("sum", "float32", None, {"where": True}),
    Case("sum", "float32", None, {"nan": "ignore", "initial": True}),
    Case("sum", "float16", None, {"map": "x * x"}),
    Case("argmax", "float32", None, {"map": "fabs(x)"}),
    Case("mean_var", "float32", None, {"map": "x * x"}),
    Case("logsumexp", "float32", None, {"map": "x * 0.125f", "where": True}),
    Case("prod", "complex64"),
    Case("min", "float32"),
    Case("max", "bfloat16"),
    Case("minmax", "float64"),
    Case("argmax", "float32"),
    Case("argmin", "float64"),
    Case("argmin", "int8"),
    Case("any", "bool"),
    Case("mean", "float16", None, {"nan": "ignore"}),
    Case("mean_var", "float32"),
    Case("mean_var", "float64"),
    Case("mean_var", "uint8"),
    Case("std", "complex64"),
    Case("var", "float32", None, {"where": True}),
    Case("var", "complex128"),
    Case("norm2", "complex64"),
    Case("logsumexp", "float32"),
    Case("logsumexp", "bfloat16"),
    Case("softmax_stats", "float64"),
    Case("dot", "float32"),
    Case("dot", "int8"),
    Case("dot", "float64", "compensated"),
]

WHOLE = [
    {"strategy": "block", "leaves": 1},
    {"strategy": "block", "leaves": 64},
    {"strategy": "cluster", "leaves": 32},
    {"strategy": "tiles", "leaves": 1000},
    {"strategy": "tiles", "leaves": 100_000},
    {"strategy": "tiles", "leaves": 100_000, "block_threads": 1024},
    {"strategy": "two_pass", "leaves": 100_000},
    {"strategy": "cooperative", "leaves": 100_000},
]
# Shape and axis, for elements of 4 bytes; the policy chooses the kernel.
SHORT_ROWS = ((10**6, 8), 1)
ROWS = [
    SHORT_ROWS,
    ((10**4, 4096), 1),
    ((132, 16384), 1),
    ((10**5, 20_000), 1),
    ((8, 1 << 20), 1),
]
COLUMNS = [
    ((1, 10**6), 0),
    ((4, 10**6), 0),
    ((32, 10**6), 0),
    ((32, 10), 0),
    ((500, 100), 0),
    ((500, 10**7), 0),
    ((1000, 4096), 0),
    ((2048, 256), 0),
    ((4096, 4096), 0),
    ((1 << 20, 256), 0),
    ((1 << 20, 1), 0),
    ((1 << 20, 4), 0),
    ((1 << 20, 99), 0),
]


def capability(architecture):
    digits = re.sub(r"\D", "", architecture)
    return int(digits[:-1]), int(digits[-1])


def facts_of(architecture):
    found = capability(architecture)
    return whole.DeviceFacts(found, 100, clusters=found >= (9, 0), cooperative=True)


def compiled(pairs):
    """Compile kernels as a plan does, several at a time."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda pair: compile_kernel(*pair), pairs))


def whole_programs(case, mapping, architecture):
    """Return the kernels of a mapping of a whole array; none where the device has no such mapping."""
    facts, options = facts_of(architecture), dict(mapping)
    text = operator_text(case.reduction, case.types)
    wide = needs_many_registers(case.reduction, case.types)
    refused = options["strategy"] == "cluster" and not facts.clusters
    if options.get("block_threads") == 1024 and (wide or facts.compute_capability >= (10, 0)):
        refused = True
    if options.get("block_threads") == 1024 and case.types.element.is_complex and not facts.clusters:
        refused = True  # never chosen there, and NVRTC 12.9 then spills a word for sm_86 and sm_89
    if refused:
        return []
    small = case.types.element.itemsize <= 2
    chosen = whole.choose(options.pop("leaves"), facts, wide_accumulator=wide, small_elements=small, **options)
    sources = kernel_sources(text, chosen)
    # Misaligned sums of complex64 by blocks of 1,024 threads, which nobody is given unasked, spill two words.
    large = chosen.warps == 32 and case.types.element.is_complex
    return list(sources if large else with_twins(sources))


def row_programs(case, shape, axis, architecture, *, strided=False):
    """Return the kernel for rows or columns; of every second element where `strided`."""
    element = case.types.element
    text = operator_text(case.reduction, case.types)
    shape = tuple(max(1, size * 4 // element.itemsize) if i == axis else size for i, size in enumerate(shape))
    strides = layout.contiguous_strides(shape, element.itemsize)
    second = case.reduction.second_dtype(element)
    problem = layout.problem_of(
        shape,
        element.itemsize,
        axis=axis,
        strides_bytes=[2 * step for step in strides] if strided else strides,
        second_strides_bytes=None if second is None else layout.contiguous_strides(shape, second.itemsize),
        second_itemsize=0 if second is None else second.itemsize,
    )
    task = Task(problem, facts_of(architecture), element.itemsize, text.accumulator_bytes, text.heavy, text.two_arrays)
    return list(with_twins([row_kernel_source(text, rows.choose_rows(task))]))


def segment_programs(case, offsets, groups):
    return list(segment_kernel_sources(operator_text(case.reduction, case.types), offsets, groups))


class Kind(str):
    """The name of a kind of kernels, which stands for the sources that a sum has for it: many shapes have the same."""

    factors = ("sources",)  # what a sample shows each value of

    def __new__(cls, name, sources):
        kind = super().__new__(cls, name)
        kind.sources = f"{zlib.crc32(repr(sources).encode()):08x}"
        return kind


def kernel_kinds():
    """Yield each kind of kernel: a name, and a function from operator and architecture to programs."""
    for mapping in WHOLE:
        yield f"{mapping['strategy']}-{mapping['leaves']}", lambda case, arch, m=mapping: whole_programs(case, m, arch)
    for shape, axis in [*ROWS, *COLUMNS]:
        name = "x".join(map(str, shape))
        yield f"{name}-{axis}", lambda case, arch, s=shape, a=axis: row_programs(case, s, a, arch)
    for shape, axis in [*ROWS[:2], ROWS[-1]]:
        name = "x".join(map(str, shape))
        yield f"{name}-strided", lambda case, arch, s=shape, a=axis: row_programs(case, s, a, arch, strided=True)
    for offsets, groups in (("int32", 1), ("int64", 1), ("int64", 4)):
        yield (
            f"segments-{offsets}-{groups}",
            lambda case, arch, o=offsets, g=groups: (
                segment_programs(case, o, g) if case.reduction.second is None else []
            ),
        )


KINDS = {Kind(name, programs(Case("sum", "float32"), "sm_90")): programs for name, programs in kernel_kinds()}


def check(pairs):
    assert pairs
    wrong = []
    for cubin in compiled(pairs):
        assert cubin.names == (cubin.program.name,)
        assert "warning" not in cubin.log.lower(), cubin.log
        use = cubin.kernels[cubin.program.name]
        if use.stack_bytes or use.spill_store_bytes or use.spill_load_bytes:
            wrong.append(f"{cubin.program.name} for {cubin.architecture}: {use}")
    assert not wrong, "\n".join(wrong)


def meetings():
    """Yield what is compiled: each kind meets every seventh operator, so seven neighbouring kinds meet all."""
    for number, kind in enumerate(KINDS):
        met = False
        for i, case in enumerate(OPERATORS[number % 7 :: 7]):
            architecture = ARCHITECTURES[(number + i) % len(ARCHITECTURES)]
            if KINDS[kind](case, architecture):
                met = True
                yield pytest.param(kind, case, architecture, id=f"{kind}-{case}-{architecture}")
        if not met:  # sm_90 has every mapping
            yield from (pytest.param(kind, case, "sm_90", id=f"{kind}-{case}-sm_90") for case in OPERATORS[:2])


@pytest.mark.parametrize(("kind", "case", "architecture"), list(meetings()))
def test_no_local_memory(kind, case, architecture, few):
    check([(program, architecture) for program in few(KINDS[kind](case, architecture), 1)])


@pytest.mark.parametrize(
    ("case", "architecture"),
    [(case, ARCHITECTURES[i % len(ARCHITECTURES)]) for i, case in enumerate(OPERATORS)],
    ids=str,
)
def test_short_rows_of_every_operator(case, architecture):
    """One kernel for all lengths has eight vectors a lane, and nothing tells the compiler which rows they are of."""
    programs = row_programs(case, *SHORT_ROWS, architecture) + row_programs(
        case, *SHORT_ROWS, architecture, strided=True
    )
    assert len(programs) == 3
    check([(program, architecture) for program in programs])


SUMS = [Case("sum", entry.name, accumulator) for entry in ELEMENT_TYPES for accumulator in entry.accumulators]


def sums():
    """Yield the same of sums: four neighbouring mappings meet all types and accumulators."""
    for number, mapping in enumerate(WHOLE):
        for i, case in enumerate(SUMS[number % 4 :: 4]):
            architecture = ARCHITECTURES[(number + i) % len(ARCHITECTURES)]
            if whole_programs(case, mapping, architecture):
                name = "-".join(map(str, [*mapping.values(), case, architecture]))
                yield pytest.param(mapping, case, architecture, id=name)


@pytest.mark.parametrize(("mapping", "case", "architecture"), list(sums()))
def test_sums_of_every_type_and_accumulator(mapping, case, architecture, few):
    check([(program, architecture) for program in few(whole_programs(case, mapping, architecture), 1)])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("case", [case for case in SUMS if case.accumulate == "compensated"], ids=str)
def test_compensated_sums_of_rows(case, architecture):
    programs = row_programs(case, (10_000, 4096), 1, architecture)
    if (str(case), architecture) == ("sum-bfloat16-compensated", "sm_90"):
        # The kernel for any address, one where there were two, spills eight words there: "Less to compile" in NOTES.md.
        programs, (anywhere,) = programs[:-1], programs[-1:]
        (cubin,) = compiled([(anywhere, architecture)])
        assert cubin.kernels[cubin.program.name].spill_store_bytes <= 32
    check([(program, architecture) for program in programs])


def wide_loads(cubin, kind=r"\S*128\S*"):
    return len(re.findall(rf"\bLDG\.E\.({kind})", listing(cubin.data)))


LOADED = [OPERATORS[i] for i in (0, 2, 13)]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_whole_leaves_are_loaded_16_bytes_at_a_time(architecture, few):
    programs = [program for case in few(LOADED, 1) for program in whole_programs(case, WHOLE[3], architecture)]
    pairs = [(program, architecture) for program in programs]
    for cubin in compiled(pairs):
        # Eight unconditional loads in a row for a whole leaf, and five for each round of any other.
        assert wide_loads(cubin) >= 8 + 5, cubin.program.name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("shape", "axis"), [SHORT_ROWS, ROWS[-1]], ids=str)
def test_aligned_rows_are_loaded_16_bytes_at_a_time(shape, axis, architecture, few):
    # From the last one on, since the test above begins with the first.
    pairs = [(row_programs(case, shape, axis, architecture)[0], architecture) for case in few(LOADED[::-1], 1)]
    for cubin in compiled(pairs):
        assert wide_loads(cubin) >= 8, cubin.program.name  # eight vectors a lane in flight


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_neighbouring_columns_go_to_registers(architecture):
    """Four neighbouring rows of a thread at a time, 128 bytes of them in flight."""
    cases = [(Case("max", "float32"), (4096, 4096)), (Case("sum", "float32"), (1 << 14, 1 << 14))]
    pairs = [(row_programs(case, shape, 0, architecture)[0], architecture) for case, shape in cases]
    for cubin in compiled(pairs):
        assert "reduce_columns<Op, 4, 2, true, " in cubin.program.source, "the rows of a thread"
        assert wide_loads(cubin) >= 8, cubin.program.name


def test_columns_of_the_widest_accumulator_compile():
    wide = Operator(
        "wide",
        map="{x, 0, 0, 0, 0, 0, 0, 0}",
        combine="{a.p + b.p, a.q + b.q, 0, 0, 0, 0, 0, 0}",
        identity="{0, 0, 0, 0, 0, 0, 0, 0}",
        finish="a.p",
        accumulator="struct { int64 p, q, r, s, t, u, v, w; }",
        accumulator_bytes=64,
        result="int64",
    )
    reduction = resolve(wide)
    types = reduction.types(element_type("int8"))
    text = operator_text(reduction, types)
    problem = layout.problem_of((1 << 20, 4096), 1, axis=0)
    chosen = rows.choose_rows(Task(problem, facts_of("sm_90"), 1, 64, heavy=True))
    assert chosen.name == "columns"
    for cubin in compiled([(row_kernel_source(text, chosen), "sm_90")]):
        assert cubin.kernels[cubin.program.name].shared_bytes <= 48 << 10

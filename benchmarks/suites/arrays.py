"""The suites of whole arrays, types, axes, operators and segments: device times, next to every competitor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.measure.figures import Row, name_of
from benchmarks.measure.problems import Case
from benchmarks.suites.cell import Cell, array_cell, some
from benchmarks.suites.setting import Setting
from lowlevel_reduce import UnsupportedError, operators
from lowlevel_reduce.dtypes import ELEMENT_TYPES, element_type

__all__ = [
    "OPERATORS",
    "OPERATOR_TYPES",
    "SEGMENTS",
    "axes",
    "flat",
    "operator_costs",
    "segment_case",
    "segments",
    "stats",
    "takes",
    "types",
]

ODD_LENGTHS = (
    1000, 99_999, 1_000_003, 2_500_000, 3_000_000, 5_000_000, 12_345_678, 20_000_000, 100_000_000, 999_999_999,
)  # fmt: skip
NUMBA_LENGTHS = (1 << 20, 1 << 28)
"""The lengths at which Numba is timed, too, between events."""

COMPILED_TYPES = ("float32", "float16", "bfloat16")
"""The types with which torch.compile is timed, too."""

GOAL_LENGTHS = (1 << 16, 1 << 20, 1 << 24, 100_000_000, 1 << 28, 1 << 30)
"""The lengths of whole arrays that are measured first."""

MOST_AROUND = 1 << 28
"""Of every type, longer arrays are timed back to back only: what surrounds a launch of a millisecond is lost in it."""

CONSUMED = (Case("sum", (2048, 2048), 1), Case("argmax", (1 << 20,)))
"""Of axes and of other operators, what is timed before a consumer, too."""

TYPE_LENGTHS = (1 << 20, 1 << 24, 1 << 28, 1 << 30)
COLUMNS = (2, 3, 5, 8, 10, 12, 14, 16, 18, 20, 23, 26)
"""Matrices of 2^28 elements have 2 to these powers columns."""

GOAL_COLUMNS = (2, 8, 14, 26)

AWKWARD = (
    ((1000, 5000), 1), ((2000, 3000), 1), ((300, 10_000), 1), ((3000, 3001), 1), ((20_984, 4997), 1),
    ((100_000, 1101), 1), ((1000, 1000), 0), ((2048, 512), 0), ((10_000, 1000), 0), ((30_000, 128), 0),
)  # fmt: skip
"""Shapes and axis: rows of other than a power of two of leaves, or not whole vectors; few columns, or short ones."""

OPERATORS = tuple(name for name, operator in operators.OPERATORS.items() if operator.second is None)
OPERATOR_TYPES = (
    "float8_e4m3fn",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "int8",
    "int32",
    "int64",
    "complex64",
)
"""The operators of one array and the types that are timed without competitors, relative to the sum."""

SEGMENTS: Mapping[str, Callable[[np.random.Generator], npt.NDArray[np.int64]]] = {
    "1,000,000 of about 100": lambda rng: rng.poisson(100, 1_000_000),
    "8 of 2^25": lambda rng: np.full(8, 1 << 25),
    "10,000,000 of about 4": lambda rng: rng.poisson(4, 10_000_000),
    "mixed": lambda rng: np.concatenate([rng.poisson(3, 1_000_000), np.full(4, 1 << 24), rng.poisson(1000, 50_000)]),
}
"""Makers of segment lengths: many segments, few long ones, tiny ones, and a mixture."""

CONSUMED_SEGMENTS = "1,000,000 of about 100"

SEGMENTS_SECONDS = 6.0
"""About how long a cell takes: making the lengths, checking the sums, and a competitor that is slow here."""


def flat(*, quick: bool = False) -> list[Cell]:
    """Return the sums of float32 arrays from 2^8 to 2^31 elements."""
    lengths = sorted([*(1 << power for power in range(8, 32)), *ODD_LENGTHS])
    lengths = [256, 1 << 16, 1 << 20, 100_000_000] if quick else lengths
    peers = ("CUB", "cuda.compute", "CuPy", "torch", "torch deterministic", "Triton", "torch.compile")
    slices = [] if quick else [Case("sum", (100_000_000,), shift=1)]
    aside = [array_cell(f"{name_of(case.size)}, from element 1 on", case, peers, goal=True) for case in slices]
    return aside + [
        array_cell(
            name_of(n),
            Case("sum", (n,)),
            (*peers, "Numba") if n in NUMBA_LENGTHS else peers,
            goal=n in GOAL_LENGTHS,
            around=True,
            consumed=n == 1 << 20,
        )
        for n in lengths
    ]


def types(*, quick: bool = False) -> list[Cell]:
    """Return the sums of every type."""
    names = [entry.name for entry in ELEMENT_TYPES]
    names = ["float32", "float16", "uint8"] if quick else names
    peers = ("CUB", "CuPy", "torch")
    # Type by type, because the elements on the device are made anew for each type.
    return [
        array_cell(
            f"{name} {name_of(n)}",
            Case("sum", (n,), dtype=name),
            (*peers, "torch.compile") if name in COMPILED_TYPES else peers,
            goal=n == 1 << 30,
            around=n <= MOST_AROUND,
            consumed=(name, n) == ("bfloat16", 1 << 20),
        )
        for name in names
        for n in some(TYPE_LENGTHS, (0, 2), quick=quick)
    ]


def axes(*, quick: bool = False) -> list[Cell]:
    """Return the sums along either axis of matrices of 2^28 elements, of others, and along middle axes."""
    matrices = [(1 << 28 - power, 1 << power) for power in some(COLUMNS, (0, 3), quick=quick)]
    first = [(1 << 28 - power, 1 << power) for power in GOAL_COLUMNS]
    if not quick:
        matrices += [(1343693, 99), (100_000, 1000), (4096, 4096), (2048, 2048), (16384, 256), (256, 256)]
    cases = [Case("sum", shape, axis) for axis in (1, 0) for shape in matrices]
    cases += [] if quick else [Case("sum", (8, 1 << 20), 1), *(Case("sum", shape, axis) for shape, axis in AWKWARD)]
    middle = [Case("sum", shape, 1) for shape in ((64, 4096, 512), (4096, 64, 512), (4, 1 << 20, 16))]
    goals = [case for case in cases if case.shape in (*first, (8, 1 << 20))] + middle
    return _compared([*cases, *middle], goals)


def stats(*, quick: bool = False) -> list[Cell]:
    """Return argmax, mean_var, logsumexp, norm, minmax, dot, and extremes and moments along the first axis."""
    square, wide, narrow = (16384, 16384), (1 << 20, 256), (1 << 22, 32)
    cases = [Case("argmax", (n,)) for n in (1 << 20, 100_000_000, 1 << 28)]
    cases += [Case("argmax", wide, 1)]
    cases += [Case("mean_var", shape, 1) for shape in (square, wide, narrow)]
    cases += [Case("mean_var", (1 << 28,))]
    cases += [Case("logsumexp", shape, 1) for shape in (square, narrow)]
    cases += [Case("logsumexp", (1 << 28,)), Case("norm2", (1 << 28,)), Case("minmax", (1 << 28,))]
    cases += [Case("max", square, 1), Case("max", (1 << 28,))]
    cases += [Case("dot", (1 << 27,)), Case("dot", (1 << 28,), dtype="float16")]
    cases += [Case("dot", (1 << 19, 256), axis) for axis in (1, 0)]
    cases += [Case("max", square, 0), Case("any", square, 0)]
    cases += [Case(op, square, 0, dtype="float16") for op in ("max", "sum")]
    cases += [Case(op, wide, 0) for op in ("argmax", "mean_var")]
    cases += [Case("max", (1 << 20,))]  # which docs/sources.md has beside a source's figure
    # The sums that the others are compared with: they read as many bytes.
    sums = [] if quick else [Case("sum", (1 << 28,)), Case("sum", square, 1), Case("sum", wide, 1)]
    goals = [*(cases[i] for i in (2, 5, 6, 8, 9)), *sums]
    return _compared([*some(cases, (2, 5, 8), quick=quick), *sums], goals)


def operator_costs(*, quick: bool = False) -> list[Cell]:
    """Return every operator over whole arrays of several types, without competitors."""
    names, dtypes = (OPERATORS[:2], OPERATOR_TYPES[:1]) if quick else (OPERATORS, OPERATOR_TYPES)
    cases = [Case(op, (1 << 28,), dtype=dtype) for dtype in dtypes for op in names if takes(op, dtype)]
    return [array_cell(f"{case.op} {case.dtype} 2^28", case, ()) for case in cases]


def takes(op: str, dtype: str) -> bool:
    """Return whether an operator accepts elements of a type."""
    try:
        operators.OPERATORS[op].types(element_type(dtype))
    except UnsupportedError:
        return False
    return True


def segments(*, quick: bool = False) -> list[Cell]:
    """Return the sums of segments (many, few, tiny, and mixed ones), and of one array to compare them with."""
    cells = [_segments(name, goal=i < 2) for i, name in enumerate(some(list(SEGMENTS), (0,), quick=quick))]
    return cells if quick else [*cells, *_compared([Case("sum", (1 << 28,))], [Case("sum", (1 << 28,))])]


def segment_case(name: str) -> Case:
    """Return the case for one of `SEGMENTS`, with its borders."""
    lengths = SEGMENTS[name](np.random.default_rng(3))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Case("sum", (int(offsets[-1]),), offsets=offsets)


def _segments(name: str, *, goal: bool) -> Cell:
    peers = ("CUB", "cuda.compute", "torch")

    def measure(setting: Setting) -> Sequence[Row]:
        case = segment_case(name)
        neighbours = setting.neighbours(case, consumed=name == CONSUMED_SEGMENTS)
        return setting.harness.compare(name, case, setting.peers(*peers), mode=setting.mode, neighbours=neighbours)

    # The case is only for competitors that prepare: float32 segments, whatever their borders.
    return Cell(name, measure, SEGMENTS_SECONDS, goal, Case("sum", (1,), offsets=np.asarray([0, 1])), peers)


def _compared(cases: Sequence[Case], goals: Sequence[Case]) -> list[Cell]:
    peers = ("CUB", "cuda.compute", "CuPy", "torch", "torch.compile")
    found = []
    for case in cases:
        shape = " x ".join(name_of(size) for size in case.shape)
        where = "" if case.axis is None else f", axis {case.axis}"
        name = case.op if case.dtype == "float32" else f"{case.op} {case.dtype}"
        consumed = case in CONSUMED
        label = f"{name} {shape}{where}"
        found.append(array_cell(label, case, peers, goal=case in goals, around=True, consumed=consumed))
    return found

"""Examines one's own kernel: on the simulator for faults, costs and lost elements, on a GPU for its time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel_reduce import simulator
from lowlevel_reduce.driver import Context
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.ladder.data import elements
from lowlevel_reduce.ladder.timing import copies, device_us
from lowlevel_reduce.simulator.machine.control.counters import Counters
from lowlevel_reduce.simulator.machine.control.faults import KernelFault
from lowlevel_reduce.simulator.machine.line_counts import LineCounts
from lowlevel_reduce.workbench.findings import (
    Finding,
    Place,
    cost_findings,
    costs_by_line,
    fault_finding,
    reading_lines,
    text_at,
    writing_lines,
)
from lowlevel_reduce.workbench.launching import LaunchOptions, ReadyKernel, ready
from lowlevel_reduce.workbench.missing import Weights, wrong_elements
from lowlevel_reduce.workbench.program import OwnKernel, OwnSource

__all__ = ["SEEDS", "Examined", "examine", "made_up", "time_us", "trials"]

SEEDS = (None, 1, 2)
"""Orders in which blocks and warps are scheduled: the natural one, and two random ones."""

_WORDS = {"sum": "sum", "max": "maximum"}
_MOST_WEIGHED = 1 << 16
_KINDS_WITHOUT_FRACTIONS = ("int32", "uint32", "int64", "uint64")

Values = npt.NDArray[Any]


@dataclass(frozen=True)
class Examined:
    """What was found of a kernel.

    Attributes
    ----------
    kernel : str
        Its name.
    n : int
        Elements.
    value, reference : float or None
        Its sum, None after a fault, and the right one.
    findings : tuple of Finding
        What is wrong first, then what is slow.
    counters : Counters or None
        Of one sum in the natural order, all passes; None after a fault.
    grids : tuple of int
        Blocks of each pass.
    costs : Mapping
        The counters by lines of the source.
    """

    kernel: str
    n: int
    value: float | None
    reference: float
    findings: tuple[Finding, ...]
    counters: Counters | None
    grids: tuple[int, ...] = ()
    costs: Mapping[Place, Counters] = field(default_factory=dict, repr=False)

    @property
    def right(self) -> bool:
        """Whether nothing is wrong; it may still be slow."""
        return not any(finding.wrong for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Return it in types of JSON."""
        return {
            "kernel": self.kernel,
            "n": self.n,
            "value": self.value,
            "reference": self.reference,
            "right": self.right,
            "grids": list(self.grids),
            "findings": [finding.as_dict() for finding in self.findings],
            "counters": None if self.counters is None else asdict(self.counters),
        }


def made_up(n: int, dtype: str) -> tuple[Values, float]:
    """Return `n` elements of a type, the same at each call, and their sum, which every order of additions gives.

    They are those of the ladder, multiples of 1/256; of integer types, 256 times as large, and none negative where the
    type is unsigned.
    """
    values = elements(n, "float32", "sum")
    if dtype in _KINDS_WITHOUT_FRACTIONS:
        values = values * 256
        values = np.abs(values) if dtype.startswith("u") else values
    values = values.astype(dtype)
    return values, float(np.sum(values, dtype=np.float64))


def trials(n: int, dtype: str, operation: str) -> list[tuple[Values, float]]:
    """Return what a kernel is run over, with the right results: those `made_up` for a sum.

    For a maximum the last of the elements is the largest, as the tail is what gets lost, and there is a second array
    without a positive element, whose bits order the other way round.
    """
    if operation == "sum":
        return [made_up(n, dtype)]
    mixed = elements(n, "float32", operation).astype(dtype)
    negative = -np.abs(mixed)
    negative[-1:] = -1 / 512
    return [(values, float(values.max(initial=-np.inf))) for values in (mixed, negative)]


def examine(
    source: OwnSource, kernel: OwnKernel, then: OwnKernel | None, n: int, options: LaunchOptions,
    device: str = "H200", seeds: tuple[int | None, ...] = SEEDS,
) -> Examined:  # fmt: skip
    """Run a kernel on the simulator, in several orders of its blocks and warps, and return what was found.

    Parameters
    ----------
    source, kernel, then : OwnSource, OwnKernel
        The compiled source, as PTX; its kernel; and the kernel that folds its partials, if there is one.
    n : int
        Number of elements, those of `trials`. Faults that need a full grid need more of them.
    options : LaunchOptions
        Grid, block, memory.
    device : str
        The device to simulate.
    seeds : tuple
        A seed for each order; None for the natural one, which comes first.

    Raises
    ------
    UnsupportedError
        If the kernel uses what the simulator does not know, or cannot be launched so.
    """
    tried = trials(n, kernel.convention.dtype, options.operation)
    reference = tried[0][1]
    counts = LineCounts()
    value: float | None = None
    total: Counters | None = None
    grids: tuple[int, ...] = ()
    costs: Mapping[Place, Counters] = {}
    results: list[tuple[int | None, float]] = []
    for place, seed in enumerate(seeds):
        watch = counts if place == 0 else None
        with simulator.use(device, seed=seed, watch=watch) as driver, Context.primary() as context, context.pushed():
            try:
                with ready(source, kernel, then, n, options, context) as made:
                    result = float(made.sum(tried[0][0])[0])
                    results.append((seed, result))
                    if place == 0:
                        value, grids = result, tuple(made.grids)
                        total = sum((launch.counters for launch in driver.launches), Counters())
                        costs = costs_by_line(source, {name: counts.of(name) for name in counts.kernels})
                        for number, (values, right) in enumerate(tried):
                            if (float(made.sum(values)[0]) if number else result) != right:
                                return _wrong_result(source, kernel, values, right, made, costs, total)
            except KernelFault as fault:
                found = fault_finding(fault, source)
                return Examined(kernel.name, n, None, reference, (found,), None)
    findings = [*_by_schedule(source, results, reference, costs, options), *cost_findings(source, costs)]
    return Examined(kernel.name, n, value, reference, tuple(findings), total, grids, costs)


def _wrong_result(
    source: OwnSource, kernel: OwnKernel, values: Values, reference: float, made: ReadyKernel,
    costs: Mapping[Place, Counters], total: Counters,
) -> Examined:  # fmt: skip
    """Return a wrong result with the lines that write it and, of a sum, the elements that it lacks."""
    n, what = values.size, _WORDS[made.options.operation]
    value = float(made.sum(values)[0])
    grids = tuple(made.grids)
    written = writing_lines(costs)
    place = written[-1] if written else Place("", 0)
    said = [f"the {what} is {value!r}, not {reference!r}"]
    said.append(f"the result is written at {', '.join(map(str, written))}" if written else "no line writes the result")
    if made.options.operation == "sum":
        weights = (
            wrong_elements(lambda some: float(made.sum(some)[0]), n, made.input_type) if n <= _MOST_WEIGHED else None
        )
        said[0] += f": {_lost(weights)}"
        said += [f"the elements are read at {', '.join(map(str, reading_lines(costs)))}"] if weights else []
    elif reference < 0:
        said[0] += ", where all elements are negative"
    first = Finding(f"wrong {what}", place, text_at(source, place), "; ".join(said))
    return Examined(kernel.name, n, value, reference, (first, *cost_findings(source, costs)), total, grids, costs)


def _lost(weights: Weights | None) -> str:
    return "every element is added once, so what is done to the sum is wrong" if weights is None else str(weights)


def _by_schedule(
    source: OwnSource, results: list[tuple[int | None, float]], reference: float, costs: Mapping[Place, Counters],
    options: LaunchOptions,
) -> list[Finding]:  # fmt: skip
    """Return a finding if another order of blocks and warps gives another result."""
    wrong = [(seed, value) for seed, value in results if value != reference]
    if not wrong:
        return []
    places = writing_lines(costs)
    place = places[-1] if places else Place("", 0)
    (seed, value), what = wrong[0], _WORDS[options.operation]
    message = f"in another order of blocks and warps (seed {seed}) the {what} is {value!r}, not {reference!r}"
    return [Finding(f"wrong {what}", place, text_at(source, place), message)]


def time_us(
    source: OwnSource, kernel: OwnKernel, then: OwnKernel | None, n: int, options: LaunchOptions, context: Context,
    repeat: int = 5,
) -> tuple[float, float, float]:  # fmt: skip
    """Return the device time of one sum on a GPU in microseconds, the sum, and the right one.

    Raises
    ------
    UnsupportedError
        On a simulated device, which tells no time.
    """
    if source.image[:4] != b"\x7fELF":
        raise UnsupportedError("a simulated device tells no time")
    values, reference = made_up(n, kernel.convention.dtype)
    with ready(source, kernel, then, n, options, context) as made:
        value = float(made.sum(values)[0])
        made.copy(values, copies(values.nbytes, context.device))  # as for a rung: no run finds its input in the L2
        return device_us(made.once, made.stream, repeat), value, reference

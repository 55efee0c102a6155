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

__all__ = ["SEEDS", "Examined", "examine", "made_up", "time_us"]

SEEDS = (None, 1, 2)
"""Orders in which blocks and warps are scheduled: the natural one, and two random ones."""

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
        Number of elements, `made_up`. Faults that need a full grid need more of them.
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
    values, reference = made_up(n, kernel.convention.dtype)
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
                    result = float(made.sum(values)[0])
                    results.append((seed, result))
                    if place == 0:
                        value, grids = result, tuple(made.grids)
                        total = sum((launch.counters for launch in driver.launches), Counters())
                        costs = costs_by_line(source, {name: counts.of(name) for name in counts.kernels})
                        if result != reference:
                            return _wrong_sum(source, kernel, n, reference, made, costs, total)
            except KernelFault as fault:
                found = fault_finding(fault, source)
                return Examined(kernel.name, n, None, reference, (found,), None)
    findings = [*_by_schedule(source, results, reference, costs), *cost_findings(source, costs)]
    return Examined(kernel.name, n, value, reference, tuple(findings), total, grids, costs)


def _wrong_sum(
    source: OwnSource, kernel: OwnKernel, n: int, reference: float, made: ReadyKernel,
    costs: Mapping[Place, Counters], total: Counters,
) -> Examined:  # fmt: skip
    """Return a wrong sum with the elements that it lacks and the lines that write it."""
    value = float(made.sum(made_up(n, kernel.convention.dtype)[0])[0])
    weights = None
    if n <= _MOST_WEIGHED:
        weights = wrong_elements(lambda values: float(made.sum(values)[0]), n, made.input_type)
    places = writing_lines(costs)
    place = places[-1] if places else Place("", 0)
    written = f"the result is written at {', '.join(map(str, places))}" if places else "no line writes the result"
    read = f"; the elements are read at {', '.join(map(str, reading_lines(costs)))}"
    lost = _lost(weights)
    message = f"the sum is {value!r}, not {reference!r}: {lost}; {written}{read if weights else ''}"
    first = Finding("wrong sum", place, text_at(source, place), message)
    findings = (first, *cost_findings(source, costs))
    return Examined(kernel.name, n, value, reference, findings, total, tuple(made.grids), costs)


def _lost(weights: Weights | None) -> str:
    return "every element is added once, so what is done to the sum is wrong" if weights is None else str(weights)


def _by_schedule(
    source: OwnSource, results: list[tuple[int | None, float]], reference: float, costs: Mapping[Place, Counters]
) -> list[Finding]:
    """Return a finding if another order of blocks and warps gives another sum."""
    wrong = [(seed, value) for seed, value in results if value != reference]
    if not wrong:
        return []
    places = writing_lines(costs)
    place = places[-1] if places else Place("", 0)
    seed, value = wrong[0]
    message = f"in another order of blocks and warps (seed {seed}) the sum is {value!r}, not {reference!r}"
    return [Finding("wrong sum", place, text_at(source, place), message)]


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

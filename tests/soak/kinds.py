"""What the soak tries: each kind by its name, how much of it is enough, and the fuzzer that does it."""

from __future__ import annotations

import functools
import importlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.tally import Tally

__all__ = ["GROUPS", "KINDS", "Kind"]

GROUPS = {
    "bad inputs": "arguments, arrays, offsets, sources and cached files that are wrong",
    "mutated kernels": "PTX with lines and tokens changed, on the simulator",
    "faults": "calls of the driver, host allocations and file operations that fail, once or again and again",
    "interrupts": "KeyboardInterrupt and signals at random places",
    "launches": "launches and calls without end, after which nothing may have grown",
}
"""What the kinds are counted as, and what that is."""


@dataclass(frozen=True)
class Kind:
    """One kind of trial.

    Attributes
    ----------
    name : str
        As the page calls it.
    group : str
        A key of `GROUPS`.
    count : int
        How many trials are enough: all kinds together take about twenty minutes on two cores.
    place : str
        The fuzzer, ``module:function``, a function of a seed and a count that returns a `Tally`. It is imported by the
        process that runs it.
    keeps_files : bool
        Whether its first argument is a directory of its own.
    why_not : str
        A function, in the same form, that says why it cannot be run here, or returns None; empty if it always can.
    least : int
        The fewest trials that say anything: for endurance, as many as fill the caches several times.
    """

    name: str
    group: str
    count: int
    place: str
    keeps_files: bool = False
    why_not: str = ""
    least: int = 1

    def count_of(self, share: float) -> int:
        """Return how many trials a share of the soak has."""
        return max(self.least, round(self.count * share))

    def reason(self) -> str | None:
        """Say why it cannot be run here; None if it can."""
        return _found(self.why_not)() if self.why_not else None

    def run(self, seed: int, count: int) -> Tally:
        """Run the fuzzer, and return what it counted."""
        fuzz = _found(self.place)
        tally = Tally(self.name, seed)
        with tally.timed(), tempfile.TemporaryDirectory(prefix="soak-") as directory:
            fuzz = functools.partial(fuzz, Path(directory)) if self.keeps_files else fuzz
            tally.add(fuzz(seed, count))
        return tally


def _found(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


_CAN_STARVE = "tests.fuzz.memory_faults:why_not"

KINDS = (
    Kind("bad arguments of public functions", "bad inputs", 8000, "tests.fuzz.arguments:fuzz_arguments"),
    Kind("arrays and streams that lie by their protocols", "bad inputs", 3000, "tests.fuzz.protocols:fuzz_protocols"),
    Kind("source texts full of traps", "bad inputs", 2000, "tests.fuzz.sources:read_soups"),
    Kind("forged cache entries", "bad inputs", 1000, "tests.fuzz.files:forge_entries", keeps_files=True),
    Kind("mutated PTX", "mutated kernels", 3000, "tests.fuzz.ptx_mutations:of_small_kernels"),
    Kind("driver calls that failed once", "faults", 3500, "tests.fuzz.driver_faults:once"),
    Kind("driver calls that failed from one on", "faults", 3500, "tests.fuzz.driver_faults:persistently"),
    Kind("host allocations that failed once", "faults", 1000, "tests.fuzz.memory_faults:once", why_not=_CAN_STARVE),
    Kind(
        "host allocations that failed each time",
        "faults",
        1000,
        "tests.fuzz.memory_faults:persistently",
        why_not=_CAN_STARVE,
    ),
    Kind("arrays of NumPy's that had no memory", "faults", 300, "tests.fuzz.array_faults:fuzz_arrays"),
    Kind(
        "file operations that failed, once or from one on",
        "faults",
        1000,
        "tests.fuzz.files:fail_file_operations",
        keeps_files=True,
    ),
    Kind("interrupts at random places of the library", "interrupts", 2000, "tests.fuzz.interrupts:by_trace"),
    Kind("interrupts at random places of the simulator", "interrupts", 500, "tests.fuzz.interrupts:in_the_simulator"),
    Kind("signals whose handler raises", "interrupts", 1500, "tests.fuzz.interrupts:by_signals"),
    Kind("signals whose handler reduces", "interrupts", 1000, "tests.fuzz.interrupts:by_handlers_that_reduce"),
    Kind("bound launches, fake driver", "launches", 1_000_000, "tests.fuzz.endurance:bound_launches"),
    Kind(
        "one-shot calls of many shapes, fake driver",
        "launches",
        1_000_000,
        "tests.fuzz.endurance:one_shot_calls",
        least=100_000,
    ),
    Kind("bound launches, simulator", "launches", 10_000, "tests.fuzz.endurance:simulated_launches", least=10_000),
)

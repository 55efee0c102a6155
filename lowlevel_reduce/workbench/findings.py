"""What the simulator saw of one's own kernel, told at the lines of its source: faults, and what each line costs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from lowlevel_reduce.simulator import ptx
from lowlevel_reduce.simulator.machine.control.counters import Counters
from lowlevel_reduce.simulator.machine.control.faults import KernelFault
from lowlevel_reduce.simulator.ptx.code import KernelCode
from lowlevel_reduce.workbench.program import OwnSource

__all__ = ["Finding", "Place", "code_of", "cost_findings", "costs_by_line", "fault_finding", "writing_lines"]

_PTX_LINE = re.compile(r"PTX line (\d+)(?: \(([^)]*(?:\([^)]*\))?[^)]*)\))?")
_KINDS = (
    ("data race", "race"),
    ("uninitialised", "uninitialised read"),
    ("deadlock", "deadlock"),
    ("has not ended", "endless loop"),
    ("outside", "out of bounds"),
    ("misaligned", "misaligned access"),
    ("exited", "shared memory of a block that exited"),
    ("does not take part", "shuffle"),
)
_SECTORS_AT_MOST = 16  # 32 lanes of 16 bytes


@dataclass(frozen=True, order=True)
class Place:
    """A line of a source: the file's name without its folder, and the line; ("", 0) where the code has no table."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else "an unknown line"


@dataclass(frozen=True)
class Finding:
    """Something about a kernel that its author should know.

    Attributes
    ----------
    kind : str
        "race", "bank conflicts", "wrong sum", …
    place : Place
        Where, in the source.
    text : str
        That line.
    message : str
        What, in one sentence or two.
    wrong : bool
        Whether the kernel is wrong, rather than slow.
    """

    kind: str
    place: Place
    text: str
    message: str
    wrong: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Return it in types of JSON."""
        return {
            "kind": self.kind,
            "file": self.place.file,
            "line": self.place.line,
            "text": self.text,
            "message": self.message,
            "wrong": self.wrong,
        }


def code_of(source: OwnSource, entry: str) -> KernelCode:
    """Return a kernel of a source as the simulator reads it."""
    return ptx.parse(source.image.decode()).kernels[entry]


def place_of(code: KernelCode, line: int) -> Place:
    """Return the place in the source of a line of the PTX."""
    file, _, number = code.source_of(line).rpartition(":")
    return Place(PurePath(file).name, int(number)) if file else Place("", 0)


def text_at(source: OwnSource, place: Place) -> str:
    """Return the line of the source at a place, "" if it is in another file."""
    return source.line(place.line) if place.file == source.path.name else ""


def fault_finding(fault: KernelFault, source: OwnSource) -> Finding:
    """Return a fault with its place, and every other place that it names, in the source."""
    code = code_of(source, fault.kernel)
    place = place_of(code, fault.line)

    def named(match: re.Match[str]) -> str:
        where = place_of(code, int(match[1]))
        text = text_at(source, where)
        return f"{where}" + (f" ({text})" if text else "") if where.line else match[0]

    reason = _PTX_LINE.sub(named, fault.reason).replace(" at PTX line", "")
    who = f"block {fault.block[0]}, thread {fault.thread[0]}"
    kind = next((kind for words, kind in _KINDS if words in fault.reason), "fault")
    return Finding(kind, place, text_at(source, place), f"{who}: {reason}")


def costs_by_line(source: OwnSource, counted: Mapping[str, Mapping[int, Counters]]) -> dict[Place, Counters]:
    """Return the counters by lines of the source, given those of each kernel by lines of the PTX."""
    found: dict[Place, Counters] = {}
    for entry, lines in counted.items():
        code = code_of(source, entry)
        for line, counters in lines.items():
            place = place_of(code, line)
            found[place] = found.get(place, Counters()) + counters
    return dict(sorted(found.items()))


def cost_findings(source: OwnSource, costs: Mapping[Place, Counters]) -> list[Finding]:
    """Return what is slow at each line: bank conflicts, scattered loads, divergence, colliding atomics."""
    return [
        Finding(kind, place, text_at(source, place), message, wrong=False)
        for place, counters in costs.items()
        for kind, message in _costs(counters)
    ]


def _costs(counters: Counters) -> Iterable[tuple[str, str]]:
    if counters.bank_conflicts:
        ideal = counters.shared_wavefronts - counters.bank_conflicts
        yield (
            "bank conflicts",
            f"{counters.shared_wavefronts:,} passes over the banks where {ideal:,} would do: "
            f"{counters.bank_conflicts:,} conflicts",
        )
    if counters.global_loads and not counters.atomics:
        each, fewest = counters.global_load_sectors / counters.global_loads, _ideal_sectors(counters)
        if each > 1.5 * fewest:
            yield "scattered loads", f"{each:.1f} sectors a request where {fewest:.1f} would do"
    if counters.divergent_branches:
        yield (
            "divergence",
            f"{counters.divergent_branches:,} of {counters.branches:,} branches of warps are divergent",
        )
    if counters.atomic_collisions:
        yield (
            "colliding atomics",
            f"{counters.atomic_collisions:,} of {counters.atomics:,} atomics wait for another lane of their warp",
        )


def _ideal_sectors(counters: Counters) -> float:
    """Return the sectors that requests need at least for the bytes that they read."""
    each = counters.bytes_read / counters.global_loads / 32
    return min(max(1.0, each), _SECTORS_AT_MOST)


def writing_lines(costs: Mapping[Place, Counters]) -> list[Place]:
    """Return the lines that write global memory: where a result comes from."""
    return [place for place, counters in costs.items() if counters.global_stores or counters.atomics]


def reading_lines(costs: Mapping[Place, Counters]) -> list[Place]:
    """Return the lines that read global memory."""
    return [place for place, counters in costs.items() if counters.global_loads and not counters.atomics]

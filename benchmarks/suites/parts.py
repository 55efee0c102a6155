"""The suite of arrays in parts: one and two GPUs, one and two processes, from the call to the value on the host."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Mapping

from benchmarks.measure.figures import Row, figure, row_of
from benchmarks.measure.processes import environment_of, last_line
from benchmarks.profile.parts import ROUNDS
from benchmarks.suites.cell import Cell
from benchmarks.suites.setting import Setting
from lowlevel_reduce.driver import binding

__all__ = ["parts"]

ELEMENTS = (1_000_000, 16_000_000, 1_000_000_000)
WAYS: Mapping[str, str] = {
    "one": "one process, one GPU",
    "shards": "one process, two GPUs",
    "processes": "two processes, two GPUs",
}
SECONDS: Mapping[str, float] = {"one": 8.0, "shards": 10.0, "processes": 20.0}
"""About how long a process takes, most of which is importing PyTorch."""

QUICK_ROUNDS = 5


def parts(*, quick: bool = False) -> list[Cell]:
    """Return a cell for each way and length."""
    lengths = ELEMENTS[:1] if quick else ELEMENTS
    return [
        Cell(
            f"{label}, {elements:,}", functools.partial(_measured, way=way, elements=elements), SECONDS[way], goal=True
        )
        for way, label in WAYS.items()
        for elements in lengths
    ]


def _measured(setting: Setting, *, way: str, elements: int) -> list[Row]:
    setting.settle()
    if setting.peer("torch") is None:  # which says why
        return []
    if way != "one" and binding.call("cuDeviceGetCount") < 2:
        setting.missing["two GPUs"] = "this machine has one"
        return []
    rounds = QUICK_ROUNDS if setting.quick else ROUNDS
    words = ["--way", way, "--elements", str(elements), "--rounds", str(rounds)]
    text = last_line([sys.executable, "-m", "benchmarks.profile.parts", *words], environment_of(None))
    entries = {name: figure(samples) for name, samples in json.loads(text).items()}
    shape = {"op": "sum", "shape": [elements], "axis": None, "dtype": "float32"}
    return [row_of(f"{WAYS[way]}, {elements:,}", entries, size_bytes=4 * elements, mode="host", **shape)]

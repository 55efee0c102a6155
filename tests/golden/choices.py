"""``python -m tests.golden.choices``: records in `choices.jsonl` what is chosen for random problems on some devices.

A choice changes nothing but the speed, so it may change for a reason; then the file is written anew, and its difference
shows what has changed. Made faster, the functions that choose must choose the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure.shapes import drawn
from lowlevel_reduce.strategy.base import RowStrategy
from lowlevel_reduce.strategy.selection import Request, request_of, select
from lowlevel_reduce.strategy.stubs import with_twins
from lowlevel_reduce.strategy.whole import DeviceFacts

__all__ = ["DEVICES", "FILE", "choice", "read"]

FILE = Path(__file__).with_name("choices.jsonl")

DEVICES: Mapping[str, DeviceFacts] = {
    "T4": DeviceFacts((7, 5), 40, clusters=False, cooperative=True),
    "A100": DeviceFacts((8, 0), 108, clusters=False, cooperative=True),
    "H200": DeviceFacts((9, 0), 132, clusters=True, cooperative=True),
    "a sixth of an H200": DeviceFacts((9, 0), 22, clusters=True, cooperative=True),
    "B200": DeviceFacts((10, 0), 148, clusters=True, cooperative=True),
    "RTX 5090": DeviceFacts((12, 0), 170, clusters=True, cooperative=True),
}

_CALL = re.compile(r"__launch_bounds__\((\d+, \d+)\)\n.*\n\{\n    (.*)\(problem\);")

_SEED, _EACH = 31, 70
"""The seed of the problems, and how many of them are recorded for each device."""


def choice(device: str, problem: Mapping[str, Any]) -> list[Any]:
    """Return what is chosen for a problem on a device.

    That is the strategy's name, the workspace's bytes, blocks in the grid, threads of a block, blocks of a cluster, how
    the problem is cut, and the kernels: what they call, for how many threads and blocks they are compiled, in turns and
    with twins.
    """
    request = _request(**problem)
    chosen, sources, workspace_bytes = select(request, DEVICES[device])
    cut = chosen.count if isinstance(chosen, RowStrategy) else [chosen.tiles, chosen.tiles_per_block, chosen.partials]
    calls = [" ".join(_CALL.findall(source.text)[0]) for source in with_twins(sources)]
    return [chosen.name, workspace_bytes, chosen.blocks, chosen.block_threads, chosen.cluster, cut, *calls]


def read() -> list[tuple[str, dict[str, Any], list[Any]]]:
    """Return what is recorded: devices, problems and choices."""
    return [tuple(json.loads(line)) for line in FILE.read_text(encoding="utf-8").splitlines()]


def _request(
    op: str, dtype: str, shape: Sequence[int], axis: int | Sequence[int] | None, strides: Sequence[int] | None
) -> Request:
    return request_of(
        op,
        shape=tuple(shape),
        dtype=dtype,
        axis=tuple(axis) if isinstance(axis, list) else axis,
        strides_bytes=strides,
        second_strides_bytes=strides if op == "dot" else None,
    )


def _recorded() -> Iterator[tuple[str, dict[str, Any]]]:
    for number, device in enumerate(DEVICES):
        for each in range(_EACH):
            case = drawn(_SEED, number * _EACH + each)
            strides = case.strides_bytes
            yield (
                device,
                {
                    "op": case.op,
                    "dtype": case.dtype,
                    "shape": case.shape,
                    "axis": case.axis,
                    "strides": strides,
                },
            )


def main() -> None:
    """Write the file."""
    rows = [(device, problem, choice(device, problem)) for device, problem in _recorded()]
    FILE.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    print(f"{len(rows)} choices, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()

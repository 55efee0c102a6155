"""Time many mappings of whole arrays, rows and columns; the tables of the three policies come from this.

python -m benchmarks.profile.tune --json sweep.jsonl [--part flat|rows|columns]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.measure import records
from benchmarks.measure.harness import Harness, Maker, ours
from benchmarks.measure.problems import Case
from benchmarks.measure.timing import conditions, opened
from lowlevel_reduce import layout
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.strategy import base, whole
from lowlevel_reduce.strategy import columns as column_policy
from lowlevel_reduce.strategy import rows as row_policy
from lowlevel_reduce.strategy.base import RowStrategy, Task

__all__ = ["column_strategies", "flat_mappings", "main", "row_strategies"]

LENGTHS = (256, 4096, 16384, 32768, 65536, 131072, 262144, 1 << 20, 1 << 21, 1 << 22, 1 << 24, 1 << 26, 10**8, 1 << 28)
SMALL, MEDIUM = 1 << 16, 1 << 20
ROW_SHAPES = (
    (1 << 18, 1024),
    (87381, 3072),
    (1 << 16, 4096),
    (1 << 14, 16384),
    (2048, 1 << 17),
    (64, 1 << 22),
    (8, 1 << 20),
)
COLUMN_SHAPES = ((256, 256), (4096, 4096), (1 << 20, 256), (1 << 24, 8), (1 << 26, 4), (8, 1 << 24), (100_000, 1000))
ROUNDS = 3

ACCUMULATOR_BYTES = 8
"""Those of the sums of float32 that are swept."""

Times = dict[str, float]


def flat_mappings(length: int) -> Iterator[dict[str, Any]]:
    """Yield the mappings worth timing at a length, as options of `lowlevel_reduce.plan`."""
    if length <= SMALL:
        for threads in (32, 64, 128, 256, 512):
            yield {"strategy": "block", "block_threads": threads}
    if 4096 <= length <= MEDIUM:
        for threads in (128, 256, 512):
            for cluster in (2, 4, 8, 16):
                yield {"strategy": "cluster", "cluster": cluster, "block_threads": threads}
    if length > 4096:
        for threads in (256, 512, 1024):
            for cluster in (1, 2, 4):
                yield {"strategy": "tiles", "cluster": cluster, "block_threads": threads}
        for threads in (256, 512):
            yield {"strategy": "two_pass", "block_threads": threads}
        yield {"strategy": "cooperative", "block_threads": 256}


def row_strategies(chosen: RowStrategy, rows: int, leaves: int) -> Iterator[tuple[str, RowStrategy]]:
    """Yield the ways to reduce contiguous rows of more than one leaf, each with a name."""
    alone = chosen._replace(name="rows", in_one_turn=False, parts=1, folders=0, warps=base.WARPS, resident_blocks=4)
    warps = 1
    while warps <= min(base.WARPS, whole.power_of_two(leaves)):
        blocks = -(-rows // (base.WARPS // warps))
        yield f"rows, {warps} warps a row", alone._replace(blocks=blocks, warps_of_a_row=warps)
        warps *= 2
    for warps in (8, 16):
        tiles = -(-leaves // warps)
        if tiles > 1:
            shared = chosen._replace(name="batch", in_one_turn=True, warps=warps, warps_of_a_row=warps)
            shared = shared._replace(most_warps=16, resident_blocks=2)
            folders = rows * whole.folding_blocks(tiles, warps)
            blocks = rows * tiles + folders
            yield f"batch, tiles of {warps} warps", shared._replace(blocks=blocks, parts=tiles, folders=folders)


def column_strategies(
    problem: layout.Problem, facts: whole.DeviceFacts, itemsize: int
) -> Iterator[tuple[str, RowStrategy]]:
    """Yield the ways to reduce columns: narrow loads or wide ones, what a block has, and who folds partials."""
    for way, of in column_policy.ways(Task(problem, facts, itemsize, ACCUMULATOR_BYTES)):
        columns, vectors, turns = way.tile
        name = f"{of.loads.width} in a load, {columns} x {vectors}, {turns} turns, folded by {way.folded_by}"
        yield name, column_policy.strategy_of(way, of)


def _forced(strategy: RowStrategy) -> Any:
    """Return a context in which every plan of rows uses this strategy; a plan has no option for it."""
    return mock.patch.object(row_policy, "choose_rows", return_value=strategy)


def _matrix_makers(harness: Harness, case: Case, facts: whole.DeviceFacts) -> tuple[str, list[Maker]]:
    """Return the name of the policy's choice for a matrix, and the makers of all ways to reduce it."""
    itemsize = element_type(case.dtype).itemsize
    problem = layout.problem_of(case.shape, itemsize, axis=case.axis)
    chosen = row_policy.choose_rows(Task(problem, facts, itemsize, ACCUMULATOR_BYTES))
    leaves = max(1, -(-problem.length // element_type(case.dtype).leaf))
    ways: dict[str, RowStrategy] = {}
    if problem.kind != "columns":
        ways = dict(row_strategies(chosen, problem.rows, leaves))
    else:
        ways = dict(column_strategies(problem, facts, itemsize))
    inputs = harness.inputs(case, "rotated")

    def maker(name: str, strategy: RowStrategy) -> Maker:
        def make() -> Any:
            with _forced(strategy):
                return replace(ours(case, inputs, harness.stream), name=name)

        return Maker(name, make)

    name = next((name for name, way in ways.items() if way == chosen), "as chosen")
    return name, [maker(way_name, way) for way_name, way in ({name: chosen} | ways).items()]


def _flat_makers(harness: Harness, case: Case, facts: whole.DeviceFacts) -> tuple[str, list[Maker]]:
    leaves = -(-case.size // element_type(case.dtype).leaf)
    chosen = whole.choose(leaves, facts)
    inputs = harness.inputs(case, "rotated")
    makers = {}
    for options in flat_mappings(case.size):
        cluster = f", clusters of {options['cluster']}" if options.get("cluster", 1) > 1 else ""
        name = f"{options['strategy']} of {options['block_threads']}{cluster}"
        makers[name] = Maker(name, _maker(case, inputs, harness, name, options))
    cluster = f", clusters of {chosen.cluster}" if chosen.cluster > 1 else ""
    name = f"{chosen.name} of {chosen.block_threads}{cluster}"
    makers[name] = Maker(name, _maker(case, inputs, harness, name, {}))
    return name, list(makers.values())


def _maker(case: Case, inputs: Any, harness: Harness, name: str, options: dict[str, Any]) -> Callable[[], Any]:
    return lambda: replace(ours(case, inputs, harness.stream, **options), name=name)


def line_of(cell: str, chosen: str, times: Times) -> str:
    """Return a line with a cell's fastest ways, and by how much the policy's choice is slower than the first."""
    best = sorted(times, key=lambda name: times[name])[:4]
    text = f"{cell:24} " + "; ".join(f"{name} {times[name]:.2f}" for name in best)
    if chosen not in times:
        return f"{text} | chosen: {chosen}, which FAILED"
    return f"{text} | chosen: {chosen} {times[chosen]:.2f} ({100 * (times[chosen] / times[best[0]] - 1):+.1f} %)"


def _cells(part: str) -> list[tuple[str, Case]]:
    if part == "flat":
        return [(f"{n:,}", Case("sum", (n,))) for n in LENGTHS]
    shapes, axis = (ROW_SHAPES, 1) if part == "rows" else (COLUMN_SHAPES, 0)
    return [(f"{part} {rows} x {columns}", Case("sum", (rows, columns), axis)) for rows, columns in shapes]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the sweep and save each cell as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", required=True, type=Path)
    parser.add_argument("--part", action="append", choices=("flat", "rows", "columns"), help="by default all")
    parser.add_argument("--commit", help="for a copy of the tree without its history")
    arguments = parser.parse_args(argv)
    if not arguments.json.parent.is_dir():
        parser.error(f"there is no directory {arguments.json.parent}")
    with opened() as stream:
        device = stream.context.device
        facts = whole.DeviceFacts(
            device.compute_capability,
            stream.context.multiprocessor_count,
            clusters=device.supports_clusters,
            cooperative=device.supports_cooperative_launch,
        )
        harness = Harness(stream, ROUNDS)
        records.begin(arguments.json, "tune", conditions(device, arguments.commit))
        for part in arguments.part or ("flat", "rows", "columns"):
            for cell, case in _cells(part):
                chosen, makers = (_flat_makers if part == "flat" else _matrix_makers)(harness, case, facts)
                entries = harness.measure(case, makers)
                times = {name: entry["us"] for name, entry in entries.items() if "us" in entry}
                records.add(arguments.json, {"cell": cell, "chosen": chosen, "entries": entries})
                print(line_of(cell, chosen, times), flush=True)
        harness.release()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Sweep a rung over block sizes: occupancy, registers, waves and the last wave's share, and on a GPU the time.

python -m benchmarks.profile.block_sweep [--rung one_tile inner_axis ...] [--n N] [--json DATE-DEVICE-block-sweep.jsonl]

A grid runs in waves of as many blocks as are resident at once. The last wave is rarely full: its *share* is the part of
the multiprocessors' places that it fills, and the smaller it is, the longer most of the GPU waits for the rest: the
tail effect. Without a GPU, everything but the time is told for a simulated H200.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.measure import records
from benchmarks.measure.timing import conditions
from lowlevel_reduce.cli.session import open_session
from lowlevel_reduce.driver import Context, occupancy
from lowlevel_reduce.ladder import RUNGS, Rung, run, rung_resources
from lowlevel_reduce.ladder.plans import Axis, Problem
from lowlevel_reduce.ladder.program import kernel_source
from lowlevel_reduce.ladder.registry import BLOCKS, as_switched
from lowlevel_reduce.plans.loading import load_kernel

__all__ = ["Swept", "main", "sweep"]

DEFAULT = ("one_tile", "inner_axis", "v2_shared_sequential", "reduce7")
N = 1 << 24


@dataclass(frozen=True)
class Swept:
    """One rung with one block size; the figures are those of its first launch.

    Attributes
    ----------
    rung : str
        Its id.
    block, grid : int
        Threads of a block, and blocks.
    registers : int
        Of a thread.
    resident : int
        Blocks that are resident on one multiprocessor.
    occupancy : float
        The resident threads as a part of the most that there can be.
    waves : float
        The grid divided by the blocks that are resident on the whole device.
    last_share : float
        How much of the last wave is filled, 1 for all of it.
    microseconds : float or None
        The time of all launches, on a GPU.
    adapted : bool
        Whether it is the block that a rung which adapts its block takes for this many elements.
    """

    rung: str
    block: int
    grid: int
    registers: int
    resident: int
    occupancy: float
    waves: float
    last_share: float
    microseconds: float | None
    adapted: bool


def sweep(rung: Rung, n: int, context: Context, *, timed: bool, blocks: Sequence[int] = BLOCKS) -> list[Swept]:
    """Return a rung's figures for each block size; those of a tuned rung, which has one, for that one."""
    rung, dtype = as_switched(rung), rung.dtype("float32")
    chosen = None
    if isinstance(rung.plan, Axis) and rung.plan.adapted:
        chosen = rung.plan.shape(Problem(n, 256, rung.entries)).steps[0].block
        rung = replace(rung, plan=replace(rung.plan, adapted=False))
    swept = [_swept(rung, n, dtype, block, context, timed=timed) for block in ((rung.block,) if rung.block else blocks)]
    return [replace(row, adapted=row.block == chosen) for row in swept]


def _swept(rung: Rung, n: int, dtype: str, block: int, context: Context, *, timed: bool) -> Swept:
    device = context.device
    kernel = load_kernel(kernel_source(rung, rung.entries[0], dtype, block), device.architecture).kernel
    step = rung.plan.shape(Problem(n, block, rung.entries, resident_blocks=1)).steps[0]
    registers = rung_resources(rung, context, dtype=dtype, block=block)[rung.entries[0]].registers
    resident = occupancy.blocks_per_multiprocessor(kernel, step.block)
    grid, places = math.prod(step.grid), max(1, resident * device.multiprocessor_count)
    last = grid % places or places
    microseconds = run([rung], n=n, dtype=dtype, block=block, context=context)[0].microseconds if timed else None
    most = device.max_threads_per_multiprocessor
    return Swept(rung.id, step.block, grid, registers, resident, resident * step.block / most, grid / places,
                 last / places, microseconds, adapted=False)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Sweep, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rung", nargs="+", default=DEFAULT, choices=[r.id for r in RUNGS.values() if r.entries])
    parser.add_argument("--n", type=int, default=N)
    parser.add_argument("--json", type=Path, help="a file for benchmarks.pages.ladder_doc")
    parser.add_argument("--commit", help="for a copy of the tree without its history")
    arguments = parser.parse_args(argv)
    with open_session(None) as session:
        print(f"{session.context.device.name}, N = {arguments.n:,}; {session.note or 'timed'}")
        found = [
            row
            for name in arguments.rung
            for row in sweep(RUNGS[name], arguments.n, session.context, timed=not session.simulated)
        ]
        facts = conditions(session.context.device, arguments.commit) if arguments.json is not None else {}
    print(f"{'rung':22} {'block':>5} {'grid':>7} {'regs':>4} {'occupancy':>9} {'waves':>8} {'last':>5} {'us':>9}")
    for row in found:
        us = "-" if row.microseconds is None else f"{row.microseconds:.2f}"
        print(f"{row.rung:22} {row.block:5} {row.grid:7} {row.registers:4} {row.occupancy:9.0%} {row.waves:8.1f} "
              f"{row.last_share:5.0%} {us:>9}{' adapted' if row.adapted else ''}")  # fmt: skip
    if arguments.json is not None:
        records.begin(arguments.json, "block-sweep", facts, n=arguments.n)
        records.add(arguments.json, *map(asdict, found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

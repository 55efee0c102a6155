"""Run five kernels once each and compare the simulator's counters with those of Nsight Compute.

On a machine with a GPU and ncu::

    python -m benchmarks.profile.counters --profile --json benchmarks/results/DATE-DEVICE-counters.jsonl

or run there what ``--command`` prints, and then on any machine::

    python -m benchmarks.profile.counters --ncu ncu.csv --json benchmarks/results/DATE-DEVICE-counters.jsonl

The simulator counts an atomic as a load and as a store of the sectors that it touches, so the profiler's atomics are
added to its loads and stores before they are compared. Instructions are printed but not compared: the simulator counts
those of PTX, the profiler those of the machine code. A block that polls for other blocks' results, such as the folding
one of ``flat tiles``, loads as often as it polls, so its loads agree only if the wait is short.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import lowlevel_reduce as lr
from benchmarks.measure import records
from benchmarks.measure.figures import FileError
from benchmarks.measure.timing import conditions
from benchmarks.profile import ncu
from benchmarks.profile.ncu import METRICS
from lowlevel_reduce import simulator
from lowlevel_reduce.driver import Buffer, Context, Stream, binding
from lowlevel_reduce.ladder import RUNGS
from lowlevel_reduce.ladder.launches import ReadyRung

__all__ = ["TOLERANCE", "compared", "main"]

TOLERANCE = 0.02
N = 1 << 18
BLOCK = 256

SHOWN = (*METRICS, "instructions")
PLANS: Mapping[str, dict[str, Any]] = {
    "flat tiles": {"shape": (N,), "strategy": "tiles"},
    "short rows": {"shape": (N // 32, 32), "axis": 1},
    "columns": {"shape": (512, 512), "axis": 0},
}
CLIMBED = {"bank conflicts": "reduce1", "atomics": "v6_block_atomic"}

Counts = dict[str, int]


def launch_all(context: Context) -> dict[str, list[str]]:
    """Launch the five once each; return the names of the kernels that each consists of."""
    names: dict[str, list[str]] = {}
    values = (np.arange(N) % 511 - 255).astype(np.float32) / np.float32(256)
    with Stream.create(context) as stream, Buffer.allocate(values.nbytes, context) as source:
        source.copy_from(values)
        for title, options in PLANS.items():
            with lr.plan("sum", dtype="float32", context=context, **options) as plan:
                names[title] = [kernel.name for kernel, _ in plan.launches]
                size = max(1, plan.problem.rows) * plan.result_dtype.itemsize
                launch = plan.bind(stream)
                with Buffer.allocate(size, context) as out:
                    launch(source.pointer, out.pointer)
                    stream.synchronize()
                launch.close()
        for title, rung_id in CLIMBED.items():
            rung = RUNGS[rung_id]
            ready = ReadyRung(rung, N, "float32", BLOCK, stream)
            names[title] = list(rung.entries)
            ready.run(source.pointer)
            ready.result()
            ready.close()
    return names


def simulated() -> dict[str, Any]:
    """Return the simulator's counters of each of the five, added up over its launches."""
    with simulator.use("H200"), Context.primary() as context, context.pushed():
        names = launch_all(context)
        counted = simulator.counters()
    return {
        title: {name: sum(getattr(counted[kernel], name) for kernel in dict.fromkeys(kernels)) for name in SHOWN}
        | {"kernels": kernels}  # by which the profiler's rows are found
        for title, kernels in names.items()
    }


def compared(ours: int, theirs: int) -> str:
    """Return "agrees" if two counts are within `TOLERANCE`, else their difference in percent of the profiler's."""
    if abs(ours - theirs) <= TOLERANCE * theirs:
        return "agrees"
    return f"{100 * (ours - theirs) / theirs:+.1f} %" if theirs else f"{ours:+d}, profiler 0"


def table(counted: Mapping[str, Mapping[str, Any]], measured: Mapping[str, Counts]) -> str:
    """Return the counters as text, one line for each counter of each kernel."""
    lines = []
    for title, counts in counted.items():
        lines.append(f"{title} ({', '.join(counts['kernels'])})")
        for name in SHOWN:
            line = f"  {name:22} {counts[name]:>10,}"
            theirs = measured.get(title, {}).get(name)
            if theirs is not None:
                line += f" {theirs:>12,}  {compared(counts[name], theirs) if name in METRICS else 'not compared'}"
            lines.append(line)
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; return 1 if a count differs, 2 if the profiler's counts are not available."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("simulator", "cuda"), default="simulator", help="cuda: for ncu to look at")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--profile", action="store_true", help="run ncu here")
    source.add_argument("--ncu", metavar="CSV", type=Path, help="what ncu wrote")
    source.add_argument("--command", action="store_true", help="print ncu's command line and end")
    parser.add_argument("--json", metavar="FILE", type=Path)
    parser.add_argument("--commit", help="for a copy of the tree without its history")
    arguments = parser.parse_args(argv)
    if arguments.command:
        print(" ".join(ncu.command()))
        return 0
    if arguments.device == "cuda":
        with binding.use("cuda"), Context.primary() as context, context.pushed():
            launch_all(context)
        return 0
    counted = simulated()
    kernels = {title: counts["kernels"] for title, counts in counted.items()}
    measured: dict[str, Counts] = {}
    facts: dict[str, Any] = {}
    try:
        if arguments.profile:
            measured = ncu.profiled(ncu.profile(sys.executable), kernels)
            facts = _conditions(arguments.commit)
        elif arguments.ncu is not None:
            measured = ncu.profiled(arguments.ncu.read_text(encoding="utf-8"), kernels)
    except (FileError, OSError) as error:
        print(f"benchmarks.profile.counters: {error}", file=sys.stderr)
        return 2
    print(table(counted, measured))
    if arguments.json is not None:
        records.begin(arguments.json, "counters", facts, n=N, tolerance=TOLERANCE)
        told = ({"title": title, "simulator": counts, "ncu": measured.get(title)} for title, counts in counted.items())
        records.add(arguments.json, *told)
    pairs = [(counted[title][name], counts[name]) for title, counts in measured.items() for name in METRICS]
    return int(any(compared(*pair) != "agrees" for pair in pairs))


def _conditions(commit: str | None) -> dict[str, Any]:
    with binding.use("cuda"), Context.primary() as context:
        return {**conditions(context.device, commit), "ncu": ncu.version()}


if __name__ == "__main__":
    sys.exit(main())

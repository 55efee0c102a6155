"""Five kernels once each: the simulator's counters, beside those of Nsight Compute if its CSV is given.

On the GPU (one line; ncu of CUDA 13, sm_90)::

    ncu --clock-control none --csv --page raw --kernel-name-base function --metrics
    l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum,l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum,
    l1tex__t_requests_pipe_lsu_mem_global_op_st.sum,l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum,
    l1tex__t_requests_pipe_lsu_mem_global_op_red.sum,l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum,
    l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum,l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum,
    l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum,l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum,
    l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum,
    l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum,smsp__inst_executed.sum
    --log-file ncu.csv python -m benchmarks.counters --device cuda

and then, anywhere::

    python -m benchmarks.counters --ncu ncu.csv --json benchmarks/results/DATE-DEVICE-counters.json

``--command`` prints the first as one line to be run. The simulator counts an atomic as a load and as a store, of the
sectors that it touches, so that the profiler's loads and stores are compared together with its atomics. Instructions
are told but not compared: the simulator counts PTX, the profiler the machine's own.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import lowlevel_reduce as lr
from benchmarks.figures import FileError
from lowlevel_reduce import simulator
from lowlevel_reduce.driver import Buffer, Context, Stream, binding
from lowlevel_reduce.ladder import RUNGS
from lowlevel_reduce.ladder.launches import ReadyRung

__all__ = ["METRICS", "TOLERANCE", "compared", "main", "profiled"]

TOLERANCE = 0.02
N = 1 << 18
BLOCK = 256

_GLOBAL = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"


def _of_global(what: str, *operations: str) -> tuple[str, ...]:
    return tuple(_GLOBAL.format(what, operation) for operation in operations)


METRICS: Mapping[str, tuple[str, ...]] = {
    "global_loads": _of_global("requests", "ld", "red", "atom"),
    "global_load_sectors": _of_global("sectors", "ld", "red", "atom"),
    "global_stores": _of_global("requests", "st", "red", "atom"),
    "global_store_sectors": _of_global("sectors", "st", "red", "atom"),
    "shared_wavefronts": tuple(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{each}.sum" for each in ("ld", "st")),
    "bank_conflicts": tuple(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{each}.sum" for each in ("ld", "st")),
}
"""The metrics of Nsight Compute that together are one of the simulator's counters."""

INSTRUCTIONS = "smsp__inst_executed.sum"
SHOWN = (*METRICS, "atomics", "instructions")
PLANS: Mapping[str, dict[str, Any]] = {
    "flat tiles": {"shape": (N,), "strategy": "tiles"},
    "short rows": {"shape": (N // 32, 32), "axis": 1},
    "columns": {"shape": (512, 512), "axis": 0},
}
CLIMBED = {"bank conflicts": "reduce1", "atomics": "v6_block_atomic"}

Counts = dict[str, int]


def command() -> str:
    """Return the command line that profiles these kernels."""
    metrics = dict.fromkeys([*(metric for parts in METRICS.values() for metric in parts), INSTRUCTIONS])
    return (
        "ncu --clock-control none --csv --page raw --kernel-name-base function "
        f"--metrics {','.join(metrics)} --log-file ncu.csv python -m benchmarks.counters --device cuda"
    )


def launch_all(context: Context) -> dict[str, list[str]]:
    """Launch the five once each; return the names of the kernels of each."""
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
    """Return the simulator's counters of each of the five, the sum over its launches."""
    with simulator.use("H200"), Context.primary() as context, context.pushed():
        names = launch_all(context)
        counted = simulator.counters()
    return {
        title: {name: sum(getattr(counted[kernel], name) for kernel in dict.fromkeys(kernels)) for name in SHOWN}
        | {"kernels": kernels}  # which the profiler's rows are found by
        for title, kernels in names.items()
    }


def profiled(text: str, kernels: Mapping[str, Sequence[str]]) -> dict[str, Counts]:
    """Return the profiler's figures for each of the five.

    Parameters
    ----------
    text : str
        What ``ncu --csv --page raw`` wrote: lines that begin with ``==`` are its own messages.
    kernels : mapping
        The names of the kernels of each.

    Raises
    ------
    FileError
        If it is no such table, or a kernel or a metric is not in it.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("\n".join(lines))))
    if not rows or "Kernel Name" not in rows[0]:
        raise FileError("this is no table of ncu --csv --page raw")
    wanted = {metric for parts in METRICS.values() for metric in parts} | {INSTRUCTIONS}
    if lacking := sorted(wanted - set(rows[0])):
        raise FileError(f"ncu's table has no {lacking[0]}: see --command")
    found = {}
    for title, names in kernels.items():
        # ncu may show a name with its parameters; a row without one holds the units.
        mine = [row for row in rows if row["Kernel Name"].split("(")[0] in names]
        if not mine:
            raise FileError(f"ncu's table has no kernel {', '.join(names)}")
        totals = {metric: sum(_number(row[metric], metric) for row in mine) for metric in wanted}
        found[title] = {name: sum(totals[part] for part in parts) for name, parts in METRICS.items()}
        found[title]["instructions"] = totals[INSTRUCTIONS]
    return found


def _number(text: str, metric: str) -> int:
    try:
        return round(float(text.replace(",", "")))
    except ValueError as error:
        raise FileError(f"ncu has no figure for {metric}: {text!r}") from error


def compared(ours: int, theirs: int) -> str:
    """Return "agrees" if two counts are within `TOLERANCE`, else their difference in percent of the profiler's."""
    if abs(ours - theirs) <= TOLERANCE * theirs:
        return "agrees"
    return f"{100 * (ours - theirs) / theirs:+.1f} %" if theirs else f"{ours:+d}, profiler 0"


def table(counted: Mapping[str, Mapping[str, Any]], measured: Mapping[str, Counts] | None) -> str:
    """Return the counters as text, a kernel and counter a line."""
    lines = []
    for title, counts in counted.items():
        lines.append(f"{title} ({', '.join(counts['kernels'])})")
        for name in SHOWN:
            line = f"  {name:22} {counts[name]:>10,}"
            theirs = (measured or {}).get(title, {}).get(name)
            if theirs is not None:
                line += f" {theirs:>12,}  {compared(counts[name], theirs) if name in METRICS else 'not compared'}"
            lines.append(line)
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; 1 if a count differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("simulator", "cuda"), default="simulator", help="cuda: for ncu to look at")
    parser.add_argument("--ncu", metavar="CSV", type=Path, help="what ncu wrote")
    parser.add_argument("--json", metavar="FILE", type=Path)
    parser.add_argument("--command", action="store_true", help="print ncu's command line and end")
    arguments = parser.parse_args(argv)
    if arguments.command:
        print(command())
        return 0
    if arguments.device == "cuda":
        with binding.use("cuda"), Context.primary() as context, context.pushed():
            launch_all(context)
        return 0
    counted: dict[str, Any] = simulated()
    measured = None
    if arguments.ncu is not None:
        kernels = {title: counts["kernels"] for title, counts in counted.items()}
        measured = profiled(arguments.ncu.read_text(encoding="utf-8"), kernels)
    print(table(counted, measured))
    if arguments.json is not None:
        document = {"n": N, "simulator": counted, "ncu": measured, "tolerance": TOLERANCE}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    pairs = [(counted[title][name], counts[name]) for title, counts in (measured or {}).items() for name in METRICS]
    return int(any(compared(*pair) != "agrees" for pair in pairs))


if __name__ == "__main__":
    sys.exit(main())

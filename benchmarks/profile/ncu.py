"""Nsight Compute: the metrics to count on compute capability 9.0, its command line, its CSV, and its errors."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure.figures import FileError

__all__ = [
    "INSTRUCTIONS",
    "METRICS",
    "WANTED",
    "Launch",
    "command",
    "function_name",
    "launches",
    "profile",
    "profiled",
    "version",
]

_GLOBAL = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"


def _of_global(what: str, *operations: str) -> tuple[str, ...]:
    return tuple(_GLOBAL.format(what, operation) for operation in operations)


def _of_shared(what: str) -> tuple[str, ...]:
    return tuple(f"l1tex__data_{what}_mem_shared_op_{operation}.sum" for operation in ("ld", "st"))


METRICS: Mapping[str, tuple[str, ...]] = {
    "global_loads": _of_global("requests", "ld", "red", "atom"),
    "global_load_sectors": _of_global("sectors", "ld", "red", "atom"),
    "global_stores": _of_global("requests", "st", "red", "atom"),
    "global_store_sectors": _of_global("sectors", "st", "red", "atom"),
    "shared_wavefronts": _of_shared("pipe_lsu_wavefronts"),
    "bank_conflicts": _of_shared("bank_conflicts_pipe_lsu"),
    "atomics": _of_global("requests", "red", "atom"),
}
"""For each of the simulator's counters, the metrics that add up to it. Atomics are counted by request, which is the
same as by thread if one lane of a warp makes them, as in all kernels that are compared."""

INSTRUCTIONS = "smsp__inst_executed.sum"

WANTED: tuple[str, ...] = tuple(dict.fromkeys([*(each for parts in METRICS.values() for each in parts), INSTRUCTIONS]))
"""Every metric that is asked for, once."""

# What a line of ncu's output means. They are looked for in this order.
_REFUSALS: tuple[tuple[str, str], ...] = (
    ("ERR_NVGPUCTRPERM", "this machine does not let the user read the GPU's performance counters (ERR_NVGPUCTRPERM)"),
    ("Failed to find metric", "ncu does not know a metric for this GPU"),
    ("Failed to initialize the profiler", "ncu cannot read performance counters through this machine's driver"),
    ("No kernels were profiled", "ncu saw no kernel"),
    ("==ERROR==", "ncu failed"),
)

_COUNT = re.compile(r"\d{1,3}(,\d{3})+(\.0*)?|\d+(\.0*)?")
_SCALED = re.compile(r"[KMGT](?=[a-z])")


class _Cell(NamedTuple):
    """One figure of ncu's table: the kernel of the launch, the metric, its unit, and its text."""

    kernel: str
    metric: str
    unit: str
    text: str


class Launch(NamedTuple):
    """One launch that ncu saw: the kernel's bare name, and its figures by metric."""

    kernel: str
    figures: Mapping[str, float]


def command(
    program: str = "ncu",
    log: str = "ncu.csv",
    *,
    metrics: Sequence[str] = WANTED,
    arguments: Sequence[str] = ("benchmarks.profile.counters", "--device", "cuda"),
    options: Sequence[str] = (),
) -> list[str]:
    """Return the command line that profiles a module, by default the kernels of `benchmarks.profile.counters`.

    Figures are in base units, kernels have their bare names, and each launch is a line. Clocks are left as they are.

    Parameters
    ----------
    program, log : str
        ncu, and the file that it is to write.
    metrics : sequence of str
        What to ask for.
    arguments : sequence of str
        The module and its arguments.
    options : sequence of str
        More options of ncu.
    """
    return [
        program, "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base",
        "--print-kernel-base", "function", *options, "--metrics", ",".join(metrics), "--log-file", log,
        "python", "-m", *arguments,
    ]  # fmt: skip


def profile(python: str, **how: Sequence[str]) -> str:
    """Run `command`, which is given `how`, with this Python and return what ncu wrote.

    Raises
    ------
    FileError
        With one sentence, if ncu is not installed or could not count.
    """
    program = _program()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        line = command(program, str(log), **how)
        line[line.index("python")] = python
        # In every locale, numbers shall have a decimal point.
        run = subprocess.run(line, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
        text = log.read_text(encoding="utf-8") if log.is_file() else ""
    _raise_refusal(f"{text}\n{run.stdout}\n{run.stderr}")
    if run.returncode:
        last = (run.stderr.strip() or run.stdout.strip() or "it said nothing").splitlines()[-1]
        raise FileError(f"ncu ended with {run.returncode}: {last}")
    return text


def version() -> str:
    """Return the last line of ``ncu --version``; raise as `profile` does."""
    run = subprocess.run([_program(), "--version"], capture_output=True, text=True, check=False)
    return (run.stdout.strip().splitlines() or ["not told"])[-1]


def _program() -> str:
    found = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")
    if found is None:
        raise FileError("there is no ncu on this machine: it comes with Nsight Compute")
    return found


def profiled(text: str, kernels: Mapping[str, Sequence[str]]) -> dict[str, dict[str, int]]:
    """Return the profiler's figures by title and counter, added up over the launches of a title's kernels.

    Parameters
    ----------
    text : str
        What ``ncu --csv`` wrote: with ``--page raw`` a row for each launch and a column for each metric, the units in
        the first row; else a row for each launch and metric. Lines that are not part of the table are skipped.
    kernels : mapping
        The names of the kernels of each title.

    Raises
    ------
    FileError
        With one sentence, if the counters could not be read, the text is no such table, or a kernel, a metric or a
        figure is missing.
    """
    cells = _cells(text)
    if not cells:
        _raise_refusal(text)
        raise FileError("this is no table of ncu --csv with the metrics of --command")
    found = {}
    for title, names in kernels.items():
        mine = [cell for cell in cells if function_name(cell.kernel) in names]
        if not mine:
            raise FileError(f"ncu's table has no kernel {', '.join(names)}")
        totals = {metric: _total(mine, metric) for metric in WANTED}
        found[title] = {name: sum(totals[part] for part in parts) for name, parts in METRICS.items()}
        found[title]["instructions"] = totals[INSTRUCTIONS]
    return found


def launches(text: str, metrics: Sequence[str]) -> list[Launch]:
    """Return the launches of a table of ``ncu --csv --page raw``, in their order, with the figures of these metrics.

    Raises
    ------
    FileError
        As `profiled` does.
    """
    header, rows = _table(text)
    lacking = [name for name in metrics if name not in header]
    if lacking:
        _raise_refusal(text)
        raise FileError(f"this is no table of ncu --csv --page raw with {', '.join(lacking)}")
    return [
        Launch(function_name(row["Kernel Name"]), {name: _number(name, row) for name in metrics})
        for row in rows
        if row["Kernel Name"]  # units have none
    ]


def _number(metric: str, row: Mapping[str, str]) -> float:
    try:
        return float(row[metric].replace(",", ""))
    except ValueError:
        raise FileError(f"ncu has no figure for {metric} of {row['Kernel Name']}: {row[metric]!r}") from None


def function_name(shown: str) -> str:
    """Return the bare name of a kernel that ncu may show as ``void space::name<float, (int)4>(const float *)``."""
    words = re.split(r"[<(]", shown, maxsplit=1)[0].split("::")[-1].split()
    return words[-1] if words else ""


def _raise_refusal(text: str) -> None:
    for sign, meaning in _REFUSALS:
        line = next((line for line in text.splitlines() if sign in line), None)
        if line is not None:
            said = line.replace("==ERROR==", "").replace("==WARNING==", "").strip()
            raise FileError(meaning if sign == "ERR_NVGPUCTRPERM" else f"{meaning}: {said}")


def _table(text: str) -> tuple[list[str], list[dict[str, str]]]:
    """Return the names of the columns and the rows, that of the units included; nothing if there is no table."""
    lines = iter(text.splitlines())
    header = next((fields for line in lines if "Kernel Name" in (fields := _fields(line))), None)
    if header is None:
        return [], []
    rows = [dict(zip(header, fields, strict=True)) for line in lines if len(fields := _fields(line)) == len(header)]
    return header, [row for row in rows if row["Kernel Name"] != "Kernel Name"]  # a second process has a second header


def _cells(text: str) -> list[_Cell]:
    header, rows = _table(text)
    if "Metric Name" in header:
        return [
            _Cell(row["Kernel Name"], row["Metric Name"], row.get("Metric Unit", ""), row["Metric Value"])
            for row in rows
        ]
    return list(_of_wide(rows, [name for name in WANTED if name in header]))


def _of_wide(rows: Sequence[Mapping[str, str]], metrics: Sequence[str]) -> Iterator[_Cell]:
    units: Mapping[str, str] = {}
    for row in rows:
        if not row["Kernel Name"]:
            units = row
            continue
        yield from (_Cell(row["Kernel Name"], metric, units.get(metric, ""), row[metric]) for metric in metrics)


def _fields(line: str) -> list[str]:
    return next(csv.reader([line]), [])


def _total(cells: Sequence[_Cell], metric: str) -> int:
    mine = [cell for cell in cells if cell.metric == metric]
    if not mine:
        raise FileError(f"ncu's table has no {metric} of {cells[0].kernel}: see --command")
    return sum(_count(cell) for cell in mine)


def _count(cell: _Cell) -> int:
    if _SCALED.match(cell.unit):
        raise FileError(f"ncu rounded {cell.metric} to {cell.unit}: give it --print-units base")
    if not _COUNT.fullmatch(cell.text.strip()):
        raise FileError(f"ncu has no figure for {cell.metric} of {cell.kernel}: {cell.text!r}")
    return int(cell.text.strip().replace(",", "").partition(".")[0])

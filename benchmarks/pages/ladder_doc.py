"""Fill the tables and figures of docs/ladder.md from the measured records, or check that they agree with them.

python -m benchmarks.pages.ladder_doc [--check]

Tables are between ``<!-- times RUN [RUNG ...] -->``, ``<!-- beside RUN GPU,GPU [RUNG ...] -->`` or ``<!-- counters
RUNG ... -->`` and ``<!-- end -->``. Times come from the last ``benchmarks/results/*-h200-ladder-RUN.jsonl`` by name, or
of an H100 where RUN is ``h100:NAME``, written by `benchmarks.profile.ladder`, counters from what
`benchmarks.profile.ladder_counters` writes beside itself. ``beside`` has the times of several GPUs in one table, with
what is still to be measured where there is no file of one. ``<!-- sweep RUNG ... -->`` has the newest
``*-block-sweep.jsonl`` of `benchmarks.profile.block_sweep`.

A figure in a sentence is between one of these and ``<!-- . -->``:

    <!-- us RUN RUNG -->             a time in microseconds
    <!-- percent RUN RUNG -->        its share of the peak bandwidth
    <!-- ratio RUN SLOW FAST -->     a time divided by another
    <!-- ns RUN RUNG N -->           a time divided by N, in nanoseconds
    <!-- row NAME ROW -->            the time of a row of *-NAME.jsonl
    <!-- counted RUNG COUNTER -->    a counter; with two more words, divided by that one

``<!-- claim RUN A < B < C -->`` says that a sentence calls A faster than B and B faster than C.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import records
from benchmarks.measure.figures import FileError
from benchmarks.pages.filling import ROOT, fill
from benchmarks.profile.ladder_counters import COUNTERS
from lowlevel_reduce.ladder.registry import RUNGS, published_text

__all__ = ["COLUMNS", "counted_records", "filled", "main"]

PAGE = ROOT / "docs" / "ladder.md"
NOT_MEASURED = "Not measured yet."

_FIGURE = re.compile(r"(<!-- (us|percent|ratio|ns|row|counted) ([^>]+?) -->)(.*?)(<!-- \. -->)", re.DOTALL)
_CLAIM = re.compile(r"<!-- claim (\S+) (.+?) -->")
_TABLE = re.compile(r"(<!-- (times|beside|sweep|counters) ([^>]+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)

Entry = Mapping[str, Any]


def filled(text: str, results: Path, counters: Path) -> str:
    """Return the page with every table and figure filled in from the files.

    Parameters
    ----------
    text : str
        The page.
    results : Path
        The directory of the measured records.
    counters : Path
        The file of the simulator's records.

    Raises
    ------
    FileError
        If a file is malformed, lacks a rung that a table or figure needs, or contradicts a claim.
    """
    for run, order in _CLAIM.findall(text):
        _check_claim(_file(results, run), [name.strip() for name in order.split("<")])

    def table(match: re.Match[str]) -> str:
        kind, words = match[2], match[3].split()
        made = {
            "times": lambda: _times(words[0], words[1:], results),
            "beside": lambda: _beside(words[0], words[1].split(","), words[2:], results),
            "sweep": lambda: _sweep(words, results),
            "counters": lambda: _counters(words, counters),
        }[kind]()
        return f"{match[1]}\n{made}\n\n{match[5]}"

    def figure(match: re.Match[str]) -> str:
        kind, words = match[2], match[3].split()
        made = _counted(words, counters) if kind == "counted" else _figure(kind, words, results)
        return f"{match[1]}{made}{match[5]}"

    return _FIGURE.sub(figure, _TABLE.sub(table, text))


def _file(results: Path, run: str) -> Path:
    files = _files(results, run)
    if not files:
        raise FileError(f"there is no run {run} of the ladder in {results}")
    return files[-1]


def _files(results: Path, run: str) -> list[Path]:
    """Return a run's files, the newest last: of the GPU that it names, else of an H200, of which the text tells."""
    gpu, _, name = run.rpartition(":")
    files = sorted(results.glob(f"*-{gpu}-ladder-{name}.jsonl" if gpu else f"*-ladder-{name}.jsonl"))
    return [file for file in files if gpu or "-h200-" in file.name] or files


def _timed(file: Path, name: str) -> Entry:
    (record,) = _chosen(_timed_records(file)[0], [name], file)
    if not record["microseconds"]:
        raise FileError(f"{file.name}: {name} has no time")
    return record


def _check_claim(file: Path, names: Sequence[str]) -> None:
    times = [_timed(file, name)["microseconds"] for name in names]
    if times != sorted(times):
        told = ", ".join(f"{name} {us:,.2f}" for name, us in zip(names, times, strict=True))
        raise FileError(f"the page says {' < '.join(names)}; {file.name} says {told} µs")


def _figure(kind: str, words: Sequence[str], results: Path) -> str:
    if kind == "row":
        return _number(_row_us(results, words[0], " ".join(words[1:])))
    file = _file(results, words[0])
    us = float(_timed(file, words[1])["microseconds"])
    if kind == "percent":
        return f"{_timed(file, words[1])['percent_of_peak']:.1f}"
    if kind == "ns":
        return f"{1e3 * us / int(words[2]):.2f}"
    if kind == "ratio":
        return _ratio(us / float(_timed(file, words[2])["microseconds"]))
    return _number(us)


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"


def _counted(words: Sequence[str], file: Path) -> str:
    """Return the counter that ``RUNG COUNTER`` names, divided by a second one if two more words name that."""
    found = []
    for name, counter in zip(words[::2], words[1::2], strict=True):
        (record,) = _chosen(counted_records(file)[0], [name], file)
        if not (record["counters"] or {}).get(counter):
            raise FileError(f"{file.name}: {name} has no {counter}")
        found.append(int(record["counters"][counter]))
    return f"{found[0]:,}" if len(found) == 1 else _ratio(found[0] / found[1])


def _number(us: float) -> str:
    return f"{us:.1f}" if us < 1000 else f"{us:,.0f}"


def _row_us(results: Path, name: str, row: str) -> float:
    files = sorted(results.glob(f"*-{name}.jsonl"))
    rows = records.read(files[-1], name).records if files else []
    found = [float(each["us"]) for each in rows if each["name"] == row]
    if len(found) != 1:
        raise FileError(f"no *-{name}.jsonl has just one row {row!r}")
    return found[0]


def _timed_records(file: Path) -> tuple[list[Entry], Entry]:
    """Return a file's records and the conditions under which they were measured."""
    document = records.read(file, "ladder")
    return _checked(document.records, file), document.conditions


def counted_records(file: Path) -> tuple[list[Entry], str]:
    """Return a file's records and the version of NVRTC by which they were counted."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        return _checked(document["records"], file), str(document["nvrtc"])
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise FileError(f"{file.name} holds no records of the ladder: {error!r}") from error


def _checked(found: Sequence[Entry], file: Path) -> list[Entry]:
    if not all("rung" in record and "microseconds" in record for record in found):
        raise FileError(f"{file.name}: a record has no rung or no time")
    return list(found)


def _chosen(found: Sequence[Entry], names: Sequence[str], file: Path) -> list[Entry]:
    by_name = {record["rung"]: record for record in found}
    if lacking := [name for name in names if name not in by_name]:
        raise FileError(f"{file.name} has no rung {', '.join(lacking)}")
    return [by_name[name] for name in names] if names else list(found)


def _times(run: str, names: Sequence[str], results: Path) -> str:
    files = _files(results, run)
    if not files:
        return NOT_MEASURED
    found, conditions = _timed_records(files[-1])
    # As on the command line, speed-ups are not relative to a rung that is wrong on purpose.
    first = next((record["microseconds"] for record in found if record["expected_correct"]), None)
    lines = [
        "| rung | µs | GB/s | % of peak | source: % of peak or time | × the first rung | relative error |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    timed = {record["rung"] for record in found}
    known = [name for name in names if name in timed or name not in RUNGS]
    shown = _chosen(found, known, files[-1]) if known or not names else []
    for record in shown:
        us = record["microseconds"]
        rung = RUNGS.get(record["rung"])
        cells = [
            f"`{record['rung']}`",
            _shown(us, "{:,.2f}"),
            _shown(record["gb_per_s"], "{:,.1f}"),
            _shown(record["percent_of_peak"], "{:.1f}"),
            published_text(rung.published if rung else None) or "-",
            "-" if us is None or first is None else f"{first / us:,.1f}",
            _verdict(record),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    wanted = names or [rung.id for rung in RUNGS.values() if rung.system == found[0]["system"]]
    lines += [f"| `{name}` | not measured yet |" + " - |" * 5 for name in wanted if name in RUNGS and name not in timed]
    n, dtypes = found[0]["n"], " and ".join(dict.fromkeys(record["dtype"] for record in shown))
    where = f"N = {n:,} {dtypes}, {conditions.get('device', 'a GPU')}, commit {conditions.get('commit')}"
    return "\n".join([*lines, "", f"{where}: `{files[-1].name}`."])


def _beside(run: str, gpus: Sequence[str], names: Sequence[str], results: Path) -> str:
    """Return a run's times on several GPUs, a row for each rung that one of them has or that is named."""
    files = {gpu: _files(results, f"{gpu}:{run}") for gpu in gpus}
    newest = {gpu: _timed_records(found[-1]) for gpu, found in files.items() if found}
    timed = {gpu: {record["rung"]: record for record in found} for gpu, (found, _) in newest.items()}
    if not timed:
        return NOT_MEASURED
    rungs = list(names) or list(dict.fromkeys(name for found in timed.values() for name in found))
    if lacking := [name for name in rungs if name not in RUNGS]:
        raise FileError(f"the ladder has no rung {', '.join(lacking)}")
    heads = [f"{gpu.upper()}, µs | GB/s | % of its peak" for gpu in gpus]
    lines = [f"| rung | {' | '.join(heads)} | source |", "| --- |" + " ---: |" * (3 * len(gpus) + 1)]
    for name in rungs:
        cells = [_cells_of_gpu(timed.get(gpu, {}).get(name)) for gpu in gpus]
        lines.append(f"| `{name}` | {' | '.join(cells)} | {_source(name)} |")
    where = [
        f"{gpu.upper()}: {told.get('device', 'a GPU')}, commit {told.get('commit')}, `{files[gpu][-1].name}`"
        for gpu, (_, told) in newest.items()
    ]
    where += [f"{gpu.upper()}: {NOT_MEASURED.lower().rstrip('.')}" for gpu in gpus if gpu not in newest]
    n = next(iter(newest.values()))[0][0]["n"]
    return "\n".join([*lines, "", f"N = {n:,}. {'; '.join(where)}."])


def _cells_of_gpu(record: Entry | None) -> str:
    if record is None or record["microseconds"] is None:
        return "- | - | -"
    wrong = " " + _verdict(record) if not record["correct"] else ""
    return f"{record['microseconds']:,.2f}{wrong} | {record['gb_per_s']:,.1f} | {record['percent_of_peak']:.1f}"


def _source(name: str) -> str:
    """Return what a rung's source gives: a share of the peak, told to be one, or a time."""
    told = published_text(RUNGS[name].published)
    return "-" if told is None else told if " " in told else f"{told} %"


def _sweep(names: Sequence[str], results: Path) -> str:
    """Return some rungs' figures for each block size; in bold the size that a rung which adapts its block takes."""
    files = sorted(results.glob("*-block-sweep.jsonl"))
    if not files:
        return NOT_MEASURED
    document = records.read(files[-1], "block-sweep")
    lines = [
        "| rung | block | blocks of the grid | registers | occupancy | waves | the last one is filled | µs |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in document.records:
        if row["rung"] in names:
            block = f"**{row['block']}**" if row["adapted"] else str(row["block"])
            parts = f"{row['occupancy']:.0%} | {row['waves']:,.1f} | {row['last_share']:.0%}".replace("%", " %")
            us = _shown(row["microseconds"], "{:,.2f}")
            lines.append(f"| `{row['rung']}` | {block} | {row['grid']:,} | {row['registers']} | {parts} | {us} |")
    told = document.conditions
    where = f"N = {document.facts['n']:,}, {told.get('device', 'a GPU')}, commit {told.get('commit')}"
    return "\n".join([*lines, "", f"{where}: `{files[-1].name}`."])


def _verdict(record: Entry) -> str:
    if not record["correct"]:
        return "wrong on purpose" if not record["expected_correct"] else "WRONG"
    return _shown(record["relative_error"], "{:.1e}")


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


COLUMNS: Mapping[str, Callable[[Entry], float]] = {
    "instructions": lambda c: c["instructions"],
    "divergent branches": lambda c: c["divergent_branches"],
    "load requests": lambda c: c["global_loads"],
    "sectors": lambda c: c["global_load_sectors"],
    "sectors a request": lambda c: c["global_load_sectors"] / max(c["global_loads"], 1),
    "shared wavefronts": lambda c: c["shared_wavefronts"],
    "bank conflicts": lambda c: c["bank_conflicts"],
    "barriers": lambda c: c["barriers"],
    "atomics": lambda c: c["atomics"],
}


def _counters(names: Sequence[str], file: Path) -> str:
    found, nvrtc = counted_records(file)
    heads = [f"[{name}](glossary.md#{name.replace(' ', '-')})" for name in COLUMNS]
    lines = ["| rung | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(COLUMNS)]
    for record in _chosen(found, names, file):
        if not record["counters"]:
            raise FileError(f"{file.name}: {record['rung']} has no counters")
        cells = [read(record["counters"]) for read in COLUMNS.values()]
        texts = [f"{value:,}" if isinstance(value, int) else f"{value:.1f}" for value in cells]
        lines.append(f"| `{record['rung']}` | " + " | ".join(texts) + " |")
    return "\n".join([*lines, "", f"N = {found[0]['n']:,}, simulated H200, NVRTC {nvrtc}, all passes together."])


def main(argv: Sequence[str] | None = None) -> int:
    """Fill or check; return 1 if the page differs from the files, 2 if a file is malformed."""
    return fill("ladder_doc", __doc__, PAGE, lambda text, results: filled(text, results, COUNTERS), argv)


if __name__ == "__main__":
    sys.exit(main())

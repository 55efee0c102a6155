"""Write docs/rungs.md: every rung of the ladder under an address of its own, with its counters and its measured times.

python -m benchmarks.pages.rungs_doc [--check]

What a rung changes is the comment at the head of its source. Times come from ``benchmarks/results/*-ladder-*.jsonl``,
the newest of each size, type and GPU; counters from ``benchmarks/profile/ladder_counters.json``.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

from benchmarks.measure import records
from benchmarks.measure.figures import FileError
from benchmarks.pages.filling import RESULTS, ROOT, put
from benchmarks.pages.ladder_doc import COLUMNS, counted_records
from benchmarks.profile.ladder_counters import COUNTERS
from lowlevel_reduce.ladder.registry import RUNGS, SYSTEMS, Rung, published_text

__all__ = ["PAGE", "made", "main"]

PAGE = ROOT / "docs" / "rungs.md"

_HEAD = """\
# Every rung, by its address

`python -m benchmarks.pages.rungs_doc` writes this page. A rung's address is its name, as in `rungs.md#v5_warp_shuffle`,
and stays what it is. [The ladder](ladder.md) tells why one rung is faster than another, [the glossary](glossary.md)
what is counted. Counters are those of {n:,} elements on a simulated H200, by NVRTC {nvrtc}, all passes together.
"""


def made(results: Path = RESULTS, counters: Path = COUNTERS) -> str:
    """Return the page; raises FileError if a file is malformed."""
    counted, nvrtc = counted_records(counters)
    by_name = {record["rung"]: record for record in counted}
    lines = [_HEAD.format(n=counted[0]["n"], nvrtc=nvrtc)]
    times = list(_times(results))
    for system, rungs in groupby(RUNGS.values(), key=lambda rung: rung.system):
        lines.append(f"## System {system}: {SYSTEMS[system].title}\n")
        for rung in rungs:
            mine = [line for name, line in times if name == rung.id]
            lines += _rung(rung, (by_name.get(rung.id) or {}).get("counters"), mine)
    return "\n".join(lines)


def _rung(rung: Rung, counters: Mapping[str, Any] | None, times: Sequence[str]) -> Iterator[str]:
    yield f"### {rung.id}\n"
    title = rung.title[:1].upper() + rung.title[1:]
    after = f" Compare it with [{rung.after}](#{rung.after})." if rung.after else ""
    yield f"{title}. Source: [{rung.file}](../cuda_src/{rung.file}).{after}\n"
    for sentence in _comment(rung):
        yield f"- {sentence}"
    if published := published_text(rung.published):
        yield f"- Its source measured {published}{'' if published.endswith('ms') else ' % of the peak'}."
    yield from (f"- {line}" for line in times)
    if counters:
        told = [f"{_number(read(counters))} {_link(name)}" for name, read in COLUMNS.items()]
        yield f"- Counted: {', '.join(told)}."
    yield ""


def _link(counter: str) -> str:
    return f"[{counter}](glossary.md#{counter.replace(' ', '-')})"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.1f}"


def _comment(rung: Rung) -> list[str]:
    """Return the statements of the comment that a source begins with; a new one begins with a word and a colon."""
    text = rung.source.read_text(encoding="utf-8").splitlines()
    found: list[str] = []
    for line in takewhile(lambda each: each.startswith("//"), text):
        said = line.removeprefix("//").strip()
        begins = said.split(" ")[0].endswith(":")
        if found and not begins:
            found[-1] += f" {said}"
        else:
            found.append(said)
    return [_escaped(each) for each in found]


def _escaped(text: str) -> str:
    """Return text in which nothing but what is in backquotes is Markdown."""
    parts = text.split("`")
    return "`".join(part if k % 2 else re.sub(r"([*<]|__)", r"\\\1", part) for k, part in enumerate(parts))


def _times(results: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of a rung, and its time in one file, newest files first; the newest of each size, type and GPU."""
    seen = set()
    for file in sorted(results.glob("*-ladder-*.jsonl"), reverse=True):
        document = records.read(file, "ladder")
        device = document.conditions.get("device", "a GPU")
        for record in document.records:
            if not record.get("microseconds"):
                continue
            key = record["rung"], record["n"], record["dtype"], device
            if key in seen:
                continue
            seen.add(key)
            rate = f", {record['percent_of_peak']:.1f} % of the peak" if record.get("percent_of_peak") else ""
            us = record["microseconds"]
            shown = f"{us:,.1f}" if us < 10_000 else f"{us:,.0f}"
            yield (
                record["rung"],
                f"{device}: {shown} µs for {record['n']:,} {record['dtype']}{rate} (`{file.name}`).",
            )


def main(argv: Sequence[str] | None = None) -> int:
    """Write or check; return 1 if the page differs from the files, 2 if one is malformed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if something would be changed")
    parser.add_argument("--page", type=Path, default=PAGE)
    arguments = parser.parse_args(argv)
    try:
        wanted = made()
    except FileError as error:
        print(f"benchmarks.pages.rungs_doc: {error}", file=sys.stderr)
        return 2
    return put("rungs_doc", arguments.page, wanted, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())

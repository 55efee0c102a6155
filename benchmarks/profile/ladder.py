"""Run the whole ladder on the GPU and write its records for `benchmarks.pages.ladder_doc`: a file for each run.

python -m benchmarks.profile.ladder --json benchmarks/results
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import records
from benchmarks.measure.runs import card_of
from benchmarks.measure.timing import conditions, opened
from lowlevel_reduce.ladder import RUNGS, Record, iterate

__all__ = ["RUNS", "Run", "main"]

REPEAT = 5
BLOCK = 256


@dataclass(frozen=True)
class Run:
    """One run of a system: its name in files and markers, the system, the number of elements and their type."""

    name: str
    system: str
    n: int
    dtype: str = "float32"


RUNS = (
    Run("a-1e8", "A", 100_000_000),
    Run("b-2p24", "B", 1 << 24),
    Run("c-2p24", "C", 1 << 24),
    Run("c-2p28", "C", 1 << 28),
    Run("d-2p24", "D", 1 << 24),
    Run("e-2p16", "E", 1 << 16),
    Run("e-2p24", "E", 1 << 24),
    Run("e-2p28", "E", 1 << 28),
    Run("e-2p24-float16", "E", 1 << 24, "float16"),
)
"""What is run: A as printed and tuned, the others at their sources' sizes, E also where launches take long."""


def line_of(record: Record) -> str:
    """Return a record as one line."""
    verdict = "right" if record.correct else "wrong, on purpose" if not record.expected_correct else "WRONG"
    if record.microseconds is None or record.gb_per_s is None or record.percent_of_peak is None:
        return f"  {record.rung:28} {verdict}"
    return (
        f"  {record.rung:28} {record.microseconds:11.2f} us {record.gb_per_s:8.1f} GB/s "
        f"{record.percent_of_peak:5.1f} %  {verdict}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if a rung was wrong that is meant to be right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="DIR", required=True, type=Path, help="an existing directory")
    parser.add_argument("--run", action="append", choices=[run.name for run in RUNS], help="by default all")
    parser.add_argument("--date", default=time.strftime("%Y-%m-%d"), help="what the files' names begin with")
    parser.add_argument("--commit", help="for a copy of the tree without its history")
    arguments = parser.parse_args(argv)
    if not arguments.json.is_dir():
        parser.error(f"there is no directory {arguments.json}")
    wrong = []
    with opened() as stream:
        context = stream.context
        facts = conditions(context.device, arguments.commit)
        device = card_of(context.device.name).lower()
        for run in RUNS:
            if arguments.run and run.name not in arguments.run:
                continue
            begin = time.perf_counter()
            there = [rung for rung in RUNGS.values() if rung.system == run.system]
            rungs = [rung for rung in there if rung.lacking(context.device) is None]
            missing = {rung.id: rung.lacking(context.device) for rung in there if rung not in rungs}
            print(f"{run.system}, N = {run.n:,}, {run.dtype}", flush=True)
            file = arguments.json / f"{arguments.date}-{device}-ladder-{run.name}.jsonl"
            records.begin(file, "ladder", facts, run=run.name, block=BLOCK, repeat=REPEAT, missing=missing)
            for record in iterate(rungs, n=run.n, dtype=run.dtype, block=BLOCK, repeat=REPEAT, context=context):
                records.add(file, record.as_dict())
                wrong += [record.rung] if record.expected_correct and not record.correct else []
                print(line_of(record), flush=True)
            print(f"  {time.perf_counter() - begin:.1f} s, {file.name}", flush=True)
    if wrong:
        print(f"WRONG: {', '.join(wrong)}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

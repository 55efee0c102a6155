"""Run suites beside every competitor, print their tables, and write the JSON after each suite.

python -m benchmarks.run --suite flat|types|axes|stats|segments|small|host|cold [--suite ...] --json FILE
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import FORMAT, OURS, SUITES, Row, geometric_mean, median_us
from benchmarks.timing import conditions, opened

__all__ = ["line_of", "main", "summary_of"]

ROUNDS, QUICK_ROUNDS = 5, 3


def line_of(row: Row) -> str:
    """Return a row as one line: our time, bandwidth, the best peer and the ratio, then the other peers."""
    ours = row["entries"].get(OURS, {})
    start = f"{row['cell'][:34]:34} "
    if "us" not in ours:
        return f"{start}FAILED {ours.get('error', '')[:110]}"
    text = f"{start}{ours['us']:10.2f} us"
    if row["gb_per_s"] is not None:
        text += f" {row['gb_per_s']:7.1f} GB/s"
    if row["best_peer"] is not None:
        text += f" x{row['ratio']:.3f} of {row['best_peer']}"
    others = [
        f"{name} {median_us(row, name):.2f}" if "us" in entry else f"{name} failed"
        for name, entry in row["entries"].items()
        if name not in (OURS, row["best_peer"])
    ]
    return f"{text} | {', '.join(others)}"[:190] if others else text


def summary_of(rows: Sequence[Row]) -> str:
    """Return how a suite went in one line: the mean ratio and every cell in which a peer is faster."""
    ratios = {row["cell"]: row["ratio"] for row in rows if row["ratio"] is not None}
    failed = [row["cell"] for row in rows if median_us(row, OURS) is None]
    behind = [f"{cell} ({ratio:.3f})" for cell, ratio in ratios.items() if ratio < 1]
    text = f"geometric mean x{geometric_mean(ratios.values()):.3f} of the best peer" if ratios else "no peer"
    text += f"; behind in {len(behind)} of {len(ratios)}: {', '.join(behind)}" if behind else "; behind in none"
    return text + (f"; FAILED: {', '.join(failed)}" if failed else "")


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; 1 if a result of ours was wrong or failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", action="append", choices=SUITES, required=True, help="may be given several times")
    parser.add_argument("--json", metavar="FILE", required=True, type=Path)
    parser.add_argument("--quick", action="store_true", help="a few cells of each suite, in seconds")
    parser.add_argument("--commit", help="for a copy of the tree without its history")
    arguments = parser.parse_args(argv)
    if not arguments.json.parent.is_dir():
        parser.error(f"there is no directory {arguments.json.parent}")
    failed = False
    with opened() as stream:
        document: dict[str, Any] = {"format": FORMAT, "conditions": conditions(stream.context.device, arguments.commit)}
        document |= {"quick": arguments.quick, "suites": {}}
        # Imported here, so that --help needs nothing.
        from benchmarks.harness import Harness  # noqa: PLC0415
        from benchmarks.suites import SUITES as RUNNERS  # noqa: PLC0415
        from benchmarks.suites import Setting  # noqa: PLC0415

        harness = Harness(stream, QUICK_ROUNDS if arguments.quick else ROUNDS)
        setting = Setting(harness, arguments.quick)
        for suite in arguments.suite:
            begin, rows = time.perf_counter(), []
            print(f"== {suite}", flush=True)
            try:
                for row in RUNNERS[suite](setting):
                    rows.append(row)
                    print(line_of(row), flush=True)
            except Exception as error:  # noqa: BLE001  the suites before it, and its rows so far, must not be lost
                print(f"== {suite} broke off: {type(error).__name__}: {error}", flush=True)
                failed = True
            failed = failed or any(median_us(row, OURS) is None for row in rows)
            cub = setting.opened("CUB")
            if cub is not None:
                document["conditions"]["cub"] = _version_of(cub)
            seconds = round(time.perf_counter() - begin, 1)
            document["suites"][suite] = {"seconds": seconds, "missing": dict(setting.missing), "rows": rows}
            arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            print(f"== {suite}: {seconds} s; {summary_of(rows)}")
            for name, why in setting.missing.items():
                print(f"   missing: {name}: {why}")
            harness.release()
    return int(failed)


def _version_of(cub: Any) -> str | None:
    try:
        return str(cub.version())
    except Exception as error:  # noqa: BLE001  nvcc's failure is said, and is no reason to lose what was measured
        return f"{type(error).__name__}: {error}"[:120]


if __name__ == "__main__":
    sys.exit(main())

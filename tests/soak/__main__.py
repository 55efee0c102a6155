"""``python -m tests.soak``: runs all fuzzers, and says what was lost. The exit code is 1 if anything was.

Each kind runs in a process of its own, several at the same time.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.fuzz.tally import Tally
from tests.fuzz.worlds import keep_kernels
from tests.reliability import write_section
from tests.soak import page
from tests.soak.kinds import KINDS, Kind

_ROOT = Path(__file__).resolve().parents[2]
_MINUTES = 20.0  # what the kinds' counts are made for
# Without a GPU: everything is tried on the simulated one. One thread for each process.
_VARIABLES = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_TIMEOUT_S = 3600.0


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    asked = _parsed(arguments)
    chosen = [kind for kind in KINDS if not asked.only or kind.name in asked.only]
    if not chosen:
        print("no such kind: --list shows all", file=sys.stderr)
        return 2
    counts = {kind.name: kind.count_of(asked.minutes / _MINUTES) for kind in chosen}
    if asked.list:
        print("\n".join(f"{kind.name}: {counts[kind.name]:,} ({kind.group})" for kind in chosen))
        return 0
    keep_kernels()
    if asked.here:
        print(json.dumps(chosen[0].run(asked.seed, counts[chosen[0].name]).record()))
        return 0
    reasons = {kind.name: why for kind in chosen if (why := kind.reason())}
    tried = [kind for kind in chosen if kind.name not in reasons]
    print(f"the soak of --seed {asked.seed}: {len(tried)} kinds, {asked.jobs} at the same time", flush=True)
    tallies = _run(tried, asked.seed, asked.minutes, asked.jobs)
    return _said(asked, chosen, tallies, reasons)


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seed", type=int, help="repeats the trials of another run; otherwise it is drawn")
    parser.add_argument(
        "--minutes", type=float, default=_MINUTES, help="about how long on two cores; by default 20, for full counts"
    )
    parser.add_argument("--only", nargs="+", metavar="KIND", help="these kinds alone")
    parser.add_argument("--list", action="store_true", help="run nothing: list the kinds and their counts")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="kinds that run at the same time")
    parser.add_argument("--json", type=Path, help="a file for the counts")
    parser.add_argument("--page", type=Path, help="the page whose section is written, docs/reliability.md")
    parser.add_argument("--commit", help="the commit that the page names, where there is no git to ask")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # one kind, in this process
    asked = parser.parse_args(arguments)
    if asked.seed is None:
        asked.seed = random.randrange(10**6)
    return asked


def _run(kinds: Sequence[Kind], seed: int, minutes: float, jobs: int) -> dict[str, Tally]:
    tallies: dict[str, Tally] = {}
    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(_in_a_process, kind, seed, minutes): kind for kind in kinds}
        for future in as_completed(futures):
            kind, tally = futures[future], future.result()
            tallies[kind.name] = tally
            print(f"{kind.name}: {tally.tried:,}, {len(tally.lost)} lost, after {tally.seconds:.0f} s", flush=True)
            for each in tally.lost[:5]:
                print(f"    {each}", flush=True)
    return tallies


def _in_a_process(kind: Kind, seed: int, minutes: float) -> Tally:
    command = [sys.executable, "-m", "tests.soak", "--here", "--seed", str(seed), "--minutes", str(minutes)]
    began, lost = time.monotonic(), Tally(kind.name, seed)
    try:
        done = subprocess.run(
            [*command, "--only", kind.name],
            cwd=_ROOT,
            env={**os.environ, **_VARIABLES},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        lost.lose(f"it has not ended after {_TIMEOUT_S:g} s")
    else:
        if not done.returncode:
            return Tally.from_record(json.loads(done.stdout.splitlines()[-1]))
        lost.lose(f"its process ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    lost.seconds = time.monotonic() - began
    return lost


def _said(asked: argparse.Namespace, chosen: Sequence[Kind], tallies: dict[str, Tally], reasons: dict[str, str]) -> int:
    for name, why in reasons.items():
        print(f"{name} were not tried: {why}")
    print(page.summary(chosen, tallies))
    if asked.json is not None:
        records = [tallies[kind.name].record() for kind in chosen if kind.name in tallies]
        asked.json.write_text(json.dumps({"seed": asked.seed, "kinds": records}, indent=1) + "\n", encoding="utf-8")
    if asked.page is not None:
        today = datetime.datetime.now(datetime.timezone.utc).date()
        where = f"(seed {asked.seed}, {today}, commit {asked.commit or _commit()})."
        write_section(asked.page, "soak", page.text(chosen, tallies, reasons, where))
    return int(any(tally.lost for tally in tallies.values()))


def _commit() -> str:
    git = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "not known"


if __name__ == "__main__":
    sys.exit(main())

"""``python -m tests.mutants``: runs the mutants of the list, and says which survive. The exit code is 1 if any does."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from tests.mutants import copies, page
from tests.mutants.catalogue import ROOT, Mutant, areas, mutants
from tests.mutants.runner import ERROR, GONE, KILLED, SURVIVED, TIMED_OUT, Verdict, run
from tests.reliability import write_section

_EVERY = 25  # verdicts after which a line says how far it is


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    asked = _parsed(arguments)
    everything = mutants()
    chosen = [each for each in everything if _is_asked(each, asked)]
    if asked.list:
        return _listed(chosen)
    if not chosen:
        print("no such mutant: --list shows all", file=sys.stderr)
        return 2
    known = _known(asked.json, everything)
    wanted = [each for each in chosen if each.id not in known]
    print(f"{len(chosen)} mutants, of which {len(chosen) - len(wanted)} are known already", flush=True)
    began = time.monotonic()

    def each(verdict: Verdict) -> None:
        known[verdict.id] = verdict
        if asked.json is not None and verdict.word != ERROR:
            digest = next(copies.digest(one) for one in wanted if one.id == verdict.id)
            with asked.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**asdict(verdict), "digest": digest}) + "\n")
        if verdict.word != KILLED:
            print(f"{verdict.word}: {verdict.id}: {verdict.how}", flush=True)
        if (number := sum(one.id in known for one in wanted)) % _EVERY == 0:
            print(f"{number} of {len(wanted)} after {time.monotonic() - began:.0f} s", flush=True)

    run(wanted, jobs=asked.jobs, timeout_s=asked.timeout_seconds, budget_s=asked.budget_seconds, each=each)
    if asked.page is not None:
        where = f"({datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}, commit {asked.commit or _commit()})."
        write_section(asked.page, "mutants", page.text(everything, areas(), known, where))
    return _summary(chosen, known)


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants that run at the same time")
    parser.add_argument("--only", nargs="+", metavar="ID", help="these mutants alone")
    parser.add_argument("--area", nargs="+", help="the mutants of these areas alone")
    parser.add_argument("--list", action="store_true", help="run nothing: list the mutants, and say which text is gone")
    parser.add_argument("--json", type=Path, help="a file to which each verdict is appended, and that is read before")
    parser.add_argument("--page", type=Path, help="the page whose section is written, docs/reliability.md")
    parser.add_argument("--commit", help="the commit that the page names, where there is no git to ask")
    parser.add_argument("--budget-seconds", type=float, help="begin no mutant after so long")
    parser.add_argument("--timeout-seconds", type=float, default=240.0, help="time limit of one mutant's tests")
    return parser.parse_args(arguments)


def _is_asked(mutant: Mutant, asked: argparse.Namespace) -> bool:
    return (not asked.only or mutant.id in asked.only) and (not asked.area or mutant.area in asked.area)


def _listed(chosen: list[Mutant]) -> int:
    gone = 0
    for mutant in chosen:
        count = mutant.places(ROOT)
        gone += count != 1
        mark = "" if count == 1 else f": {GONE.upper()}, {count} times"
        print(f"{mutant.area}/{mutant.id}{mark} in {mutant.file}: {mutant.why}")
    print(f"{len(chosen)} mutants, {gone} of which are not in the code once")
    return int(gone > 0)


def _known(path: Path | None, everything: list[Mutant]) -> dict[str, Verdict]:
    """Return the verdicts that were found out before of the same mutants, files and tests."""
    found: dict[str, Verdict] = {}
    if path is None or not path.exists():
        return found
    digests = {each.id: copies.digest(each) for each in everything}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if digests.get(record["id"]) == record.pop("digest"):
            found[record["id"]] = Verdict(**record)
    return found


def _commit() -> str:
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "not known"


def _summary(chosen: list[Mutant], known: dict[str, Verdict]) -> int:
    words = {each.id: known[each.id].word if each.id in known else "not run" for each in chosen}
    reasons = {each.id: known[each.id].how for each in chosen if each.id in known}
    compiled = [name for name, how in reasons.items() if "CompileError" in how and "DID NOT RAISE" not in how]
    if compiled:
        print(f"killed by the compiler, and so no mutants worth having: {', '.join(compiled)}")
    left = [each for each in chosen if words[each.id] in (SURVIVED, GONE, ERROR)]
    for mutant in left:
        print(f"{words[mutant.id]}: {mutant.id} in {mutant.file}: {mutant.why}: {known[mutant.id].how}")
        print("\n".join(f"    {test}" for test in mutant.tests))
    count = Counter(words.values())
    killed = count[KILLED] + count[TIMED_OUT]
    others = ", ".join(f"{count[word]} {word}" for word in (TIMED_OUT, SURVIVED, GONE, ERROR, "not run") if count[word])
    print(f"{killed} of {len(chosen)} mutants are killed{f' ({others})' if others else ''}")
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())

"""Count the whole ladder on a simulated H200 and write ladder_counters.json beside this, or check that it is current.

python -m benchmarks.profile.ladder_counters [--check]

For each rung the file holds a digest of the code that was counted (without comments) and of its launches. So the check
finds a changed kernel, whose counters are stale, without a compiler or a simulator.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure.figures import FileError, digest
from lowlevel_reduce.compiler.sources import source_tree
from lowlevel_reduce.ladder.program import stub
from lowlevel_reduce.ladder.registry import RUNGS, Rung, as_switched

__all__ = ["BLOCK", "COUNTERS", "N", "digests", "main", "stale"]

COUNTERS = Path(__file__).resolve().parent / "ladder_counters.json"
N = (1 << 16) + 3
BLOCK = 256

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def digests() -> dict[str, str]:
    """Return a digest of the code and the launches of each rung."""
    return {rung.id: _digest(as_switched(rung)) for rung in RUNGS.values()}


def _digest(rung: Rung) -> str:
    text = stub(rung, rung.dtypes[0], rung.block or BLOCK)
    files = source_tree().closure(rung.id, text).files
    code = {name: _COMMENT.sub(" ", content).split() for name, content in files.items()}
    return digest([text, code, list(rung.entries), repr(rung.plan)])


def stale(document: Mapping[str, Any]) -> list[str]:
    """Return the rungs whose code is not the one that was counted, and those that only one of code and file has."""
    now, then = digests(), dict(document["digests"])
    return [name for name in sorted({*now, *then}) if now.get(name) != then.get(name)]


def _counted() -> dict[str, Any]:
    # Imported here, so that a check needs no driver layer.
    from lowlevel_reduce import simulator  # noqa: PLC0415
    from lowlevel_reduce.compiler import nvrtc  # noqa: PLC0415
    from lowlevel_reduce.driver import Context  # noqa: PLC0415
    from lowlevel_reduce.ladder import run  # noqa: PLC0415

    with simulator.use("H200"), Context.primary() as context:
        records = run(list(RUNGS.values()), n=N, block=BLOCK, context=context)
    return {
        "n": N,
        "nvrtc": ".".join(map(str, nvrtc.version())),
        "digests": digests(),
        "records": [record.as_dict() for record in records],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Count, or check; return 1 if the file is stale, 2 if it is malformed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="count nothing; fail if a rung has changed")
    parser.add_argument("--file", type=Path, default=COUNTERS)
    arguments = parser.parse_args(argv)
    if not arguments.check:
        arguments.file.write_text(json.dumps(_counted(), indent=1) + "\n", encoding="utf-8")
        return 0
    try:
        changed = stale(_read(arguments.file))
    except FileError as error:
        print(f"benchmarks.profile.ladder_counters: {error}", file=sys.stderr)
        return 2
    if changed:
        command = "python -m benchmarks.profile.ladder_counters"
        print(f"{arguments.file.name} is stale: {', '.join(changed)} changed; run {command}", file=sys.stderr)
    return int(bool(changed))


def _read(file: Path) -> Mapping[str, Any]:
    try:
        document: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        dict(document["digests"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(f"{file.name} holds no counters of the ladder: {error!r}") from error
    return document


if __name__ == "__main__":
    sys.exit(main())

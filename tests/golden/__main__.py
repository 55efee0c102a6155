"""``python -m tests.golden``: adds cases that are missing to the file, by the tree. The exit code is 1 if one differs.

A recorded hash is never replaced under the same tree version: what gives another result is an error, or a change that
needs a new `lowlevel_reduce.__tree_version__`, under which all hashes are recorded anew.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import lowlevel_reduce as lr
from tests.golden.cases import FILE, by_tree, hashed, read, write
from tests.golden.draw import additional


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare what is recorded, and write nothing")
    asked = parser.parse_args(arguments)
    version, known = read() if FILE.exists() else (lr.__tree_version__, {})
    renewed = version != lr.__tree_version__
    recorded = dict(known)
    for name, (case, before) in known.items():
        now = hashed(by_tree(case))
        if now != before and not renewed:
            print(f"{name}: {now} instead of {before}, with the same tree version {version}", file=sys.stderr)
            return 1
        recorded[name] = case, now
    if asked.check:
        print(f"{len(known)} cases have their hashes of tree version {version}")
        return 0
    new = additional(case for case, _ in known.values())
    recorded.update({case.name: (case, hashed(by_tree(case))) for case in new})
    write(lr.__tree_version__, recorded)
    print(f"{len(recorded)} cases, {len(new)} of them new, {FILE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Count the driver calls behind every form of a call, in a process of its own in which each goes through a counter.

python -m benchmarks.profile.driver_calls

It prints a JSON object: by the name of each form, its driver calls by their names, when it was called before already.
"""

from __future__ import annotations

import functools
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.measure.timing import opened
from benchmarks.suites.forms import FORMS, Arrays, Form, installed
from lowlevel_reduce.driver import binding

__all__ = ["WARM", "counted", "counts", "main"]

WARM = 4
"""How often a form is called before its calls are counted: by then all that it keeps is there."""

_NAME = "counted"


class Counting:
    """A driver's functions, each of which is counted when it is called. The driver layer then uses no addresses."""

    def __init__(self, offers: Any) -> None:
        self._offers = offers
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._offers, name)
        if not name.startswith("cu") or not callable(found):
            return found

        @functools.wraps(found)
        def call(*arguments: Any) -> Any:
            self.calls[name] += 1
            return found(*arguments)

        setattr(self, name, call)
        return call


@contextmanager
def counted(offers: Any) -> Iterator[Counter[str]]:
    """Send the calls of the whole process to a driver's functions inside the block; yields how many went to each."""
    counting = Counting(offers)
    binding.register(_NAME, lambda: counting)
    with binding.use(_NAME):
        yield counting.calls


def counts(arrays: Arrays, forms: Iterable[Form], calls: Counter[str]) -> dict[str, dict[str, float]]:
    """Return the driver calls behind one call of each form, by name; a form that raises is left out."""
    found = {}
    for form in forms:
        try:
            for _ in range(WARM):
                form.ours(arrays)
            arrays.stream.context.synchronize()
            before = Counter(calls)
            form.ours(arrays)
        except Exception as error:  # noqa: BLE001  the others are to be counted
            print(f"{form.name}: {type(error).__name__}: {error}"[:200], file=sys.stderr)
            continue
        made = calls - before
        found[form.name] = {name: round(many / form.calls, 3) for name, many in made.items()}
    return found


def main() -> int:
    """Print the counts."""
    libraries, missing = installed()
    for name, why in missing.items():
        print(f"{name} is missing: {why}", file=sys.stderr)
    with counted(binding.native()) as calls, opened() as stream:
        arrays = Arrays(stream, libraries)
        forms = [form for form in FORMS if form.needs is None or form.needs in libraries]
        print(json.dumps(counts(arrays, forms, calls)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

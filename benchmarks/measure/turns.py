"""Contenders take turns: each round begins with another one, and one that raises does not stop the others. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

__all__ = ["in_turn", "telling"]

Entries = dict[str, dict[str, Any]]


@contextmanager
def telling(name: str, failed: Entries) -> Iterator[None]:
    """Record an exception that a contender raises in this block as its entry in `failed`."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  a competitor may raise anything, and the others must still be measured
        failed[name] = {"error": f"{type(error).__name__}: {error}"[:200]}


def in_turn(
    takers: Mapping[str, Callable[[], float]], rounds: int, failed: Entries, *, once: Collection[str] = ()
) -> dict[str, list[float]]:
    """Return the samples of each contender, taken in turn, so that a drift affects all of them alike.

    Each round begins with another contender, so that the state of caches and clocks that each one finds varies.

    Parameters
    ----------
    takers : mapping
        For each contender by name, a function that takes one sample.
    rounds : int
        How many samples each gets.
    failed : dict
        The errors of those that have failed already, which are skipped; who raises now is added.
    once : collection of str
        Those that are sampled in the first round only.
    """
    names = [name for name in takers if name not in failed]
    samples: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % max(len(names), 1)
        for name in names[first:] + names[:first]:
            if name not in failed and (number == 0 or name not in once):
                with telling(name, failed):
                    samples[name].append(takers[name]())
    return {name: taken for name, taken in samples.items() if name not in failed}

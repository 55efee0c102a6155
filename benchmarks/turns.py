"""Contenders that take turns: each round another one begins, and one that raises leaves the others theirs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

__all__ = ["in_turn", "telling"]

Entries = dict[str, dict[str, Any]]


@contextmanager
def telling(name: str, failed: Entries) -> Iterator[None]:
    """Make what a contender raises in this block its entry of `failed`."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  a competitor may raise anything, and the others shall be measured
        failed[name] = {"error": f"{type(error).__name__}: {error}"[:200]}


def in_turn(
    takers: Mapping[str, Callable[[], float]], rounds: int, failed: Entries, *, once: Collection[str] = ()
) -> dict[str, list[float]]:
    """Return the samples of each contender, so that what drifts drifts for all.

    Each round begins with another one: who follows whom, and so what the caches and the clocks were left in, changes.

    Parameters
    ----------
    takers : mapping
        What takes one sample of a contender, by its name.
    rounds : int
        How often each has its turn.
    failed : dict
        The entries of those that have failed already and are passed over; who raises now gets one.
    once : collection of str
        Those who have a turn in the first round alone.
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

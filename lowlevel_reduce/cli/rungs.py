"""Selects the rungs that the command line names, and runs them with a progress bar."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from lowlevel_reduce.cli.output import progress
from lowlevel_reduce.cli.session import Session
from lowlevel_reduce.ladder import RUNGS, Record, Rung, iterate

__all__ = ["DEFAULT_N", "DEFAULT_SYSTEM", "SIMULATED_N", "Options", "Result", "by_system", "climb", "select"]

DEFAULT_SYSTEM = "A"
DEFAULT_N = 100_000_000
SIMULATED_N = 2**16 + 3
"""Default number of elements on a simulated device, which needs seconds for what a GPU does in microseconds."""


@dataclass(frozen=True)
class Options:
    """The options of a ladder run: elements, element type, threads of a block, and launches to time."""

    n: int
    dtype: str
    block: int
    repeat: int


@dataclass(frozen=True)
class Result:
    """A rung and the record of its run."""

    rung: Rung
    record: Record

    @property
    def as_expected(self) -> bool:
        """Whether the result is right or, for a rung that is wrong on purpose, wrong."""
        return bool(self.record.correct == self.record.expected_correct)


def select(system: str | None, names: Iterable[str], rungs: dict[str, Rung] | None = None) -> tuple[Rung, ...]:
    """Return the rungs that the command line names, in the ladder's order.

    Parameters
    ----------
    system : str, optional
        A system's letter, or ``"all"``. Without it and without names, system A.
    names : iterable of str
        Ids of rungs; one text may have several, separated by commas. If empty, every rung of the system.
    rungs : dict, optional
        The registry of rungs; by default the package's.

    Raises
    ------
    ValueError
        If there is no such system or rung; the message lists those that exist.
    """
    known = RUNGS if rungs is None else rungs
    wanted = [name.strip() for text in names for name in text.split(",") if name.strip()]
    system = system or ("all" if wanted else DEFAULT_SYSTEM)
    systems = list(dict.fromkeys(rung.system for rung in known.values()))
    if system.upper() not in (*systems, "ALL"):
        raise ValueError(f"no system {system!r}; there are {', '.join(systems)}, and all")
    there = {key: rung for key, rung in known.items() if system.upper() in (rung.system, "ALL")}
    unknown = [name for name in wanted if name not in there]
    if unknown:
        where = "" if system.lower() == "all" else f" in system {system.upper()}"
        raise ValueError(f"no rung {', '.join(map(repr, unknown))}{where}; there are {', '.join(there)}")
    return tuple(rung for key, rung in there.items() if not wanted or key in wanted)


def climb(rungs: Sequence[Rung], options: Options, session: Session, *, title: str = "ladder") -> list[Result]:
    """Run the rungs one after the other, with a progress bar on stderr that names the one that is running."""
    results: list[Result] = []
    with progress(counted=True) as bar:
        task = bar.add_task(f"{title} {rungs[0].id}", total=len(rungs))
        records = iterate(
            rungs,
            n=options.n,
            dtype=options.dtype,
            block=options.block,
            repeat=options.repeat,
            context=session.context,
        )
        by_id = {rung.id: rung for rung in rungs}
        for record in records:
            results.append(Result(by_id[record.rung], record))
            following = rungs[len(results)].id if len(results) < len(rungs) else ""
            bar.update(task, completed=len(results), description=f"{title} {following}")
    return results


def by_system(results: Sequence[Result]) -> list[tuple[str, list[Result]]]:
    """Return the results of each system together, in the ladder's order."""
    return [(system, list(group)) for system, group in groupby(results, key=lambda result: result.rung.system)]

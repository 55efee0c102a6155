"""What each rank does: its part of each array on its own simulated GPU, the partials to all, the fold on every rank.

Run as ``mpiexec -n 4 python -m mpi4py ranks.py DIRECTORY``: each rank writes what it found to a file of its own there.
With ``--failing RANK``, that rank is given what it refuses, and the others wait for its partials.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import lowlevel_reduce as lr
from lowlevel_reduce import simulator

GPUS = ("H200", "A100", "RTX 4090", "B200")
"""The GPU of each rank: bits do not depend on it."""
RANKS = len(GPUS)
LEAF = 1024
"""Elements of a leaf of float32, of which all arrays here are."""


class Case(NamedTuple):
    """A reduction of an array in parts, one for each rank; see `parts_of` for the chunk and the lengths."""

    op: str
    length: int
    chunk: int | None = None
    lengths: tuple[int, ...] | None = None
    options: dict[str, Any] = {}  # noqa: RUF012 - never written

    @property
    def name(self) -> str:
        """What tells the case from others."""
        cut = "" if self.lengths is None else f" as {'+'.join(map(str, self.lengths))}"
        options = "".join(f" {name}={value}" for name, value in self.options.items())
        return f"{self.op} of {self.length} in chunks of {self.chunk}{cut}{options}"


CASES = [
    Case("sum", 0),
    Case("sum", 1),
    Case("sum", LEAF),
    Case("sum", 3 * LEAF),
    Case("sum", 9 * LEAF + 77),
    Case("sum", 9 * LEAF + 77, chunk=4 * LEAF),
    Case("sum", 9 * LEAF + 77, lengths=(LEAF, 0, 8 * LEAF, 77)),
    Case("sum", 9 * LEAF + 77, lengths=(0, 0, 0, 9 * LEAF + 77)),
    Case("sum", 5 * LEAF + 3, options={"accumulate": "compensated"}),
    Case("max", 5 * LEAF + 3),
    Case("max", 5 * LEAF + 3, options={"nan": "ignore"}),
    Case("argmax", 9 * LEAF + 77),
    Case("argmax", 9 * LEAF + 77, chunk=2 * LEAF, options={"last": True}),
    Case("mean", 6 * LEAF - 1),
    Case("mean_var", 6 * LEAF - 1),
    Case("logsumexp", 6 * LEAF - 1, chunk=2 * LEAF),
]


WITHOUT_CUTS = [case for case in CASES if case.lengths is None]


def values_of(case: Case) -> np.ndarray[Any, Any]:
    """Return the whole array: with equal extremes, NaN where it is ignored, and sums that are nothing but rounding.

    Those have other bits in almost any other order: half of the elements cancel the other half, and they are of too
    many magnitudes for float64 to add them exactly.
    """
    rng = np.random.default_rng(case.length)
    if case.op == "argmax":
        return rng.integers(0, 50, case.length).astype(np.float32)
    x = (rng.standard_normal(case.length) * 3).astype(np.float32)
    if case.op in ("sum", "mean"):
        half = case.length // 2
        x *= (10.0 ** rng.integers(-5, 6, case.length)).astype(np.float32)
        x[half : 2 * half] = -rng.permutation(x[:half])
        x[2 * half :] = 0
    if case.options.get("nan") == "ignore":
        x[::3] = np.nan
    return x


def parts_of(case: Case) -> tuple[int, list[int]]:
    """Return the chunk and the length of each rank's part: by default those of the package."""
    chunk = case.chunk or lr.chunk_elements(case.length, "float32")
    return chunk, list(case.lengths or lr.shard_lengths(case.length, "float32", RANKS, chunk=chunk))


def gathered_by_bytes(comm: Any, made: np.ndarray[Any, Any], counts: list[int]) -> np.ndarray[Any, Any]:
    """Gather partials, of which every rank knows how many each has, without a copy as Python's objects."""
    result = np.empty((sum(counts), made.shape[1]), made.dtype)
    sizes = [count * made.shape[1] * made.itemsize for count in counts]
    comm.Allgatherv(made.view(np.uint8), [result.view(np.uint8), sizes])
    return result


def gathered_by_objects(comm: Any, made: np.ndarray[Any, Any], counts: list[int]) -> np.ndarray[Any, Any]:
    """Gather partials as Python's objects."""
    return np.concatenate(comm.allgather(made))


Gather = Callable[[Any, np.ndarray[Any, Any], list[int]], np.ndarray[Any, Any]]


def reduced(comm: Any, case: Case, gather: Gather, stream: lr.Stream) -> Any:
    """Reduce the array of a case, of which this rank reads its own part alone."""
    chunk, lengths = parts_of(case)
    borders = [0, *itertools.accumulate(lengths)]
    part = values_of(case)[borders[comm.rank] : borders[comm.rank + 1]]
    shared: dict[str, Any] = {"stream": stream, **case.options}
    if case.op == "mean_var":  # about the array's first element, which the first rank that has any knows
        owner = next(rank for rank, length in enumerate(lengths) if length)
        shared["first"] = comm.bcast(part[:1], root=owner)
    made = lr.partials(part, case.op, chunk=chunk, **shared).numpy()
    counts = [-(-length // chunk) for length in lengths]
    return lr.combine_partials(
        gather(comm, made, counts), case.op, length=case.length, chunk=chunk, dtype="float32", **shared
    )


def in_one_call(comm: Any, case: Case, stream: lr.Stream, *, is_told: bool) -> Any:
    """Reduce the array of a case with `lr.distributed`, whose cut is that of the package."""
    _, lengths = parts_of(case)
    borders = [0, *itertools.accumulate(lengths)]
    part = values_of(case)[borders[comm.rank] : borders[comm.rank + 1]]
    length = case.length if is_told else None
    return lr.distributed.reduce(part, case.op, comm, length=length, chunk=case.chunk, stream=stream, **case.options)


def text_of(results: Any) -> str:
    """Return the bits of the result or results as text."""
    return " ".join(
        np.asarray(each).tobytes().hex() for each in (results if isinstance(results, tuple) else (results,))
    )


def refused(comm: Any, stream: lr.Stream) -> str:
    """Return the words for partials of which those of one rank are of another chunk."""
    chunk = LEAF if comm.rank == 1 else 2 * LEAF
    made = lr.partials(np.ones(4 * LEAF, np.float32), chunk=chunk, stream=stream).numpy()
    try:
        lr.combine_partials(
            np.concatenate(comm.allgather(made)), length=16 * LEAF, chunk=2 * LEAF, dtype="float32", stream=stream
        )
    except ValueError as error:
        return str(error)
    return "not refused"


def main() -> None:
    """Reduce all cases, and leave the results."""
    from mpi4py import MPI  # which starts MPI: the tests import this module, too

    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--failing", type=int)
    arguments = parser.parse_args()
    comm = MPI.COMM_WORLD
    with simulator.use(GPUS[comm.rank]), lr.Context.primary() as context, context.pushed():
        with lr.Stream.create(context) as stream:
            if arguments.failing is not None:
                chunk = LEAF - 1 if comm.rank == arguments.failing else LEAF
                comm.allgather(lr.partials(np.ones(LEAF, np.float32), chunk=chunk, stream=stream).numpy())
            found = {
                f"{gather.__name__}: {case.name}": text_of(reduced(comm, case, gather, stream))
                for case in CASES
                for gather in (gathered_by_bytes, gathered_by_objects)
            }
            for case, is_told in itertools.product(WITHOUT_CUTS, (False, True)):
                found[f"distributed, {is_told}: {case.name}"] = text_of(
                    in_one_call(comm, case, stream, is_told=is_told)
                )
            found["refused"] = refused(comm, stream)
    (arguments.directory / f"{comm.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()

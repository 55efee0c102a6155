"""Leaves of strided rows whose neighbours in memory are far from each other: how blocks bring them to shared memory."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from lowlevel_reduce.dtypes import LEAF_BYTES
from lowlevel_reduce.strategy.base import RowStrategy, Task
from lowlevel_reduce.strategy.whole import folding_blocks

__all__ = ["Staged", "described", "staged_leaves", "staged_rows"]

_MOST_BESIDE = 16
"""Runs that a block takes side by side: `most_staged` in cuda_src/rows/staged_leaves.cuh."""

_LEAST_BESIDE, _LEAST_LEAVES = 8, 4
"""So many runs lie side by side, and have so many leaves each, or it is not worth it."""

_LEAST_BYTES, _MOST_BYTES = 2, 8
"""Of an element, and of an accumulator: else a thread lacks registers, and the kernel has no code for it."""

_MAJOR = 9
"""Of the compute capability: elsewhere the kernel would spill, or hold half as many blocks for other rows, too."""

_MOST_LEAVES = 4096
_MOST_RUNS = 1 << 31
_MOST_STRIDE = 1 << 22
"""Bytes from an element to the next of a run: those of a chunk are less than 2^31 from each other."""

_START, _LEAF, _ELEMENT = 8.0, 1.3, 3.6e-3
"""Microseconds of a launch, and what a block takes for a leaf of each of its runs and for each of the leaf's elements:
fitted to two shapes of float32 and two of bfloat16 on an H200 (benchmarks/NOTES.md, "Transposed arrays")."""

_GATHERED, _SURE = 1.1e3, 0.8
"""Elements that a multiprocessor loads one by one in a microsecond; and of their time staging must take no more."""


class Staged(NamedTuple):
    """How rows are cut: `StagedCut` in cuda_src. Runs are elements along the innermost axis."""

    blocks: int
    leaves: int
    beside: int
    warps: int

    @property
    def word(self) -> int:
        """The field `run` of the kernel's argument."""
        return self.blocks | self.leaves << 32 | self.beside << 48


@lru_cache(maxsize=256)
def staged_leaves(of: Task) -> Staged | None:
    """Return how rows are cut whose leaves are staged, or None if that does not go or takes more time, by the model."""
    problem, itemsize = of.problem, of.itemsize
    reduced = problem.reduced
    if (
        problem.kind != "strided"
        or not problem.rows
        or of.two_arrays
        or len(reduced) < 2
        or reduced[0].stride == itemsize
    ):
        return None
    if of.facts.compute_capability[0] != _MAJOR:
        return None
    if itemsize < _LEAST_BYTES or of.accumulator_bytes > _MOST_BYTES:
        return None
    beside = next((axis.size for axis in reduced[1:] if axis.stride == itemsize), 0)
    leaf, length = LEAF_BYTES // itemsize, reduced[0].size
    runs = problem.length // length * problem.rows
    if beside < _LEAST_BESIDE or length < _LEAST_LEAVES * leaf or runs >= _MOST_RUNS:
        return None
    if not 0 < abs(reduced[0].stride) < _MOST_STRIDE:
        return None
    warps, resident = _block(of)
    teams = -(-beside // warps)
    units, leaves = runs // beside * teams, -(-length // leaf)
    places = resident * of.facts.multiprocessors
    best = min(_cuts(leaves), key=lambda each: _turns(units * -(-leaves // each), places) * (each + 1))
    blocks = units * -(-leaves // best)
    time = _START + (_LEAF + _ELEMENT * leaf) * _turns(blocks, places) * (best + 1)
    gathered = problem.rows * problem.length / of.facts.multiprocessors / _GATHERED
    return Staged(blocks, best, -(-beside // teams), warps) if time < _SURE * gathered else None


def staged_rows(of: Task) -> RowStrategy | None:
    """Return tiles of a leaf each, whose partials blocks publish that stage them, or None as `staged_leaves` does."""
    cut = staged_leaves(of)
    if cut is None:
        return None
    problem = of.problem
    leaves = -(-problem.length * of.itemsize // LEAF_BYTES)
    folders = problem.rows * folding_blocks(leaves, cut.warps)
    return RowStrategy(
        "batch",
        cut.blocks + folders,
        parts=leaves,
        folders=folders,
        warps_of_a_row=cut.warps,
        in_one_turn=True,
        contiguous=False,
        warps=cut.warps,
        staged=cut.word,
    )


def described(word: int) -> str:
    """Return in words how rows are cut; `word` is `Staged.word`."""
    blocks, leaves, beside = word & 0xFFFFFFFF, word >> 32 & 0xFFFF, word >> 48
    return f"{blocks} blocks stage {leaves} leaves of each of {beside} runs side by side"


def _cuts(leaves: int) -> set[int]:
    """Return leaves of a run that a block may have: those that divide it into equal windows, nearly."""
    return {
        -(-leaves // windows) for windows in range(1, min(leaves, 1024) + 1) if -(-leaves // windows) <= _MOST_LEAVES
    }


def _turns(blocks: int, places: int) -> int:
    return -(-blocks // places)


def _block(of: Task) -> tuple[int, int]:
    """Return the warps of a block, and how many blocks a multiprocessor holds: `bounds_of_rows` in row_bounds.py."""
    return _MOST_BESIDE, 2 if of.narrow else 1

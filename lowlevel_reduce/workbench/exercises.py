"""The exercises: what each asks, how its kernel is launched, which answer is right, and what a solution must keep to.

The text of an exercise, with its question and its possible answers, is its starting file, in ``cuda_src/exercises``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from lowlevel_reduce.compiler import source_root
from lowlevel_reduce.errors import ReduceError
from lowlevel_reduce.workbench.launching import LaunchOptions

__all__ = ["EXERCISES", "Exercise", "N", "exercise"]

N = 2051
"""Elements of every exercise: 17 blocks of 128, the last with 3 elements, and a rest that four does not divide."""

_BLOCK = 128


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """One exercise.

    Attributes
    ----------
    number : int
        Its number, from 1.
    file : str
        Its starting file in ``cuda_src/exercises``, and the name of the learner's copy.
    title : str
        What it is about.
    systems : str
        The ladders whose lesson it is, "A" to "E".
    answer, because : str
        The letter of the right answer, and the reason.
    fails : str
        What the starting file does wrong: the kind of a finding, or the name of a limit.
    limits : Mapping
        The most that a solution may count, by counter; "launches" and "shared_bytes" beside those of the simulator.
    without : tuple of str
        PTX opcodes that a solution may not have.
    options : LaunchOptions
        How it is launched.
    """

    number: int
    file: str
    title: str
    systems: str
    answer: str
    because: str
    fails: str
    limits: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    without: tuple[str, ...] = ()
    options: LaunchOptions = field(default_factory=lambda: LaunchOptions(block=_BLOCK))

    @property
    def entry(self) -> str:
        """The kernel's name."""
        return {"sum": "sum", "max": "largest"}[self.options.operation]

    @property
    def start(self) -> Path:
        """The starting file."""
        return source_root() / "exercises" / self.file


def exercise(number: int) -> Exercise:
    """Return the exercise of that number.

    Raises
    ------
    ReduceError
        If there is none.
    """
    for each in EXERCISES:
        if each.number == number:
            return each
    raise ReduceError(f"no exercise {number}; there are 1 to {len(EXERCISES)}")


def _limits(**most: int) -> Mapping[str, int]:
    return MappingProxyType(most)


def _launched(**options: int | str) -> LaunchOptions:
    return LaunchOptions(block=_BLOCK, **options)  # type: ignore[arg-type]


def _all() -> tuple[Exercise, ...]:
    return (
        Exercise(number=1, file="01_race.cu", title="make this race go away", systems="E", answer="c", fails="race",
                 because="each thread reads, adds and writes; what was written in between is lost, more or less of it "
                 "depending on the schedule"),
        Exercise(number=2, file="02_fewer_atomics.cu", title="one atomic a warp", systems="ABE", answer="b",
                 fails="atomics", limits=_limits(atomics=68),
                 because="all lanes have one address, so each but the first waits for another one"),
        Exercise(number=3, file="03_missing_barrier.cu", title="the barrier that is missing", systems="ABCE",
                 answer="b", fails="race",
                 because="with 64 threads the first addition reads what was stored before the first barrier, and the "
                 "rest stays in one warp; a third warp's result is read while that warp may still be adding"),
        Exercise(number=4, file="04_divergence.cu", title="whole warps at work", systems="AC", answer="a",
                 fails="divergent_branches", limits=_limits(divergent_branches=140),
                 because="every warp has 16 lanes that add and 16 that wait"),
        Exercise(number=5, file="05_modulo.cu", title="a modulo that is none", systems="C", answer="c", fails="rem",
                 without=("rem", "div"),
                 because="there is no integer division in hardware; & (2 * k - 1) is one instruction"),
        Exercise(number=6, file="06_bank_conflicts.cu", title="out of one bank", systems="CE", answer="b",
                 fails="bank_conflicts", limits=_limits(bank_conflicts=0, divergent_branches=140),
                 because="word 2 t is in bank 2 t modulo 32, which threads t and t + 16 have in common"),
        Exercise(number=7, file="07_first_addition.cu", title="no thread only loads", systems="ABC", answer="a",
                 fails="wrong sum", options=_launched(per_thread=2),
                 because="a block reads the first 128 of its 256 elements"),
        Exercise(number=8, file="08_tail.cu", title="the last elements", systems="A", answer="c", fails="wrong sum",
                 limits=_limits(global_loads=24), options=_launched(per_thread=4),
                 because="2,051 is 3 more than a multiple of 4, and nobody reads a vector that is not whole"),
        Exercise(number=9, file="09_shuffles.cu", title="one barrier", systems="ABCE", answer="b", fails="barriers",
                 limits=_limits(barriers=17 * 4, shared_requests=17 * 5),
                 because="the sums of the warps must be in shared memory before the first warp reads them"),
        Exercise(number=10, file="10_mask.cu", title="who takes part in a shuffle", systems="E", answer="b",
                 fails="shuffle",
                 because="all lanes of the mask must come to it; a lane that comes and reads beyond the warp gets its "
                 "own value, one that does not come leaves the others without an answer"),
        Exercise(number=11, file="11_padding.cu", title="a column across the banks", systems="E", answer="c",
                 fails="bank_conflicts", limits=_limits(bank_conflicts=0), options=LaunchOptions(block=1024),
                 because="elements of a column lie 32 words apart, all in one bank"),
        Exercise(number=12, file="12_swizzle.cu", title="the same without padding", systems="E", answer="a",
                 fails="shared_bytes", limits=_limits(bank_conflicts=0, shared_bytes=4096),
                 options=LaunchOptions(block=1024),
                 because="for a given row, column ^ row takes each value once as the column runs, and for a given "
                 "column as the row runs; column + row leaves the row"),
        Exercise(number=13, file="13_one_launch.cu", title="no partials", systems="AE", answer="a", fails="launches",
                 limits=_limits(launches=1, atomics=17),
                 because="one a block; 17 additions to one address are nothing beside a launch"),
        Exercise(number=14, file="14_grid_stride.cu", title="a grid of any size", systems="ACE", answer="a",
                 fails="wrong sum", limits=_limits(global_load_sectors=264), options=_launched(grid=4),
                 because="so no element is left out, and at each step neighbouring lanes read neighbouring elements"),
        Exercise(number=15, file="15_uninitialised.cu", title="what nobody wrote", systems="AE", answer="b",
                 fails="uninitialised read",
                 because="shared memory is not cleared between blocks, so that the sum is often right by chance"),
        Exercise(number=16, file="16_coalescing.cu", title="neighbours read neighbours", systems="ADE", answer="c",
                 fails="global_load_sectors", limits=_limits(global_load_sectors=264),
                 options=_launched(per_thread=4),
                 because="32 lanes, 16 bytes apart, reach over 512 bytes, and that for each of the four loads"),
        Exercise(number=17, file="17_last_block.cu", title="the last block adds up", systems="AE", answer="a",
                 fails="race", limits=_limits(launches=1),
                 because="a relaxed atomic orders nothing; a fence between store and count does, with one behind the "
                 "count on the other side"),
        Exercise(number=18, file="18_cluster.cu", title="a cluster reduction without atomics", systems="A", answer="c",
                 fails="atomics", limits=_limits(atomics=0, launches=1), options=_launched(grid=8, cluster=8),
                 because="the shared memory of a cluster's blocks is one distributed memory, if all of them have "
                 "started and none has ended"),
        Exercise(number=19, file="19_cluster_end.cu", title="who may leave a cluster", systems="A", answer="b",
                 fails="shared memory of a block that exited", limits=_limits(atomics=0, launches=1),
                 options=_launched(grid=8, cluster=8),
                 because="shared memory lives as long as its block: a second barrier keeps all until the last read"),
        Exercise(number=20, file="20_wide_loads.cu", title="a quarter of what", systems="A", answer="b",
                 fails="global_loads", limits=_limits(global_loads=24, global_load_sectors=264),
                 options=_launched(per_thread=4),
                 because="the bytes are the same, and so are the sectors; one request now has 16 of them, where four "
                 "had 4 each"),
        Exercise(number=21, file="21_largest.cu", title="the largest element", systems="AB", answer="c",
                 fails="wrong maximum", limits=_limits(atomics=17), options=_launched(operation="max"),
                 because="most threads come late, read a number that is greater than theirs and write nothing, and "
                 "reads of one address need not wait for each other"),
    )  # fmt: skip


EXERCISES: tuple[Exercise, ...] = _all()
"""All exercises, in the order in which to do them."""

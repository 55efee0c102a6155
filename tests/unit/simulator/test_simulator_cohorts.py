"""The random order of warps: cohorts that come apart in every way, and shuffles of warps that are not in a row."""

import itertools

import numpy as np
import pytest

from lowlevel_reduce.simulator.machine.control.cohorts import PICKS_OF_A_DRAW, Cohorts
from lowlevel_reduce.simulator.machine.control.special import WARP
from lowlevel_reduce.simulator.machine.control.warps import is_whole

WARPS = 6
ALL = np.arange(WARPS * WARP)


def picks(seed, ready=ALL, count=40 * PICKS_OF_A_DRAW):
    cohorts = Cohorts(np.random.default_rng(seed), WARPS)
    return [cohorts.pick(ready) for _ in range(count)]


def test_every_warp_runs_without_every_other_and_the_other_without_it():
    seen = {tuple(np.unique(threads // WARP).tolist()) for threads in picks(1)}
    for first, second in itertools.permutations(range(WARPS), 2):
        assert any(first in warps and second not in warps for warps in seen), (first, second)
    assert {1, WARPS - 1} <= {len(warps) for warps in seen}, "one alone, and all but one"


def test_a_warp_is_alone_wherever_it_is():
    """Not at an end alone, as where cohorts are warps that follow each other."""
    alone = {int(threads[0]) // WARP for threads in picks(1, count=400 * PICKS_OF_A_DRAW) if threads.size == WARP}
    assert alone == set(range(WARPS))


def test_the_threads_of_a_warp_stay_together_and_in_order():
    ready = np.delete(ALL, [3, 40, 41, 100])
    for threads in picks(2, ready, 200):
        assert np.array_equal(threads, ready[np.isin(ready // WARP, threads // WARP)])


def test_either_cohort_is_ahead_for_a_while():
    """The same warps run several times in turn, so that they are far ahead of the others, and then these."""
    first, second = sorted({tuple(np.unique(threads // WARP).tolist()) for threads in picks(3, count=PICKS_OF_A_DRAW)})
    assert sorted(first + second) == list(range(WARPS))


def test_somebody_always_runs():
    alone = ALL[WARP : 2 * WARP]
    assert all(np.array_equal(threads, alone) for threads in picks(4, alone, 300))


def test_a_seed_repeats_the_order():
    assert all(map(np.array_equal, picks(5), picks(5)))
    assert not all(map(np.array_equal, picks(5), picks(6)))


@pytest.mark.parametrize(
    ("threads", "whole"),
    [
        (slice(32, 96), True),
        (slice(16, 48), False),
        (np.r_[0:32, 64:96], True),
        (np.r_[0:16, 48:64], False),  # as many threads as a warp has
        (np.r_[0:31, 64:95], False),
        (np.r_[16:48], False),
    ],
)
def test_whole_warps_are_told_from_as_many_threads(threads, whole):
    assert is_whole(threads) == whole

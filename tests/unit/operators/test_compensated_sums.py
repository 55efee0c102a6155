"""Compensated float64 sums of the tree against exact ones, up to a condition number of 1e13."""

import numpy as np
import pytest
from ill_conditioned import cancelling, condition_of, ulps

from lowlevel_reduce import tree

LENGTHS = [5, 33, 257, 1000, 5003, 20_011, 70_001]
SEEDS = range(8)


# Each of at most 18 additions on the way to the root errs by less than 3 * 2^-106 of the sum of magnitudes under it, in
# all by less than 54 * 2^-106 of sum(abs(x)), which is 1e13 sums: 6e-5 ulp. What is rounded to float64 is off by less
# than one ulp then.
@pytest.mark.parametrize("condition", [1e4, 1e8, 1e13])
@pytest.mark.parametrize("length", LENGTHS)
def test_within_an_ulp_of_the_exact_sum(length, condition):
    for seed in SEEDS:
        x = cancelling(length, condition, seed)
        assert 0.5 * condition < condition_of(x) < 100 * condition
        assert ulps(tree.reduce(x, accumulate="compensated"), x) <= 1, f"seed {seed}"


def test_which_a_plain_sum_is_not():
    assert all(ulps(tree.reduce(x), x) > 1000 for x in (cancelling(5003, 1e13, seed) for seed in SEEDS))


def test_what_only_the_low_part_holds():
    x = np.array([1.0, 2.0**-80, -1.0])
    assert tree.reduce(x, accumulate="compensated") == 2.0**-80
    assert tree.reduce(x) == 0.0

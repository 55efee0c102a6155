"""What is chosen for random problems on several devices: what is recorded, and the same however it is found."""

import math
import random

import pytest

from lowlevel_reduce import layout
from lowlevel_reduce.strategy import columns
from tests.golden import choices


@pytest.mark.parametrize("device", choices.DEVICES)
def test_what_is_recorded_is_chosen(device):
    """A change for a reason is recorded anew by ``python -m tests.golden.choices``."""
    found = [(problem, choices.choice(device, problem), then) for of, problem, then in choices.read() if of == device]
    assert len(found) == 70
    assert [(problem, now) for problem, now, then in found if now != then] == []


@pytest.mark.parametrize("device", choices.DEVICES)
@pytest.mark.parametrize(("itemsize", "accumulator", "heavy", "two_arrays"), [
    (4, 8, False, False), (2, 4, False, False), (1, 8, False, False), (8, 16, False, False), (16, 16, False, False),
    (2, 24, True, False), (4, 12, True, False), (4, 8, True, True), (4, 40, True, False),
])  # fmt: skip
def test_columns_are_cut_in_the_first_of_the_ways_that_cost_least(device, itemsize, accumulator, heavy, two_arrays):
    """`choose_columns` looks at few of them."""
    rng = random.Random(itemsize * accumulator)
    for _ in range(12):
        length, side_by_side, runs = (int(2 ** rng.uniform(0, most)) for most in (20, 14, 4))
        shape = (runs, length, side_by_side)
        stride = (side_by_side + rng.choice((0, 0, 1, 4))) * itemsize
        problem = layout.problem_of(shape, itemsize, axis=1, strides_bytes=(length * stride, stride, itemsize))
        if problem.kind != "columns":
            continue
        given = (problem, choices.DEVICES[device], itemsize, accumulator)
        ways = list(columns.ways(*given, heavy=heavy, two_arrays=two_arrays))
        least = min(ways, key=lambda each: columns.cost(*each))
        assert math.isfinite(columns.cost(*least))
        chosen = columns.choose_columns(*given, heavy=heavy, two_arrays=two_arrays)
        assert chosen == columns.strategy_of(*least), shape

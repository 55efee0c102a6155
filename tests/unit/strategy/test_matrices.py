"""Rows and columns of a matrix: which share a choice, and the argument that is packed at once."""

import itertools
import random
from array import array

import pytest

from lowlevel_reduce import layout
from lowlevel_reduce.calls.places import constants_of
from lowlevel_reduce.strategy import fields, selection
from lowlevel_reduce.strategy.base import Task
from tests.golden import choices


def matrix(rows, length, pad, itemsize, *, columns):
    """Return what `layout.matrix_of` returns of a matrix."""
    if columns:
        return rows, length, itemsize, rows * itemsize + pad
    return rows, length, length * itemsize + pad, itemsize


@pytest.mark.parametrize("device", ["A100", "H200", "a sixth of an H200", "B200"])
@pytest.mark.parametrize(("itemsize", "accumulator", "heavy"), [
    (4, 8, False), (2, 4, False), (1, 8, False), (8, 16, False), (16, 16, False), (4, 24, True),
])  # fmt: skip
def test_what_shares_a_choice_is_chosen_alike(device, itemsize, accumulator, heavy):
    """Each is drawn with others near it in length, in rows and in strides, that may share it."""
    rng, facts = random.Random(itemsize * accumulator), choices.DEVICES[device]
    known, shared = {}, 0
    near = (0, 1, 16 // itemsize, 512 // itemsize - 1, 512 // itemsize, 4096 // itemsize)
    for number in range(30):
        rows, length = (int(2 ** rng.uniform(1, most)) for most in (12, 15))
        for longer, more, pad in itertools.product(near, (0, 1), (0, itemsize, 16, 160)):
            found = matrix(rows + more, length + longer, pad, itemsize, columns=number % 2)
            key = selection.sharers(*found, itemsize)
            assert (key is None) == ((length + longer) * itemsize <= 4096)
            problem = layout.matrix_problem(*found, itemsize, (rows + more,))
            chosen = selection.unasked(Task(problem, facts, itemsize, accumulator, heavy))
            if key is not None:
                shared += key in known
                assert known.setdefault(key, chosen) == chosen, (found, key)
    assert shared > 100
    assert len(set(known.values())) > 20


@pytest.mark.parametrize("itemsize", [1, 4, 16])
def test_the_argument_that_is_packed_at_once_has_the_fields_one_by_one(itemsize):
    rng = random.Random(itemsize)
    matrices = [
        matrix(*(int(2 ** rng.uniform(1, 13)) for _ in range(2)), itemsize * number % 48, itemsize, columns=number % 2)
        for number in range(100)
    ]
    far = (1 << 31) // 8
    matrices += [(2, 9, itemsize, far), (2, 9, itemsize, far - 1), (1 << 20, 7, 1 << 22, itemsize)]
    for each in matrices:
        rows, length, _, _ = each
        problem = layout.matrix_problem(*each, itemsize, (rows,))
        count, initial, folders = rng.getrandbits(64), (rng.getrandbits(64), rng.getrandbits(64)), rng.randrange(9)
        found = array("Q", fields.matrix_words(*each, itemsize, count, initial, folders))
        words = (0, length, rows, count, *initial, *fields.shape_values(problem, folders=folders))
        assert found == constants_of(words), each
        assert len(found) == len(fields.signature("shaped")) - 4

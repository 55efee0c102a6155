"""Indices and shapes of arrays on the device: NumPy's, where the part lies in one piece, and refused where not."""

import itertools

import numpy as np
import pytest

from lowlevel_reduce.arrays.indexing import part_of, reshaped

SHAPES = [(), (5,), (3, 4), (1, 4), (3, 1), (2, 3, 4), (2, 1, 3), (0, 3), (3, 0)]
ENTRIES = [
    0,
    -1,
    1,
    np.int64(1),
    slice(None),
    slice(1, None),
    slice(0, 1),
    slice(None, None, 2),
    slice(2, 2),
    slice(-2, 9),
]
ENTRIES += [slice(None, None, -1), ...]


def indices(shape):
    for count in range(len(shape) + 1):
        for entries in itertools.product(ENTRIES, repeat=count):
            if sum(entry is ... for entry in entries) <= 1:
                yield entries[0] if count == 1 else entries


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_as_numpy_where_it_lies_in_one_piece_and_only_there(shape):
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    for index in indices(shape):
        try:
            expected = np.asarray(numbers[index])
        except IndexError:
            with pytest.raises(IndexError):
                part_of(shape, index)
            continue
        flat = expected.ravel()
        if flat.size and not np.array_equal(flat, flat[0] + np.arange(flat.size)):
            with pytest.raises(IndexError, match="does not lie in one piece"):
                part_of(shape, index)
        else:
            assert part_of(shape, index) == (flat[0] if flat.size else 0, expected.shape), index


WRONG = {
    "too many": ((0, 0, 0), IndexError, r"shape \(2, 3\) has no 3 axes"),
    "too large": (2, IndexError, "index 2 is out of range for an axis of length 2"),
    "too small": ((0, -4), IndexError, "index -4 is out of range for an axis of length 3"),
    "a bool": (True, TypeError, "an index is an integer, a slice or an ellipsis, not True"),
    "none": (None, TypeError, "not None"),
    "a float": ((0, 1.0), TypeError, "not 1.0"),
    "a list": ([0, 1], TypeError, r"not \[0, 1\]"),
    "an array": (np.array([0, 1]), TypeError, r"not array"),
    "two ellipses": ((..., ...), IndexError, "one ellipsis at most"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_index(case):
    index, error, message = WRONG[case]
    with pytest.raises(error, match=message):
        part_of((2, 3), index)


@pytest.mark.parametrize("wanted", [(6,), (-1,), ((3, 2),), (3, -1), ([1, 6, 1],), (np.int64(2), 3), ((6,),)], ids=str)
def test_shapes_of_as_many_elements(wanted):
    assert reshaped((2, 3), wanted) == np.zeros((2, 3)).reshape(*wanted).shape


def test_shapes_of_one_and_of_no_elements():
    assert reshaped((), ((),)) == reshaped((1, 1), ()) == ()
    assert reshaped((0, 3), (5, 0)) == (5, 0)
    assert reshaped((0, 3), (-1,)) == (0,)
    assert reshaped((), (1, -1)) == (1, 1)


@pytest.mark.parametrize("wanted", [(5,), (-1, -1), (4, -1), (-2, -3), (0, -1), ()], ids=str)
def test_shapes_that_do_not_fit(wanted):
    with pytest.raises(ValueError, match=r"shape \(2, 3\) cannot have the shape"):
        reshaped((2, 3), wanted)


@pytest.mark.parametrize("wanted", [(2.0, 3), ("6",), (None,), (True, 6)], ids=str)
def test_shapes_of_what_is_no_integer(wanted):
    with pytest.raises(TypeError, match="integer"):
        reshaped((2, 3), wanted)

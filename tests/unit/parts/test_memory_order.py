"""The order in which an array lies, and the rows that it has there, against NumPy's transposed arrays."""

import itertools

import numpy as np
import pytest

from lowlevel_reduce.parts.memory_order import order_of, sizes_in


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (3, 1, 2), (1, 4, 1, 3), (2, 3, 4)])
def test_an_array_is_contiguous_in_its_order(shape):
    for lies in itertools.permutations(range(len(shape))):
        array = np.empty([shape[each] for each in lies], "f4").transpose(np.argsort(lies))
        assert array.shape == shape
        order = order_of(array.shape, array.strides, 4)
        assert sorted(order) == list(range(len(shape)))
        assert array.transpose(order).flags.c_contiguous


@pytest.mark.parametrize(
    "array",
    [np.empty((4, 4), "f4")[:, :3], np.empty((4, 4), "f4")[::-1], np.empty((3, 0), "f4"),
     np.broadcast_to(np.float32(1), (2, 3))],
    ids=["gaps", "backwards", "empty", "repeated"],
)  # fmt: skip
def test_what_has_no_order(array):
    assert order_of(array.shape, array.strides, 4) is None


@pytest.mark.parametrize("shape", [(4,), (2, 3), (3, 1, 2), (2, 3, 4)])
def test_rows_of_an_order_are_those_of_the_array(shape):
    """Elements of a row and results have the order that they have in C order, or there are no sizes."""
    numbers, met = np.arange(np.prod(shape)).reshape(shape), set()
    for order in itertools.permutations(range(len(shape))):
        for count in range(len(shape) + 1):
            for axes in itertools.combinations(range(len(shape)), count):
                kept = [each for each in range(len(shape)) if each not in axes]
                length = int(np.prod([shape[each] for each in axes], initial=1))
                rows = numbers.transpose([*kept, *axes]).reshape(-1, length)
                sizes = sizes_in(order, shape, list(axes))
                met.add(sizes is None)
                if sizes is not None:
                    lying = numbers.transpose(order).reshape(sizes)
                    assert np.array_equal(lying.transpose(0, 2, 1).reshape(-1, length), rows)
                elif list(order) == sorted(order):  # in C order it is about reduced axes that are apart alone
                    assert len(axes) > 1
    assert met == ({False} if len(shape) == 1 else {False, True})


def test_files_in_fortran_order_are_read_as_they_lie_along_each_axis():
    assert sizes_in((1, 0), (1000, 50), [0]) == (50, 1000, 1)
    assert sizes_in((1, 0), (1000, 50), [1]) == (1, 50, 1000)
    assert sizes_in((1, 0), (1000, 50), [0, 1]) is None

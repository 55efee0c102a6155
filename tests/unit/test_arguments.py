"""Arguments that make no sense: a typed error in words, before anything is compiled or asked of a device."""

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import layout, simulator, tree
from lowlevel_reduce.arguments import chosen_axes, flag, integer, listed, not_masked, plain_axes, shown
from lowlevel_reduce.dtypes import ELEMENT_TYPES, element_type, numpy_dtype
from lowlevel_reduce.operators import resolve

X = np.arange(1, 7, dtype=np.float32)


@pytest.mark.parametrize("value", [1, np.int8(1), np.uint64(1), np.array(1)], ids=repr)
def test_integers_of_any_kind_become_pythons(value):
    assert type(integer(value, "it is an integer")) is int
    assert plain_axes(value) == 1
    assert plain_axes([value]) == (1,)
    assert type(plain_axes((value,))[0]) is int
    assert chosen_axes(value, 2) == (1,)


@pytest.mark.parametrize(
    "value", [True, np.True_, 1.0, np.float64(1), np.array(True), np.array([1]), "1", {1}, None, 1j], ids=repr
)
def test_what_is_no_integer(value):
    with pytest.raises(TypeError, match="it is an integer, not "):
        integer(value, "it is an integer")
    for axis in ([value], (0, value)) if value is None else (value, [value], (0, value)):
        for call in (
            lambda axis: tree.reduce(X.reshape(2, 3), axis=axis),
            lambda axis: layout.problem_of((2, 3), 4, axis=axis),
        ):
            with pytest.raises(TypeError, match="an axis is an integer, not "):
                call(axis)


@pytest.mark.parametrize("axis", [2, -3, (0, 2)])
def test_the_tree_says_of_axes_what_numpy_says(axis):
    with pytest.raises(np.exceptions.AxisError, match="is out of bounds for array of dimension 2"):
        tree.reduce(X.reshape(2, 3), axis=axis)


@pytest.mark.parametrize(
    ("strides", "error", "message"),
    [
        ((4,), ValueError, "strides_bytes has 1 strides; the shape has 2 axes"),
        ((4, 4, 4), ValueError, "has 3 strides"),
        ((4.0, 4), TypeError, "strides_bytes holds integers, not 4.0"),
        ((True, 4), TypeError, "holds integers, not True"),
        ("ab", TypeError, "holds integers, not 'a'"),
        (4, TypeError, "a sequence of integers, one an axis, not 4"),
        ((2**63, 4), ValueError, "does not fit into 64 bits"),
        ((-(2**63), 4), ValueError, "does not fit into 64 bits"),
        ((2**62, 2**61), ValueError, "does not fit into 64 bits"),
    ],
    ids=str,
)
def test_strides_that_are_none(strides, error, message):
    for name in ("strides_bytes", "second_strides_bytes"):
        with pytest.raises(error, match=message):
            layout.problem_of((3, 5), 4, **{name: strides})


@pytest.mark.parametrize("size", [0, 1])
def test_a_stride_that_no_element_takes_fits_into_64_bits_too(size):
    for stride in (2**63, -(2**63)):
        with pytest.raises(ValueError, match="does not fit into 64 bits"):
            layout.problem_of((size, 5), 4, strides_bytes=(stride, 4))


def test_too_many_axes_are_joined_where_the_reduced_ones_are_last():
    shape, axis = (2,) * 18, tuple(range(0, 18, 2))
    with pytest.raises(lr.UnsupportedError, match="copy the array first, with the reduced axes last"):
        layout.problem_of(shape, 4, axis=axis)
    assert layout.problem_of(shape, 4, axis=tuple(range(9, 18))).kind == "rows"


@pytest.mark.parametrize("dtype", [">f4", ">i8", np.dtype("f8").newbyteorder()])
def test_foreign_byte_orders(dtype):
    for call in (
        lambda: numpy_dtype(dtype),
        lambda: tree.reduce(X, dtype=dtype),
        lambda: tree.reduce(X, accumulate=dtype),
        lambda: element_type(dtype),
    ):
        with pytest.raises(lr.UnsupportedError, match="byte order"):
            call()


@pytest.mark.parametrize("entry", [each for each in ELEMENT_TYPES if each.dtype.kind in "iu"], ids=lambda e: e.name)
def test_an_accumulator_has_many_names(entry):
    x = np.array([100, 100, 120]).astype(entry.dtype)
    expected = tree.reduce(x, accumulate=entry.name)
    assert expected.dtype == entry.dtype
    for name in (entry.dtype, entry.dtype.type, entry.dtype.char, entry.dtype.str):
        for got in (tree.reduce(x, accumulate=name), tree.reduce(x, "prod", accumulate=name)):
            assert got.dtype == entry.dtype
        assert tree.reduce(x, accumulate=name) == expected
        assert resolve("sum").types(entry, name) == resolve("sum").types(entry, entry.name)


def test_a_masked_array_is_not_taken_for_its_data():
    masked = np.ma.masked_array(X, X > 3)
    for call in (
        lambda: not_masked(masked),
        lambda: tree.reduce(masked),
        lambda: tree.reduce(X, where=np.ma.masked_array(X > 3)),
        lambda: tree.reduce(X, "dot", second=masked),
        lambda: tree.reduce(X, initial=np.ma.masked),
    ):
        with pytest.raises(TypeError, match=r"where=~x\.mask"):
            call()
    assert tree.reduce(masked.data, where=~masked.mask) == 6


@pytest.mark.parametrize("ddof", [2**63, 2**64, 10**40])
def test_a_ddof_that_kernels_do_not_hold(ddof):
    with pytest.raises(ValueError, match="at most 9223372036854775807"):
        tree.reduce(X, "var", ddof=ddof)
    assert np.isnan(tree.reduce(X, "var", ddof=2**63 - 1)) or np.isinf(tree.reduce(X, "var", ddof=2**63 - 1))


@pytest.mark.parametrize("name", [None, 5, b"H200"])
def test_a_simulated_device_has_a_name(name):
    with pytest.raises(TypeError, match="named by a text"), simulator.use(name):
        pass


def test_a_value_is_shown_whatever_it_is():
    class Refusing:
        def __repr__(self):
            raise KeyError("no")

    nested = 1
    for _ in range(100_000):  # Python 3.12 shows ten thousand
        nested = (nested,)
    assert shown(nested) == "a tuple that cannot be shown"
    assert shown(Refusing()) == "a Refusing that cannot be shown"
    assert shown("x" * 199) == f"'{'x' * 196}..."
    assert shown("\ud800") == "'\\ud800'"
    with pytest.raises(TypeError, match="it is an integer, not a tuple that cannot be shown"):
        integer(nested, "it is an integer")


def test_flags_and_lists():
    assert [flag(value, "last") for value in (True, 0, "", [1], np.bool_(False))] == [True, False, False, True, False]
    for value in (np.zeros(2), np.zeros(3, "f4,f4")):
        with pytest.raises(TypeError, match="last is True or False, not "):
            flag(value, "last")
    assert listed((1, 2), "shards is a sequence") == [1, 2]
    with pytest.raises(TypeError, match="shards is a sequence, not 5"):
        listed(5, "shards is a sequence")


@pytest.mark.parametrize("dtype", ["\ud800", "(2,f4", [1.5], (2**63,) * 3, "x" * 1000])
def test_what_names_no_type(dtype):
    with pytest.raises(TypeError, match="data type .* not understood"):
        numpy_dtype(dtype)

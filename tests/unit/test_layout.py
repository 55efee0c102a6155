"""Shapes, strides and axes: the rows that they make, where each element of them lies, and what is refused."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lowlevel_reduce import UnsupportedError, layout, tree

SHAPES = st.lists(st.integers(0, 5), max_size=4)


def offset(axes, index, by="stride"):
    """Return where element `index`, or its result, lies, as `Axes::offset_by` in cuda_src computes it."""
    place = 0
    for axis in axes:
        index, rest = divmod(index, axis.size)
        place += rest * getattr(axis, by)
    assert index == 0
    return place


def places(problem, *, second=False):
    """Return the byte offset of every element as (rows, length), rows in the order of their results."""
    by = "second_stride" if second else "stride"
    rows = np.empty(problem.rows, int)
    numbers = [offset(problem.kept, i, "result_stride") for i in range(problem.rows)]
    assert sorted(numbers) == list(range(problem.rows))
    rows[numbers] = [offset(problem.kept, i, by) for i in range(problem.rows)]
    elements = [offset(problem.reduced, i, by) for i in range(problem.length)]
    return np.add.outer(rows, np.array(elements, int))


def expected_places(shape, strides, axes):
    """Return the same by NumPy: rows in C order of the kept axes, elements in C order of the reduced ones."""
    grid = np.zeros(shape, int)
    for i, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        grid += (np.arange(size) * stride).reshape([-1 if k == i else 1 for k in range(len(shape))])
    kept = [i for i in range(len(shape)) if i not in axes]
    rows = int(np.prod([shape[i] for i in kept], dtype=int))
    length = int(np.prod([shape[i] for i in axes], dtype=int))
    return grid.transpose(kept + sorted(axes)).reshape(rows, length)


@st.composite
def problems(draw):
    """Return a shape, two arrays' strides of any sign, and the axes to reduce."""
    shape = draw(SHAPES)
    itemsize = draw(st.sampled_from([1, 2, 4, 8, 16]))

    def strides():
        step = draw(st.sampled_from([1, 1, 2]))
        found = [0] * len(shape)
        for i in reversed(draw(st.one_of(st.just(list(range(len(shape)))), st.permutations(range(len(shape)))))):
            sign = draw(st.sampled_from([1, 1, -1, 0]))
            found[i] = sign * step * itemsize
            step *= max(shape[i], 1)
        return tuple(found)

    axes = draw(st.sets(st.sampled_from(range(len(shape))))) if shape else set()
    return tuple(shape), itemsize, strides(), strides(), tuple(sorted(axes))


@given(problems())
@example(((3, 4, 5), 4, (4, 60, 12), (4, 60, 12), (1,)))  # rows follow each other in memory, and not among the results
def test_every_element_lies_where_numpy_says(case):
    shape, itemsize, strides, seconds, axes = case
    problem = layout.problem_of(
        shape, itemsize, axis=axes, strides_bytes=strides, second_strides_bytes=seconds, second_itemsize=itemsize
    )
    found = places(problem)
    assert found.tolist() == expected_places(shape, strides, axes).tolist()
    assert places(problem, second=True).tolist() == expected_places(shape, seconds, axes).tolist()
    low, high = (found.min(), found.max() + itemsize) if found.size else (0, 0)
    assert (problem.low, problem.high) == (low, high)


@given(problems(), st.booleans())
def test_result_shape_is_numpys(case, keepdims):
    shape, itemsize, strides, _, axes = case
    problem = layout.problem_of(shape, itemsize, axis=axes, strides_bytes=strides, keepdims=keepdims)
    assert problem.result_shape == np.sum(np.zeros(shape), axis=axes, keepdims=keepdims).shape
    negative = tuple(each - len(shape) for each in axes)
    assert layout.problem_of(shape, itemsize, axis=negative, strides_bytes=strides, keepdims=keepdims) == problem


@given(problems())
@example(((3, 4, 5), 4, (96, 20, 4), (96, 20, 4), (0, 1)))  # columns, but for the space behind every fourth row
def test_a_kind_keeps_its_promise(case):
    shape, itemsize, strides, _, axes = case
    problem = layout.problem_of(shape, itemsize, axis=axes, strides_bytes=strides)
    steps = np.diff(places(problem), axis=1)
    if problem.kind in ("whole", "rows"):
        assert (steps == itemsize).all()
    if problem.kind == "whole":
        assert problem.rows == 1
    if problem.kind == "columns":
        apart = abs(problem.kept[0].stride)
        nearest = min((abs(axis.stride) for axis in problem.reduced if axis.stride), default=layout.SECTOR_BYTES)
        assert problem.kept[0].stride == itemsize or 0 < apart < min(nearest, layout.SECTOR_BYTES)
        assert problem.rows % problem.kept[0].size == 0


@pytest.mark.parametrize(
    ("shape", "axis", "strides", "kind"),
    [
        ((), None, None, "whole"),
        ((7,), None, None, "whole"),
        ((3, 5), None, None, "whole"),
        ((1, 5), 1, None, "whole"),
        ((3, 5), 1, None, "rows"),
        ((3, 4, 5), (1, 2), None, "rows"),
        ((3, 5), 0, None, "columns"),
        ((3, 4, 5), 1, None, "columns"),
        ((3, 4, 5), (0, 2), None, "strided"),
        ((3, 4, 5), 1, (4, 12, 48), "columns"),  # the rows' neighbours are not the results'
        ((3, 4, 5), 1, (4, 12, -48), "columns"),
        ((2, 3, 5), 2, (0, 4, 12), "columns"),
        ((3, 5), None, (4, 12), "strided"),  # transposed: C order is not that of memory
        ((7,), None, (-4,), "strided"),
        ((7,), None, (0,), "strided"),
        ((3, 5), 0, (4, 12), "rows"),
        ((3, 5), 1, (4, 12), "columns"),
        ((30, 5), 0, (80, 16), "columns"),  # some elements apart, but in the same sectors
        ((30, 5), 0, (80, -16), "columns"),
        ((30, 5), 0, (160, 32), "strided"),
        ((30, 5), 0, (16, 16), "strided"),  # windows: a row's elements are as close
        ((30, 5), 0, (8, 16), "strided"),
        ((2, 2, 2, 2, 2, 5), (0, 1, 2, 3, 4), (960, 400, 160, 60, 20, 8), "strided"),  # more axes than are walked along
    ],
)
def test_kinds(shape, axis, strides, kind):
    assert layout.problem_of(shape, 4, axis=axis, strides_bytes=strides).kind == kind


@pytest.mark.parametrize(("axes", "second", "kind"), [(3, 1, "columns"), (4, 1, "strided"), (4, 0, "columns")])
def test_columns_beside_a_second_array_lie_along_three_axes(axes, second, kind):
    """At most: along these, kernels go from element to element."""
    shape, strides = (*(3,) * axes, 8), layout.contiguous_strides((*(6,) * axes, 8), 4)
    apart = {"strides_bytes": (*(2 * stride for stride in strides[:-1]), 4), "axis": range(axes)}
    seconds = {"second_strides_bytes": strides, "second_itemsize": second} if second else {}
    problem = layout.problem_of(shape, 4, **apart, **seconds)
    assert (problem.kind, len(problem.reduced)) == (kind, axes)


def test_axes_are_taken_in_the_arrays_order():
    """Whatever order they are named in: the tree's order of a row's elements is that of the array."""
    x = np.random.default_rng(3).standard_normal((2, 3, 5)).astype(np.float32)
    for axes in ((2, 0), (-1, 0), [2, -3]):
        assert layout.problem_of((2, 3, 5), 4, axis=axes) == layout.problem_of((2, 3, 5), 4, axis=(0, 2))
        assert np.array_equal(tree.reduce(x, "argmax", axis=axes), tree.reduce(x, "argmax", axis=(0, 2)))


def test_a_second_array_that_lies_otherwise_makes_no_whole():
    alike = {"strides_bytes": (20, 4), "second_itemsize": 4}
    assert layout.problem_of((3, 5), 4, second_strides_bytes=(20, 4), **alike).kind == "whole"
    assert layout.problem_of((3, 5), 4, second_strides_bytes=(0, 4), **alike).kind != "whole"
    mask = {"strides_bytes": (20, 4), "second_itemsize": 1}
    assert layout.problem_of((3, 5), 4, second_strides_bytes=(5, 1), **mask).kind == "whole"
    for second in (0, 8):
        one = layout.problem_of((15,), 4, strides_bytes=(4,), second_strides_bytes=(second,), second_itemsize=4)
        assert one.kind == "rows"
    window = layout.problem_of((3, 5), 4, second_strides_bytes=(4, 4), **alike)  # as of sliding_window_view
    assert window.kind == "strided"
    assert places(window, second=True).tolist() == [[4 * (i + j) for i in range(3) for j in range(5)]]


@given(SHAPES, st.sampled_from([1, 2, 4, 8]))
def test_contiguous_strides_are_numpys(shape, itemsize):
    if 0 not in shape:
        assert layout.contiguous_strides(shape, itemsize) == np.empty(shape, f"V{itemsize}").strides


@given(problems())
@example(((1, 5), 4, (-4, 4), (-4, 4), ()))
def test_what_is_contiguous_is_so_to_numpy(case):
    shape, itemsize, strides, _, _ = case
    array = np.lib.stride_tricks.as_strided(np.empty(1, f"V{itemsize}"), shape, strides)
    assert layout.is_contiguous(shape, strides, itemsize) == array.flags.c_contiguous
    assert layout.is_contiguous(shape, None, itemsize)


@pytest.mark.parametrize(
    ("shape", "axis", "error", "message"),
    [
        ((3, -1), None, ValueError, "negative length"),
        ((2**40, 2**40), None, ValueError, "can be reduced"),
        ((2**38 + 1,), None, ValueError, "can be reduced"),
        ((2.0,), None, TypeError, "integers"),
        ((True,), None, TypeError, "integers"),
        ((3, 4), 2, np.exceptions.AxisError, "axis 2 is out of bounds"),
        ((3, 4), (0, -3), np.exceptions.AxisError, "out of bounds"),
        ((), 1, np.exceptions.AxisError, "out of bounds"),
        ((3, 4), (1, -1), ValueError, "names an axis twice"),
        ((3, 4), 1.0, TypeError, "an axis is an integer"),
        ((3, 4), True, TypeError, "an axis is an integer"),
    ],
)
def test_refusals(shape, axis, error, message):
    with pytest.raises(error, match=message):
        layout.problem_of(shape, 4, axis=axis)


@pytest.mark.parametrize("itemsize", [1, 4, 16])
@pytest.mark.parametrize("keepdims", [False, True])
def test_a_matrix_is_seen_at_once_as_it_is_otherwise(itemsize, keepdims):
    """Those that have no rows side by side, or few elements, are looked at otherwise alone."""
    rng = np.random.default_rng(itemsize)
    seen = 0
    for _ in range(300):
        shape = tuple(rng.choice([0, 1, 2, 3, 8, 48], 2).tolist())
        strides = tuple((rng.choice([-1, 0, 1, 1, 2, 5, 48], 2) * itemsize).tolist())
        for axis, steps in ((0, strides), (1, strides), (-1, None), (-2, None)):
            expected = layout.problem_of(shape, itemsize, axis=axis, keepdims=keepdims, strides_bytes=steps)
            matrix = layout.matrix_of(shape, itemsize, axis, steps)
            assert (matrix is None) == (min(shape) < 2 or min(steps or (1,)) <= 0)
            if matrix is not None:
                found = layout.matrix_problem(*matrix, itemsize, expected.result_shape)
                assert found == expected, (shape, steps, axis)
                assert layout.matrix_in(found) == matrix
                seen += 1
    assert seen > 300
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        layout.problem_of((3, 4), itemsize, axis=0, keepdims=keepdims, strides_bytes=(1 << 62, itemsize))
    lies_over = ((1 << 20) + 1, (1 << 20) // itemsize)
    assert layout.matrix_of(lies_over, itemsize, 1, (2 * itemsize, itemsize)) is None, "of more than 2^40 bytes"


@pytest.mark.parametrize(("shape", "strides", "axis", "expected"), [
    ((4, 3, 9), None, 2, (12, 9, 36, 4)), ((4, 3, 9), None, (1, 2), (4, 27, 108, 4)), ((4, 3, 9), None, 1, None),
    ((4, 3, 9), None, 0, (27, 4, 4, 108)), ((4, 3, 9), (400, 36, 4), 2, None), ((4, 9), (36, -4), 1, None),
    ((4, 9), (0, 4), 1, None), ((4, 0), None, 1, None), ((0, 4), None, 1, None),
    ((4, 9), (-36, 4), 1, None), ((9,), None, 0, None), ((4, 1, 9), None, 2, (4, 9, 36, 4)), ((4, 1), None, 1, None),
])  # fmt: skip
def test_axes_that_are_joined_to_a_matrix(shape, strides, axis, expected):
    problem = layout.problem_of(shape, 4, axis=axis, strides_bytes=strides)
    assert layout.matrix_in(problem) == expected
    if expected is not None:
        assert layout.matrix_problem(*expected, 4, problem.result_shape) == problem


def test_more_axes_than_the_kernels_know():
    shape, strides = (2,) * 9, tuple(3**i * 4 for i in range(9))
    with pytest.raises(UnsupportedError, match="at most 8 of each"):
        layout.problem_of(shape, 4, strides_bytes=strides)
    assert len(layout.problem_of(shape, 4, axis=0, strides_bytes=strides).kept) == 8


@pytest.mark.parametrize("strides", [(80, 16), (80, 8), (16, 80), (8, 16), (160, 32), (16, 16), (20, 4), (4, 200)])
@pytest.mark.parametrize("axis", [0, 1])
def test_what_is_seen_of_a_matrix_at_once_is_the_same(strides, axis):
    """A tuple of strides takes the short way, a list the long one."""
    of = [layout.problem_of((30, 5), 4, axis=axis, strides_bytes=each) for each in (strides, list(strides))]
    assert of[0] == of[1]

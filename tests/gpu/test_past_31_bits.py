"""Rows, columns, segments, and as many rows, of more than 2^31 elements: an index of 32 bits would show."""

import contextlib

import numpy as np
import pytest
from placed import placed

import lowlevel_reduce as lr

SHAPES = {"whole": lambda n: (n,), "rows": lambda n: (2, n), "columns": lambda n: (n, 2)}


@pytest.fixture
def n(cut):
    """An odd length, so that the second of two rows begins at an odd address; where it is simulated, a short one."""
    return cut(2**31 + 70_001, 20_001)


@pytest.fixture
def zeros(stream):
    """Make an array of bytes of that shape that are zero, but for some by their numbers in C order."""
    buffers = []

    def make(shape, **others):
        buffers.append(lr.Buffer.allocate(int(np.prod(shape)), stream.context))
        buffers[-1].fill(0, stream=stream)
        for place, value in others["values"].items():
            one = lr.Buffer.from_pointer(buffers[-1].pointer + place, 1, context=stream.context, owner=buffers[-1])
            one.copy_from(np.uint8([value]), stream=stream)
        return lr.DeviceArray(buffers[-1], np.dtype(np.uint8), shape, stream)

    yield make
    stream.synchronize()
    for buffer in buffers:
        buffer.close()


@pytest.mark.parametrize("lie", SHAPES)
def test_one_axis_is_long(stream, zeros, n, lie, few):
    shape = SHAPES[lie](n)
    axis = shape.index(n)
    rows = 1 if lie == "whole" else 2
    step = 2 if lie == "columns" else 1  # from one element of a row to the next
    first = [0, 1 if lie == "columns" else n][:rows]
    places = {3: 7, n // 2: 200, n - 3: 201, n - 2: 9}
    x = zeros(shape, values={start + step * place: value for start in first for place, value in places.items()})
    for op, wanted in few([("sum", 417), ("max", 201), ("argmax", n - 3), ("count_nonzero", 4), ("argmin", 0)], 2):
        assert lr.reduce(x, op, axis=axis, stream=stream).numpy().reshape(-1).tolist() == [wanted] * rows, op
    mean, var = (each.numpy().reshape(-1) for each in lr.mean_var(x, axis=axis, stream=stream, dtype="float64"))
    squares = sum(value**2 for value in places.values())
    np.testing.assert_allclose(mean, 417 / n, rtol=1e-12)
    np.testing.assert_allclose(var, squares / n - (417 / n) ** 2, rtol=1e-9)


def test_an_axis_past_32_bits_inside_another(stream, cut):
    """Of as many elements as one of them: where an axis ends, the next element lies along the other."""
    n = cut(2**32 + 1, 20_001)
    with contextlib.ExitStack() as stack:
        x = stack.enter_context(placed(np.array([[1, 20], [3, 50]], np.uint8), stream))
        strides = {"strides_bytes": (2, 0, 1), "axis": (0, 1)}
        plan = stack.enter_context(lr.plan("sum", shape=(2, n, 2), dtype="uint8", context=stream.context, **strides))
        assert plan.strategy.name == "columns"
        result = lr.DeviceArray.empty(plan.result_shape, plan.result_dtype, stream)
        launch = plan.bind(stream)
        stack.callback(launch.close)
        launch(x, result.pointer)
        assert result.numpy().tolist() == [4 * n, 70 * n]


def test_rows_are_many(stream, zeros, n):
    x = zeros((n, 2), values={0: 1, 2 * (n // 2) + 1: 2, 2 * n - 1: 3})
    largest = lr.max(x, axis=1, stream=stream)
    assert largest.shape == (n,)
    assert int(lr.sum(largest, stream=stream)) == 6
    assert int(lr.argmax(largest, stream=stream)) == n - 1
    assert int(lr.argmax(largest, stream=stream, map="x == 2 ? 255 : x")) == n // 2


@pytest.mark.slow
@pytest.mark.parametrize("offsets_of", [lambda n: [0, 5, n - 7, n], lambda n: [n - 7, n - 7, n]])
def test_segments_lie_far(stream, zeros, n, offsets_of):
    offsets = np.array(offsets_of(n), np.int64)
    values = {4: 1, n // 2: 2, n - 8: 3, n - 7: 4, n - 1: 5}
    x = zeros((n,), values=values)
    wanted = [
        sum(value for place, value in values.items() if start <= place < end)
        for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    ]
    assert lr.segmented_reduce(x, offsets, stream=stream).numpy().tolist() == wanted
    last = lr.segmented_reduce(x, offsets, "argmax", stream=stream).numpy()
    assert last[-1] == 6
    assert offsets.size == 3 or last.tolist() == [4, n - 13, 6]

"""Axes, strides, alignments, batches: whatever lies around a row, and however it lies, it has the tree's bits."""

import functools

import numpy as np
import pytest
from placed import Strided, assert_same, placed, reduced, span, values

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import numpy_dtype
from lowlevel_reduce.strategy import rows as row_policy

SIZES = [1, 2, 3, 4, 5, 8, 31, 32, 33, 100, 127, 128, 129, 256, 1000, 1023, 1024, 1025, 4097, 40_000]
FEW_SIZES = [1, 3, 33, 100, 1025, 4097]


def check(array, stream, axis=None, op="sum", *, second=None, offset=0, **options):
    """Reduce and compare with the tree; return the results.

    Sums of float32 are made in float32: rounding a float64 sum would hide the order of the additions.
    """
    if array.dtype == np.float32 and op in ("sum", "dot"):
        options = {"accumulate": "float32", **options}
    mapping = ("strategy", "cluster", "result_dtype", "repeat", "second_offset")
    meaning = {name: value for name, value in options.items() if name not in mapping}
    if second is not None:
        meaning["second" if op == "dot" else "where"] = second
    expected = lr.tree.reduce(array, op, axis=axis, **meaning)
    actual = reduced(array, op, stream=stream, axis=axis, second=second, offset=offset, **options)
    what = f"{op} of {array.shape} {array.dtype} strides {array.strides} axis {axis} offset {offset} {options}"
    assert_same(actual, tuple(expected) if isinstance(expected, tuple) else expected, what)
    return actual


AXES = [None, 0, 1, 2, -1, -2, (0, 1), (1, 2), (0, 2), (2, 0), (), (0, 1, 2)]


@pytest.mark.parametrize("axis", AXES, ids=str)
def test_axes(stream, cut, axis):
    for shape in cut([(3, 5, 7), (4, 1, 300), (2, 70, 40), (1, 1, 1), (30, 33, 129)], [(3, 5, 7), (4, 1, 300)]):
        x = values("float32", shape)
        check(x, stream, axis)
        check(x, stream, axis, keepdims=True)


def test_0d(stream):
    for op in ("sum", "max", "argmin", "mean"):
        check(values("float32", ()), stream, op=op)
    check(values("float64", ()), stream, axis=())
    scalar = values("float32", 3)[1]  # what NumPy makes of a single element
    assert_same(lr.sum(scalar, stream=stream).numpy(), lr.tree.reduce(scalar))


@pytest.mark.parametrize(
    ("shape", "axis"), [((0,), None), ((0, 3), 0), ((3, 0), 1), ((2, 0, 3), 1), ((2, 0, 3), (0, 1))]
)
def test_no_elements(stream, shape, axis):
    x = np.zeros(shape, np.float32)
    for op in ("sum", "prod", "mean", "any", "all", "count_nonzero", "norm_inf", "logsumexp", "mean_var"):
        check(x, stream, axis, op)
    for op in ("min", "max", "minmax", "argmin", "argmax"):
        with pytest.raises(ValueError, match="no identity"):
            lr.plan(op, shape=shape, dtype="float32", axis=axis, context=stream.context)
        with pytest.raises(ValueError, match="no identity"):
            lr.tree.reduce(x, op, axis=axis)
    check(x, stream, axis, "min", initial=3)


@pytest.mark.parametrize("strategy", ["short_rows", "rows", "batch"])
def test_rows_without_elements(stream, strategy):
    for rows in (5, 0):
        check(np.zeros((rows, 10), np.float32)[:, :0], stream, 1, strategy=strategy)


@pytest.mark.parametrize(("shape", "axis"), [((0, 3), 1), ((3, 0), 0), ((0, 0, 4), 2), ((5, 0), 0)])
def test_no_rows(stream, shape, axis):
    for op in ("sum", "min", "argmax", "mean_var"):
        check(np.zeros(shape, np.float32), stream, axis, op)
        result = lr.reduce(np.zeros(shape, np.float32), op, axis=axis, stream=stream)
        assert (result.mean if op == "mean_var" else result).shape == np.sum(np.zeros(shape), axis=axis).shape


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8", "complex128"])
@pytest.mark.usefixtures("without_elements")
def test_sizes_of_rows(stream, cut, dtype):
    few = {"float32": FEW_SIZES, "uint8": [3, 1023]}.get(dtype, [3, 100])
    for size in cut(SIZES, few):
        rows = 37 if size < 10_000 else 5
        x = values(dtype, (rows, size))
        check(x, stream, 1)
        if 256 < size * x.itemsize <= 4096:  # a few rows take a warp each unless told otherwise
            check(x, stream, 1, strategy="short_rows")
        check(values(dtype, (size, rows)), stream, 0)


@pytest.mark.parametrize("dtype", ["float32", "int8", "float64"])
def test_strides(stream, cut, dtype):
    for size in cut([1, 5, 33, 129, 1025, 4097], [5, 1025]):
        x = values(dtype, (6, size))
        for axis in (0, 1, None):
            check(x[:, ::-1], stream, axis)
            check(x[::-1], stream, axis)
            check(x.T, stream, axis)
        check(np.repeat(x, 2, axis=1)[:, ::2], stream, 1)
        check(np.concatenate([x, x], axis=1)[1::2, size // 2 : size // 2 + size], stream, 1)
        check(np.broadcast_to(x[0], (4, size)), stream, 1)
        check(np.broadcast_to(x[0], (4, size)), stream, 0)
        check(np.broadcast_to(x[:, :1], (6, size)), stream, 1)


@pytest.mark.parametrize("dtype", ["float32", "uint16", "int8", "complex128"])
def test_columns_of_elements_in_reverse_or_all_the_same(stream, cut, dtype):
    """Neighbours are copied sixteen bytes at a time wherever the next element lies, and the last ones in part."""
    for shape in cut([(5, 64), (203, 64), (2000, 64), (4097, 96), (1100, 132)], [(203, 64)]):
        x = values(dtype, shape)
        for array in (x[::-1], np.broadcast_to(x[:1], shape)):
            for op in cut(["sum", "count_nonzero", "mean"], ["sum"]):
                check(array, stream, 0, op)
            check(array, stream, 0, "dot", second=x)


@pytest.mark.usefixtures("without_elements")
def test_rows_in_another_order_than_memory(stream):
    """The array's edges are then the rows of a warp's middle, which share its loads with others."""
    x = values("uint8", (2, 100, 5))
    for array in (x[::-1], x[:, ::-1], x.transpose(1, 0, 2), x[::-1].transpose(1, 0, 2)):
        check(array, stream, 2)


@pytest.mark.parametrize("op", ["argmin", "argmax"])
@pytest.mark.usefixtures("without_elements")
def test_the_first_of_equals_along_a_column(stream, op):
    """Lanes of the tree interleave: what is combined last may lie before what was combined first."""
    for places in ([64, 128], [4, 128, 132], [0, 199], [130, 5]):
        x = np.zeros((200, 3), np.float32)
        x[places] = 1 if op == "argmax" else -1
        for last in (False, True):
            check(x, stream, 0, op, last=last)


def test_many_axes_that_cannot_be_joined(stream):
    x = values("float32", (3, 2, 4, 2, 3, 2, 5))
    check(x[::2, :, ::3, ::-1, ::2, :, ::2], stream, (0, 2, 4, 6))
    check(x.transpose(6, 0, 5, 1, 4, 2, 3), stream, (1, 3))
    check(x.transpose(6, 0, 5, 1, 4, 2, 3), stream)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float16"])
def test_every_byte_offset(stream, cut, dtype):
    for offset in cut(range(16), [1, 4, 6, 15]):
        if offset % np.dtype(dtype).itemsize:
            continue  # elements are aligned to their size
        for shape in cut([(5, 3), (7, 100), (3, 1025), (2, 40_000)], [(7, 100), (3, 1025)]):
            check(values(dtype, shape), stream, 1, offset=offset)
            check(values(dtype, shape), stream, 0, offset=offset)


@pytest.mark.simulated_if(lambda op, dtype, size: size in (100, 1000) and op != "norm1")
@pytest.mark.parametrize(
    ("op", "dtype"), [("sum", "float32"), ("prod", "float64"), ("mean", "float16"), ("norm1", "int8")]
)
@pytest.mark.parametrize("size", [4, 100, 1000, 5000])
def test_one_row_one_number(stream, cut, op, dtype, size):
    row = values(dtype, size)
    narrow = functools.partial(reduced, accumulate="float32" if dtype == "float32" else None)
    alone = narrow(row, op, stream=stream)
    assert_same(alone, lr.tree.reduce(row, op, accumulate="float32" if dtype == "float32" else None))
    for batch in cut([7, 100_000 if size < 1000 else 2000], [7, 200]):
        many = np.empty((batch, size), row.dtype)
        many[:] = values(dtype, (1, size), seed=1)
        many[[0, batch // 2, -1]] = row
        backwards = many[:, ::-1].copy()[:, ::-1]
        for lies, axis in ((many, 1), (np.ascontiguousarray(many.T), 0), (backwards, 1)):
            found = narrow(lies, op, stream=stream, axis=axis)
            for place in (0, batch // 2, -1):
                assert_same(found[place], alone, f"in a batch of {batch}, axis {axis}")
    for offset in cut([2, 4, 8, 12], [8]):
        if offset % row.itemsize == 0:
            assert_same(narrow(row, op, stream=stream, offset=offset), alone, f"at byte {offset}")
    assert_same(narrow(row[::-1].copy()[::-1], op, stream=stream), alone, "reversed by strides")


STRATEGIES = [
    ((40, 3), 1, ("short_rows", "rows", "batch")),
    ((9, 1000), 1, ("short_rows", "rows", "batch")),
    ((3, 30_000), 1, ("rows", "batch")),
    ((500, 6), 0, ("columns",)),
]


@pytest.mark.parametrize(("shape", "axis", "names"), STRATEGIES, ids=str)
def test_every_strategy_has_the_same_bits(stream, shape, axis, names):
    x = values("float32", shape)
    for strategy in (None, *names):
        check(x, stream, axis, strategy=strategy, repeat=2)
        if axis == 1:
            check(np.repeat(x, 2, axis=1)[:, ::2], stream, axis, strategy=strategy)


@pytest.mark.parametrize(("shape", "axis", "names"), STRATEGIES[:3], ids=str)
def test_rows_by_blocks_of_eight_warps(stream, monkeypatch, shape, axis, names):
    """As many rows have, of which a block's last are not there; rows of a warp each have four in a block."""
    monkeypatch.setattr(row_policy, "_warps_of_a_block", lambda needed, least, facts: row_policy.WARPS)
    x = values("float32", shape)
    for strategy in set(names) - {"batch"}:
        with lr.plan("sum", shape=shape, dtype="float32", axis=axis, context=stream.context, strategy=strategy) as plan:
            assert plan.strategy.warps == (4 if strategy == "rows" and shape[1] <= 1024 else 8)
        check(x, stream, axis, strategy=strategy)
        check(np.repeat(x, 2, axis=1)[:, ::2], stream, axis, "minmax", strategy=strategy)


@pytest.mark.parametrize("cluster", [2, 4, 8, 16])
def test_rows_by_clusters(stream, cluster):
    """A row by one cluster, and by several whose partials meet in the workspace."""
    if not stream.context.device.supports_clusters:
        pytest.skip("no clusters before compute capability 9.0")
    for shape in ((5, 1000), (3, cluster * 8 * 1024), (2, 2 * cluster * 8 * 1024 + 77)):
        x = values("float32", shape)
        options = {"strategy": "batch", "cluster": cluster}
        with lr.plan("sum", shape=shape, dtype="float32", axis=1, context=stream.context, **options) as plan:
            assert (plan.workspace_bytes > 0) == (shape[0] == 2)
        check(x, stream, 1, repeat=2, **options)
        check(np.repeat(x, 2, axis=1)[:, ::2], stream, 1, "minmax", **options)


def test_a_row_shared_by_blocks_leaves_a_clean_workspace(stream, cut):
    for shape, axis in cut(
        [((2, 10**6), 1), ((10**6, 3), 0), ((50_000, 64), 0)], [((2, 100_000), 1), ((70_000, 3), 0)]
    ):
        x = values("float32", shape)
        with lr.plan("sum", shape=shape, dtype="float32", axis=axis, context=stream.context) as plan:
            assert plan.strategy.parts > 1
            assert plan.workspace_bytes > 0
        check(x, stream, axis, repeat=3)
        check(x, stream, axis, "mean_var", repeat=2)


class TestTwoArrays:
    @pytest.mark.parametrize("shape", [(40,), (9, 100), (5, 1025), (3, 4, 33)], ids=str)
    def test_dot(self, stream, shape):
        x, y = values("float32", shape), values("float32", shape, seed=1)
        for axis in (None, 0, -1):
            check(x, stream, axis, "dot", second=y)
        check(x, stream, -1, "dot", second=y[..., ::-1])
        check(x, stream, -1, "dot", second=y[..., :1])

    @pytest.mark.simulated_if(lambda dtype: dtype != "float64")
    @pytest.mark.parametrize("dtype", ["float32", "int8", "float64", "complex128"])
    def test_the_second_lies_anyhow(self, stream, cut, dtype):
        """By vectors, by elements, the same one for all, and where it may be loaded byte by byte alone."""
        for shape in cut([(9, 4), (9, 100), (3, 1000), (3, 5000), (2, 70_000)], [(9, 36), (2, 5000)]):
            x, y = values(dtype, shape), values(dtype, (*shape[:-1], 2 * shape[-1]), seed=1)
            some, every_other = y[..., : shape[-1]].copy(), y[..., ::2]
            for offset in sorted({0, 1, x.itemsize}):
                check(x, stream, 1, "dot", second=some, second_offset=offset)
                check(x, stream, None, "dot", second=some, second_offset=offset)
                check(x, stream, 1, "dot", second=every_other, second_offset=offset)
            check(x, stream, 1, "dot", second=some[:, ::-1])
            check(x, stream, 1, "dot", second=some[:, :1], second_offset=1)
            check(x, stream, 1, "dot", second=some, offset=x.itemsize, second_offset=x.itemsize)
            check(x, stream, 1, "sum", second=some[:1] != 0)

    @pytest.mark.usefixtures("without_elements")
    def test_axes_of_the_second_that_cannot_be_joined(self, stream, cut):
        x = values("float32", (5, 7, 45))  # vectors lie across the ends of axes
        for second in (x[:, :1], x[:1], x.transpose(1, 0, 2).copy().transpose(1, 0, 2), x[..., :1]):
            for axis in cut([(1, 2), (0, 2), (0, 1), 2, None], [(1, 2), None]):
                check(x, stream, axis, "dot", second=second)

    def test_the_second_is_a_window_that_slides(self, stream):
        """Along each of its axes elements lie one after the other, and yet not all of them do."""
        for shape in ((3, 5), (40, 129)):
            x, y = values("float32", shape), values("float32", sum(shape) - 1, seed=1)
            window = np.lib.stride_tricks.sliding_window_view(y, shape[1])
            check(x, stream, op="dot", second=window)
            check(x, stream, second=np.lib.stride_tricks.sliding_window_view(y > 0, shape[1]))

    def test_masks_are_broadcast(self, stream):
        x = values("float32", (9, 100))
        for mask in (x > 0, x[0] > 0, x[:, :1] > 0, np.array(True), np.array(False)):
            for op, axis in (("sum", 1), ("sum", 0), ("mean", 1)):
                check(x, stream, axis, op, second=mask)
        check(x, stream, 1, "max", second=x[0] > 0, initial=0)

    def test_axes_of_one_element_are_broadcast_by_the_public_functions(self, stream):
        x = values("float32", (9, 100))
        for other in (x[:1], x[:, :1]):
            found = lr.sum(x, axis=1, where=other > 0, stream=stream).numpy()
            assert_same(found, lr.tree.reduce(x, axis=1, where=other > 0))
            found = lr.dot(x, other, axis=1, stream=stream).numpy()
            assert_same(found, lr.tree.reduce(x, "dot", axis=1, second=np.broadcast_to(other, x.shape)))

    def test_a_mask_of_rows_that_are_longer_than_a_leaf(self, stream):
        x = values("float32", (3, 5000))
        for op in ("sum", "count_nonzero"):
            check(x, stream, 1, op, second=x[:1] > 0)
            check(x, stream, None, op, second=x > 0)


@pytest.mark.parametrize("op", ["minmax", "mean_var"])
def test_two_results(stream, op):
    for shape, axis in (((9, 100), 1), ((9, 100), 0), ((3, 5000), 1), ((40,), None), ((1309,), None)):
        check(values("float32", shape), stream, axis, op)


def test_results_of_a_public_function(stream):
    x = values("float32", (6, 50))
    result = lr.mean_var(x, axis=1, stream=stream)
    assert type(result).__name__ == "mean_var"
    for found, expected in zip(result, lr.tree.reduce(x, "mean_var", axis=1), strict=True):
        assert_same(found.numpy(), expected)
    out = lr.DeviceArray.empty((2, 6), "float32", stream)
    assert lr.mean_var(x, axis=1, stream=stream, out=out) is out
    assert_same(tuple(out.numpy()), tuple(lr.tree.reduce(x, "mean_var", axis=1)))
    out = lr.DeviceArray.empty((6, 1), "float64", stream)
    assert lr.sum(x, axis=1, keepdims=True, dtype="float64", out=out, stream=stream) is out
    assert_same(out.numpy(), lr.tree.reduce(x, axis=1, keepdims=True, dtype="float64"))


@pytest.mark.parametrize(("dtype", "digits"), [("bfloat16", 8), ("float16", 11)])
def test_results_halfway_between_two_are_rounded_to_the_even_one(stream, dtype, digits):
    last, half = 2.0 ** (1 - digits), 2.0**-digits
    x = np.array([[1, half], [1 + last, half], [-1, -half], [-1 - last, -half]]).astype(numpy_dtype(dtype))
    results = check(x, stream, 1)
    assert results.astype(np.float64).tolist() == [1, 1 + 2 * last, -1, -1 - 2 * last]


@pytest.mark.parametrize(("op", "initial"), [("sum", 2.5), ("prod", -1), ("min", -np.inf), ("max", 3), ("max", np.nan)])
def test_initial(stream, few, op, initial):
    for axis in few((0, 1, None), 1):
        check(values("float32", (6, 50)), stream, axis, op, initial=initial)


@pytest.mark.usefixtures("without_elements")
def test_each_call_has_its_own_initial(stream):
    x = values("float32", (6, 50))
    check(values("complex64", (6, 50)), stream, 1, initial=3 - 5j)
    first, second = (float(lr.sum(x[0], initial=start, stream=stream)) for start in (1.0, 1000.0))
    assert second - first == pytest.approx(999, abs=1e-3)  # one plan, each value its own


def test_foreign_arrays_with_strides(stream, machine):
    if machine == "simulated":
        pytest.skip("cuda.core, which views foreign arrays, speaks to NVIDIA's driver, not to a simulated one")
    x = values("float32", (40, 60))
    base = lr.DeviceArray.from_numpy(x, stream)
    for view in (x.T, x[::-1, ::2], x[3:30, 7:], np.broadcast_to(x[0], (5, 60)), x[5:6, ::-1]):
        pointer = base.pointer + view.__array_interface__["data"][0] - x.__array_interface__["data"][0]
        foreign = Strided(base, pointer, view.shape, view.strides, view.dtype)
        for axis in (None, 0, 1):
            assert_same(lr.sum(foreign, axis=axis, stream=stream).numpy(), lr.tree.reduce(view, axis=axis))
        assert_same(lr.sum(foreign, axis=1, where=view > 0).numpy(), lr.tree.reduce(view, axis=1, where=view > 0))


def test_where_an_array_is_placed(stream):
    x = values("float32", (5, 6))[::-1, ::2]
    low, high = span(x)
    with placed(x, stream, offset=8) as first:
        memory = lr.Buffer.from_pointer(first + low, high - low, context=stream.context)
        host = np.empty(high - low, np.uint8)
        memory.copy_to(host, stream=stream)
        stream.synchronize()
    assert host[-low : -low + 4].tobytes() == x[0, 0].tobytes()
    assert host[:4].tobytes() == x[-1, 0].tobytes()


WHOLE = ["block", "cluster", "tiles", "two_pass", "cooperative"]


class TestLengthOnTheDevice:
    """The length is read when the launch runs: 0, 1, ..., the plan's, and more than that, which counts as that."""

    @pytest.mark.parametrize("strategy", WHOLE)
    def test_whole(self, stream, cut, strategy):
        n = cut(300_000, 20_000)
        x = values("float32", n)
        lengths = [n, 0, 1, 3, n // 2, 1025, 2**40, n - 1, 8 * 1024, n]
        found = reduced(x, stream=stream, lengths=lengths, strategy=strategy, accumulate="float32")
        for length, each in zip(lengths, found, strict=True):
            assert_same(each, lr.tree.reduce(x[:length], accumulate="float32"), f"{strategy}, {length} of {n}")

    @pytest.mark.parametrize(
        ("shape", "axis", "strategy"),
        [
            ((7, 20), 1, "short_rows"),
            ((7, 1000), 1, "rows"),
            ((3, 30_000), 1, "rows"),
            ((3, 30_000), 1, "batch"),
            ((1000, 7), 0, "columns"),
            ((60_000, 3), 0, "columns"),
        ],
        ids=str,
    )
    def test_rows(self, stream, shape, axis, strategy):
        x = values("float32", shape)
        n = shape[axis]
        for op in ("sum", "mean"):
            lengths = [n, 0, 1, 2, n // 2, n - 1, n + 1, 2**40, n]
            exact = {"accumulate": "float32"}
            found = reduced(x, op, stream=stream, lengths=lengths, axis=axis, strategy=strategy, **exact)
            for length, each in zip(lengths, found, strict=True):
                part = x[:length] if axis == 0 else x[:, :length]
                assert_same(each, lr.tree.reduce(part, op, axis=axis, **exact), f"{strategy}, {length} of {n}")

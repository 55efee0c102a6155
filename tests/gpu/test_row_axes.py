"""Row operations along any axis and of any stride: the tree's bits, forward and gradient, read once or again."""

import ml_dtypes
import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import tree
from lowlevel_reduce.rowops import strategy
from lowlevel_reduce.rowops.norms import divisor_words, layer_norm_of, rms_norm_of

SHAPES = [((37, 5), 0), ((3, 300, 7), 1), ((40, 2, 3), -3), ((2, 2100, 3), 1), ((5, 1, 4), 1), ((2, 33, 70), 1)]


def values(name, shape, seed=0):
    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    return (np.random.default_rng((seed, *shape)).standard_normal(shape) * 3).astype(dtype)


def assert_bits(got, expected):
    got, expected = (each if isinstance(each, tuple) else (each,) for each in (got, expected))
    for array, other in zip(got, expected, strict=True):
        one = array.numpy()
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_norms_along_any_axis(stream, cut, few, dtype):
    for shape, axis in few(cut(SHAPES, SHAPES if dtype == "bfloat16" else SHAPES[:2]), 1):
        x, r = values(dtype, shape), values(dtype, shape, 1)
        weight, bias = (values(dtype, (shape[axis],), k) for k in (2, 3))
        way = {"axis": axis, "stream": stream}
        got = lr.rms_norm(x, weight, 1e-6, residual=r, return_rstd=True, **way)
        assert_bits(got, tree.rms_norm(x, weight, 1e-6, residual=r, return_rstd=True, axis=axis))
        assert_bits(lr.layer_norm(x, weight, bias, **way), tree.layer_norm(x, weight, bias, axis=axis))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("mask", ["none", "lengths", "causal"])
def test_softmax_along_any_axis_has_the_bits_of_the_last(stream, cut, few, name, mask):
    """Where exp is, the device's own number: that of the same rows along the last axis."""
    function = getattr(lr, name)
    for shape, axis in few(cut(SHAPES, SHAPES[:2]), 1):
        x = values("float32", shape)
        moved = np.ascontiguousarray(np.moveaxis(x, axis, -1))
        lengths = np.arange(moved[..., 0].size, dtype=np.int32).reshape(moved.shape[:-1]) * 3
        options = {"none": {}, "lengths": {"lengths": lengths}, "causal": {"causal": True}}[mask]
        expected = np.moveaxis(function(moved, stream=stream, **options).numpy(), -1, axis)
        got = function(x, axis, stream=stream, **options).numpy()
        assert got.tobytes() == np.ascontiguousarray(expected).tobytes()


def test_losses_and_quantisation_along_an_axis(stream):
    x, target = values("bfloat16", (4, 96, 3)), np.arange(12).reshape(4, 3) * 9 - 3
    moved = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    got = lr.cross_entropy(x, target, axis=1, reduction="none", stream=stream)
    expected = lr.cross_entropy(moved, target, reduction="none", stream=stream)
    assert_bits(got, tuple(each.numpy() for each in expected))
    for block in (None, 32):
        got = lr.quantize(x, "int8", block=block, axis=1, stream=stream)
        assert_bits(got, tree.quantize(x, "int8", block=block, axis=1))
    assert_bits(lr.normalize(x, 2, 1, stream=stream), tree.normalize(x, 2, 1))


X, DY, WEIGHT = values("float32", (6, 70, 5)), values("float32", (6, 70, 5), 1), values("float32", (70,), 2)
"""What the gradients along the axis in the middle are of."""


def test_the_gradient_of_softmax_along_an_axis(stream):
    y = tree.softmax(X, 1)
    assert_bits(lr.softmax_backward(DY, y, axis=1, stream=stream), tree.softmax_backward(DY, y, axis=1))


def test_the_gradient_of_rms_norm_along_an_axis(stream):
    rstd = tree.rms_norm(X, WEIGHT, 1e-6, axis=1, return_rstd=True).rstd
    got = lr.rms_norm_backward(DY, X, rstd, WEIGHT, axis=1, stream=stream)
    assert_bits(got, tree.rms_norm_backward(DY, X, rstd, WEIGHT, axis=1))


def test_the_gradient_of_layer_norm_along_an_axis(stream):
    _, mean, rstd = tree.layer_norm(X, WEIGHT, WEIGHT, axis=1, return_stats=True)
    got = lr.layer_norm_backward(DY, X, mean, rstd, WEIGHT, axis=1, bias=True, stream=stream)
    expected = tree.layer_norm_backward(DY, X, mean, rstd, WEIGHT, axis=1, bias=True)
    assert_bits(got, expected)
    last = [np.ascontiguousarray(np.moveaxis(each, 1, -1)) for each in (DY, X)]
    assert expected[1].tobytes() == tree.layer_norm_backward(*last, mean, rstd, WEIGHT, bias=True)[1].tobytes()


@pytest.mark.parametrize("step", [2, -1, -3, 0])
def test_a_strided_last_axis(stream, step):
    """Every other element, reversed, broadcast; the output lies otherwise, or in the input's place."""
    flat = values("float32", (4096,))
    memory = lr.DeviceArray.from_numpy(flat, stream)
    shape, first = (3, 290), 0 if step >= 0 else -step * 290
    strides = (4 * 1000, 4 * step)
    view = np.lib.stride_tricks.as_strided(flat[first:], shape, strides)
    expected = tree.rms_norm(np.ascontiguousarray(view), eps=1e-6)
    operation = rms_norm_of(weight=False, residual=False, keeps=False)
    out = lr.DeviceArray.empty(shape, "float32", stream)
    for into in (None, strides)[: 1 if step == 0 else 2]:
        plan = lr.row_plan(
            operation, shape=shape, dtype="float32", strides_bytes=strides, parameters={"eps": 1e-6},
            output_strides_bytes={} if into is None else {"out": into}, context=stream.context,
        )  # fmt: skip
        assert plan.mapping.name == "column_rows"
        source = memory.pointer + 4 * first
        launch = plan.bind(stream)
        launch.check(source, out.pointer if into is None else source)
        launch(source, out.pointer if into is None else source)
        if into is None:
            assert_bits(out, expected)
    after = flat.copy()
    if step:
        np.lib.stride_tricks.as_strided(after[first:], shape, strides)[...] = expected
    assert memory.numpy().tobytes() == after.tobytes(), "what lies between the rows was written"


def test_columns_that_are_kept_in_part(stream, monkeypatch):
    """What does not fit the shared memory is read a second time; of two arrays both are."""
    x, weight, bias = values("float32", (700, 6)), values("float32", (700,), 1), values("float32", (700,), 2)
    room = 2 * 8 * 16 * 32
    most = stream.context.device.shared_memory_per_block_optin_bytes
    monkeypatch.setattr(strategy, "_COLUMN_STATIC_BYTES", most - room)
    monkeypatch.setattr(strategy, "_COLUMN_THREADS", 32)
    plan = lr.row_plan(
        layer_norm_of(weight=True, bias=True, keeps=False), shape=(6, 700), dtype="float32", strides_bytes=(4, 24),
        parameters={"eps": 1e-5}, output_strides_bytes={"out": (4, 24)}, context=stream.context, cluster=1,
    )  # fmt: skip
    assert plan.mapping.reads == 2
    assert plan.mapping.cut >> 14 & 0x3FFFF > 0
    arrays = [lr.DeviceArray.from_numpy(each, stream) for each in (x, weight, bias)]
    plan.bind(stream)(*(each.pointer for each in arrays), arrays[0].pointer)
    assert_bits(arrays[0], tree.layer_norm(x, weight, bias, axis=0))


@pytest.mark.parametrize("cluster", [2, 4, 8])
def test_columns_of_a_cluster(stream, cut, cluster):
    """Each block has a run of a column's units, some none; all learn what it comes to, of long accumulators too."""
    shapes = [((700, 5), "float32"), ((2100, 3), "bfloat16"), ((5000, 40), "bfloat16")]
    for shape, dtype in cut(shapes, shapes[:1]):
        x, weight = values(dtype, shape), values(dtype, (shape[0],), 1)
        way = {"strategy": "column_rows", "cluster": cluster, "stream": stream}
        got = lr.layer_norm(x, weight, weight, axis=0, return_stats=True, **way)
        assert_bits(got, tree.layer_norm(x, weight, weight, axis=0, return_stats=True))
        assert_bits(lr.softmax(x, 0, **way), (lr.softmax(x, 0, stream=stream).numpy(),))
        target = np.arange(shape[1])
        alone = lr.cross_entropy(x, target, axis=0, reduction="none", stream=stream)
        got = lr.cross_entropy(x, target, axis=0, reduction="none", **way)
        assert_bits(got, tuple(each.numpy() for each in alone))


def test_contiguous_rows_by_columns(stream):
    """The strategy serves any layout; all give the same bits."""
    x = values("bfloat16", (3, 2500))
    got = lr.rms_norm(x, strategy="column_rows", stream=stream)
    assert_bits(got, tree.rms_norm(x))


OWN = lr.RowOperation(
    "own_of_columns",
    reduce={"middle": "mean", "place": "argmax"},
    write={"out": "(x - middle) * Number(i - place)", "looked: float64": "table[i - 2]"},
    keep={"last": "at(n - 1)", "first": "table[0]"},
    tables=("table",),
    numpy=lr.RowMeaning(
        write=lambda v: {
            "out": (v.x - v.middle) * (v.i - v.place).astype(v.number),
            "looked": v.table[v.i - 2],
            "last": v.at(v.n - 1),
            "first": v.table[np.zeros((1, 1), int)],
        },
    ),
)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_own_operation_and_its_table(stream, axis):
    """An element's number and index are those along the axis; what a table does not have is NaN."""
    x, table = values("float32", (9, 34, 5)), values("bfloat16", (7,), 1)
    got = lr.row_operation(OWN, x, axis=axis, table=table, stream=stream)
    assert_bits(got, tree.row_operation(OWN, x, axis=axis, table=table))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_group_norm(stream, cut, dtype):
    for shape, groups in cut(
        [((2, 6, 5, 3), 2), ((3, 8), 8), ((1, 4, 700), 1), ((2, 64, 33), 16)], [((2, 6, 5, 3), 2)]
    ):
        x = values(dtype, shape)
        weight, bias = (values(dtype, (shape[1],), k) for k in (1, 2))
        for given in ({}, {"weight": weight}, {"weight": weight, "bias": bias}):
            got = lr.group_norm(x, groups, stream=stream, **given)
            assert_bits(got, tree.group_norm(x, groups, **given))
        wide = x.astype(np.float64).reshape(shape[0], groups, -1)
        meant = ((wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)).reshape(shape)
        beside = (1, shape[1], *(1,) * (len(shape) - 2))
        meant = meant * weight.astype(np.float64).reshape(beside) + bias.astype(np.float64).reshape(beside)
        assert np.abs(got.numpy().astype(np.float64) - meant).max() < (0.1 if dtype == "bfloat16" else 1e-5)


def test_division_by_a_word():
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 7, 96, 1000, 12_345_677, (1 << 30) - 1, 1 << 30):
        word, shift = divisor_words(size)
        near = np.arange(0, 1 << 30, max(size, 1 << 16))[:20_000]
        i = np.concatenate([near, near - 1, rng.integers(0, 1 << 30, 1000), [(1 << 30) - 1]])
        i = i[i >= 0]
        assert word < 1 << 32
        np.testing.assert_array_equal(i * word >> shift, i // size)

"""The gradient of group_norm on the device: NumPy's bits, by any strategy and in any batch; and that it is one."""

import ml_dtypes
import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import tree


def drawn(dtype, shape, groups):
    """Return an array, the gradient of its group_norm, weights, biases and statistics."""
    rng = np.random.default_rng((groups, *shape))
    own = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    x, dy = (rng.standard_normal((2, *shape)) * 3 + 1).astype(own)
    weight, bias = rng.standard_normal((2, shape[1])).astype(own)
    _, mean, rstd = tree.group_norm(x, groups, weight, bias, return_stats=True)
    return x, dy, weight, bias, mean, rstd


def assert_bits(got, expected):
    for array, other in zip(got, expected, strict=True):
        if other is None:
            assert array is None
            continue
        one = array.numpy()
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


SHAPES = [((2, 6, 5, 3), 2), ((3, 8), 8), ((1, 4, 700), 1), ((2, 64, 33), 16), ((2, 4, 40, 40), 2)]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_the_trees_bits(stream, cut, dtype):
    for shape, groups in cut(SHAPES, SHAPES[:1]):
        x, dy, weight, bias, mean, rstd = drawn(dtype, shape, groups)
        assert_bits(
            lr.group_norm(x, groups, weight, bias, return_stats=True, stream=stream),
            tree.group_norm(x, groups, weight, bias, return_stats=True),
        )
        for given in ({"weight": weight, "bias": True}, {}, {"bias": True}, {"weight": weight}):
            got = lr.group_norm_backward(dy, x, mean, rstd, groups, stream=stream, **given)
            assert_bits(got, tree.group_norm_backward(dy, x, mean, rstd, groups, **given))
            assert [each is None for each in got] == [False, "weight" not in given, "bias" not in given]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_channels_of_one_element(stream, cut, dtype):
    """Rows of samples have the bits of rows of channels, which NumPy's are, with numbers that are none, too."""
    for shape, groups in cut([((5, 48), 3), ((4, 64, 1, 1), 4), ((2, 40), 40)], [((5, 48), 3)]):
        x, dy, weight, _, mean, rstd = drawn(dtype, shape, groups)
        dy[0, 0], dy[1, 1], dy[1, 30], x[1, 5] = -0.0, np.inf, np.nan, np.nan
        for given in ({"weight": weight, "bias": True}, {"bias": True}, {"weight": weight}):
            got = lr.group_norm_backward(dy, x, mean, rstd, groups, stream=stream, **given)
            assert_bits(got, tree.group_norm_backward(dy, x, mean, rstd, groups, **given))


@pytest.mark.parametrize("way", [{"strategy": f"{each}_rows"} for each in ("warp", "block", "turn")], ids=str)
def test_every_strategy_and_in_place(stream, way):
    x, dy, weight, _, mean, rstd = drawn("float32", (2, 6, 5, 7), 3)
    expected = tree.group_norm_backward(dy, x, mean, rstd, 3, weight, bias=True)
    out = lr.DeviceArray.from_numpy(dy, stream)
    got = lr.group_norm_backward(out, x, mean, rstd, 3, weight, bias=True, stream=stream, out=out, **way)
    assert got[0] is out or got[0].pointer == out.pointer
    assert_bits(got, expected)
    assert_bits(lr.group_norm_backward(dy, x, mean, rstd, 3, weight, bias=True, stream=stream, **way), expected)


def test_a_sample_has_its_bits_in_any_batch(stream):
    x, dy, weight, _, mean, rstd = drawn("bfloat16", (9, 6, 5, 3), 2)
    whole = lr.group_norm_backward(dy, x, mean, rstd, 2, weight, stream=stream)[0].numpy()
    for rows in (slice(4, 5), slice(2, 9)):
        alone = lr.group_norm_backward(dy[rows], x[rows], mean[rows], rstd[rows], 2, weight, stream=stream)[0].numpy()
        assert alone.tobytes() == whole[rows].tobytes()


def test_it_is_the_gradient():
    """In float64, against differences of the function."""
    x, dy, weight, bias, mean, rstd = drawn("float64", (2, 6, 4), 3)
    arrays = {"x": x, "weight": weight, "bias": bias}
    gradients = tree.group_norm_backward(dy, x, mean, rstd, 3, weight, bias=True)
    for (name, array), gradient in zip(arrays.items(), gradients, strict=True):
        for place in ((1, 4, 2), (0, 0, 3)) if name == "x" else ((5,), (2,)):
            step = np.zeros_like(array)
            step[place] = 1e-5
            more, less = (tree.group_norm(num_groups=3, **{**arrays, name: array + sign * step}) for sign in (1, -1))
            assert np.sum((more - less) * dy) / 2e-5 == pytest.approx(gradient[place], rel=1e-6, abs=1e-8), name


def test_what_it_refuses(stream):
    x, dy, weight, _, mean, rstd = drawn("float32", (2, 6, 5), 3)
    with pytest.raises(ValueError, match=r"weight has shape \(5,\), not \(6,\)"):
        lr.group_norm_backward(dy, x, mean, rstd, 3, weight[:5], stream=stream)
    with pytest.raises(ValueError, match=r"mean has shape \(2, 3\), not \(2, 2\)"):
        lr.group_norm_backward(dy, x, mean, rstd, 2, weight, stream=stream)
    with pytest.raises(ValueError, match="the second array is of shape"):
        lr.group_norm_backward(dy[:1], x, mean, rstd, 3, weight, stream=stream)
    with pytest.raises(ValueError, match="6 channels do not divide into 4 groups"):
        lr.group_norm_backward(dy, x, mean, rstd, 4, weight, stream=stream)
    with pytest.raises(ValueError, match="without channels"):
        tree.group_norm_backward(dy[:, :0], x[:, :0], mean, rstd, 3)


def test_lists_are_arrays(stream):
    x, dy, weight, _, mean, rstd = drawn("float64", (2, 6, 5), 3)
    lists = [each.tolist() for each in (dy, x, mean, rstd)]
    for one, other in zip(
        tree.group_norm_backward(*lists, 3, weight.tolist(), bias=True),
        tree.group_norm_backward(dy, x, mean, rstd, 3, weight, bias=True),
        strict=True,
    ):
        assert one.tobytes() == other.tobytes()

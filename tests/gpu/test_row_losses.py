"""Losses on the device and in NumPy: rows that are not finite, the digits of gradients, weights, smoothed labels."""

import ml_dtypes
import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import tree

INF, NAN = np.inf, np.nan
ROWS = {
    "an infinity": [INF, 0, 1],
    "two": [INF, INF, 0],
    "nothing else": [INF, INF, INF],
    "both signs": [INF, -INF, 0],
    "no probability": [-INF, -INF, -INF],
    "NaN": [NAN, 0, 1],
    "NaN beside an infinity": [NAN, INF, 0],
}
"""Rows of which torch makes NaN, whatever the target is."""

LSE = {"NaN": NAN, "NaN beside an infinity": NAN, "no probability": -INF}
"""What torch.logsumexp gives for them, if not inf."""


def values(dtype, shape, seed=0):
    rng = np.random.default_rng((seed, *shape))
    return (rng.standard_normal(shape) * 3).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def host(found):
    """Return results as arrays of float64 numbers."""
    several = found if isinstance(found, tuple) else (found,)
    return [(each.numpy() if hasattr(each, "numpy") else np.asarray(each)).astype(np.float64) for each in several]


def off_by(got, exact, dtype):
    """Return by how many units in the last place of the exact numbers others are off."""
    info = ml_dtypes.finfo(np.asarray(got).dtype if dtype is None else dtype)
    unit = np.exp2(np.floor(np.log2(np.maximum(np.abs(exact), float(info.tiny)))) - info.nmant)
    return np.abs(np.asarray(got, np.float64) - exact) / unit


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("where", ["device", "host"])
def test_rows_that_are_not_finite(stream, dtype, where):
    of, way = (lr, {"stream": stream}) if where == "device" else (tree, {})
    names = list(ROWS)
    x = np.array([ROWS[name] for name in names for _ in range(3)]).astype(values(dtype, (1,)).dtype)
    target = np.tile(np.arange(3), len(names))
    found = of.cross_entropy(x, target, reduction="none", **way)
    loss, lse = host(found)
    assert np.isnan(loss).all()
    np.testing.assert_array_equal(lse, np.repeat([LSE.get(name, INF) for name in names], 3))
    log_prob, again = host(of.log_prob(x, target, **way))
    assert np.isnan(log_prob).all()
    np.testing.assert_array_equal(again, lse)
    for function in (of.softmax, of.log_softmax):
        assert np.isnan(host(function(x, **way))[0]).all()
    stats = of.cross_entropy(x, target, reduction="none", return_stats=True, **way)
    dloss = np.ones(len(x), np.float64 if dtype == "float64" else np.float32)
    dx = of.cross_entropy_backward(dloss, x, target, largest=stats.largest, rest=stats.rest, **way)
    assert np.isnan(host(dx)[0]).all()
    assert not host(of.cross_entropy(x, target * 0 - 100, reduction="none", **way))[0].any()


@pytest.mark.parametrize("where", ["device", "host"])
def test_elements_without_a_probability(stream, where):
    """Beside finite elements one of -inf has probability 0, and as a target an infinite loss."""
    of, way = (lr, {"stream": stream}) if where == "device" else (tree, {})
    x = np.array([[-INF, 0, 1]] * 3, np.float32)
    target = np.arange(3)
    p = np.exp([-INF, 0, 1]) / (1 + np.e)
    loss, largest, rest = of.cross_entropy(x, target, reduction="none", return_stats=True, **way)
    np.testing.assert_allclose(host(loss)[0], -np.log(p, where=p > 0, out=np.full(3, -INF)), rtol=1e-6)
    assert host(of.softmax(x, **way))[0][0, 0] == 0
    assert host(of.log_softmax(x, **way))[0][0, 0] == -INF
    dx = of.cross_entropy_backward(np.ones(3, np.float32), x, target, largest=largest, rest=rest, **way)
    np.testing.assert_allclose(host(dx)[0], p - np.eye(3), rtol=1e-6)


@pytest.mark.parametrize("where", ["device", "host"])
@pytest.mark.parametrize("level", [0, 1e3, 1e4])
def test_a_gradient_has_the_digits_of_its_statistics(stream, level, where):
    """Whatever the logits' level: of the log-sum-exp, rounded, 1e4 would leave 11 of 24 bits.

    Of the statistics that were kept, in units in the last place: 2 for the exponential and 1 for the inverse,
    halves for their product, for the sum of exponentials with the largest one's, and for the product with the
    loss's gradient; and what the distance from the largest logit was rounded by. At a target, whose probability is
    below a half, that of the probability counts for half, and there is one half more for the difference from 1; at
    one that is the largest element, halves for the sum, the quotient and the product. Of the exact numbers besides,
    the statistics' own error: 5 epsilon for each level of the tree.
    """
    of, way = (lr, {"stream": stream}) if where == "device" else (tree, {})
    count = 900
    x = values("float32", (6, count)) + np.float32(level)
    target = np.array([5, 7, 9, 0, 0, 0])
    target[3:] = np.argmax(x[3:], axis=1)
    x[np.arange(4, 6), target[4:]] += np.float32(12)  # far ahead of the others
    dloss = values("float32", (6,), 1)
    stats = of.cross_entropy(x, target, reduction="none", return_stats=True, **way)
    largest, rest = host(stats.largest)[0][:, None], host(stats.rest)[0][:, None]
    dx = host(of.cross_entropy_backward(dloss, x, target, largest=stats.largest, rest=stats.rest, **way))[0]
    here = np.arange(count) == target[:, None]
    wide = x.astype(np.float64)
    at_target = np.where(wide == largest, -rest, np.exp(wide - largest) - (1 + rest))
    exact = np.where(here, at_target, np.exp(wide - largest)) / (1 + rest) * dloss[:, None].astype(np.float64)
    off = off_by(dx, exact, np.float32)
    rounded = np.abs((x - largest.astype(np.float32)).astype(np.float64) - (wide - largest)) * 2.0**24
    assert (off - rounded)[~here].max() <= 3 + 3 * 0.5 + 0.1
    assert (off - rounded)[here].max() <= 1.5 + 4 * 0.5 + 0.1
    others = np.exp(wide - wide.max(1, keepdims=True))
    sums = others.sum(1, keepdims=True, where=wide < wide.max(1, keepdims=True))
    true = np.where(here & (wide == wide.max(1, keepdims=True)), -sums, others - here * (1 + sums)) / (1 + sums)
    relative = np.abs(dx / dloss[:, None].astype(np.float64) / true - 1)
    assert (relative - rounded * 2.0**-24).max() <= (5 * 10 + 10) * 2.0**-24


@pytest.mark.parametrize("level", [0, 1e3])
def test_a_gradient_of_16_bits_is_rounded_once(stream, level):
    """Besides half a unit of its own, what float32 loses in the difference from the largest and in the exponential."""
    x = (values("float32", (4, 700)) + np.float32(level)).astype(ml_dtypes.bfloat16)
    x[:, 1] += x.dtype.type(64 if level else 8)
    target = np.array([1, 1, 5, 6])
    dloss = np.array([1, 0.5, 1, 2], np.float32)
    for of, way in ((lr, {"stream": stream}), (tree, {})):
        stats = of.cross_entropy(x, target, reduction="none", return_stats=True, **way)
        largest, rest = host(stats.largest)[0][:, None], host(stats.rest)[0][:, None]
        dx = of.cross_entropy_backward(dloss, x, target, largest=stats.largest, rest=stats.rest, **way)
        wide, here = x.astype(np.float64), np.arange(700) == target[:, None]
        top = np.where(wide == largest, -rest, np.exp(wide - largest) - (1 + rest))
        exact = np.where(here, top, np.exp(wide - largest)) / (1 + rest) * dloss[:, None]
        usual = np.abs(exact) > 2.0**-120
        assert off_by(host(dx)[0], exact, ml_dtypes.bfloat16)[usual].max() <= 0.51


def test_the_loss_is_the_same_with_its_statistics(stream):
    x, target = values("float32", (3, 500)) + np.float32(300), np.array([1, 499, 250])
    stats = lr.cross_entropy(x, target, reduction="none", return_stats=True, stream=stream)
    plain = lr.cross_entropy(x, target, reduction="none", stream=stream)
    assert plain.loss.numpy().tobytes() == stats.loss.numpy().tobytes()
    rest = stats.rest.numpy().astype(np.float64)
    np.testing.assert_allclose(plain.lse.numpy(), stats.largest.numpy() + np.log1p(rest), rtol=2e-7)
    one = np.ones(3, np.float32)
    dx = lr.cross_entropy_backward(one, x, target, largest=stats.largest, rest=stats.rest, stream=stream).numpy()
    by_lse = lr.cross_entropy_backward(one, x, target, plain.lse, stream=stream).numpy()
    assert np.abs(by_lse - dx).max() <= 300 * 2.0**-23


OPTIONS = [{}, {"label_smoothing": 0.1}, {"weight": True}, {"weight": True, "label_smoothing": 0.25}]


def reference(x, target, weight=None, label_smoothing=0.0, ignore_index=-100):
    """Return losses, what they count and the gradients of their sum, in float64, by torch's documented formula."""
    x = x.astype(np.float64)
    n = x.shape[1]
    w = np.ones(n) if weight is None else weight.astype(np.float64)
    minus = np.log(np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True)) + x.max(1, keepdims=True) - x
    there = target != ignore_index
    chosen = np.where(there, target, 0)
    hot = np.eye(n)[chosen] * w * (1 - label_smoothing) + label_smoothing / n * w
    loss = (hot * minus).sum(1) * there
    gradient = (np.exp(-minus) * hot.sum(1, keepdims=True) - hot) * there[:, None]
    return loss, w[chosen] * there, gradient


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_and_smoothed_labels(stream, cut, options, dtype):
    for rows, count in cut([(7, 90), (5, 3000)], [(5, 90)]):
        x, target = values(dtype, (rows, count)), np.arange(rows) * 11
        target[2] = -100
        options = dict(options)
        if "weight" in options:
            options["weight"] = np.abs(values(dtype, (count,), 3))
        loss, counts, gradient = reference(x, target, **options)
        largest = np.abs(loss).max()
        for of, way in ((lr, {"stream": stream}), (tree, {})):
            stats = of.cross_entropy(x, target, reduction="none", return_stats=True, **options, **way)
            np.testing.assert_allclose(host(stats.loss)[0], loss, rtol=3e-6, atol=3e-6 * largest)
            for reduction, expected in (("sum", loss.sum()), ("mean", loss.sum() / counts.sum())):
                got = host(of.cross_entropy(x, target, reduction=reduction, **options, **way))[0]
                np.testing.assert_allclose(got, expected, rtol=1e-5)
            given = {"largest": stats.largest, "rest": stats.rest, **options, **way}
            got = host(of.cross_entropy_backward(np.ones(rows, np.float32), x, target, **given))[0]
            np.testing.assert_allclose(
                got, gradient, atol=(4e-3 if dtype == "bfloat16" else 2e-6) * np.abs(gradient).max()
            )


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_row_has_its_bits_in_any_batch(stream, few, options):
    x, target = values("bfloat16", (40, 650)), np.arange(40) % 7 * 90
    options = {**options, **({"weight": np.abs(values("float32", (650,), 3))} if "weight" in options else {})}
    dloss = values("float32", (40,), 4)
    whole = None
    for way in few([{}, {"strategy": "warp_rows"}, {"strategy": "block_rows"}, {"strategy": "turn_rows"}], 2):
        for rows in (slice(None), slice(17, 18), slice(12, 19)):
            stats = lr.cross_entropy(
                x[rows], target[rows], reduction="none", return_stats=True, stream=stream, **options, **way
            )
            given = {"largest": stats.largest, "rest": stats.rest, "stream": stream, **options, **way}
            dx = lr.cross_entropy_backward(dloss[rows], x[rows], target[rows], **given)
            found = [each.numpy() for each in (*stats, dx)]
            whole = whole or found
            for one, all_of_them in zip(found, whole, strict=True):
                assert one.tobytes() == all_of_them[rows].tobytes()


def test_what_a_loss_refuses():
    x, target = np.zeros((2, 5), np.float32), np.zeros(2, np.int64)
    stats = tree.cross_entropy(x, target, reduction="none", return_stats=True)
    both = {"largest": stats.largest, "rest": stats.rest}
    for error, words, given in (
        (lr.UnsupportedError, "not probabilities", {"target": x}),
        (ValueError, "label_smoothing is between 0 and 1, not 1.5", {"label_smoothing": 1.5}),
        (ValueError, "label_smoothing is 0 or more", {"label_smoothing": -0.5}),
        (ValueError, r"weight has shape \(4,\), not \(5,\)", {"weight": np.ones(4)}),
        (ValueError, "return_stats goes with", {"return_stats": True}),
    ):
        with pytest.raises(error, match=words):
            tree.cross_entropy(x, **{"target": target, **given})
    for given in ({}, {"lse": stats.loss, **both}, {"largest": stats.largest}):
        with pytest.raises(TypeError, match="of lse, or of largest and rest"):
            tree.cross_entropy_backward(stats.loss, x, target, **given)


def test_batches_of_nothing_and_of_ignored_rows(stream):
    """As in torch: the mean of no losses is NaN, their sum 0."""
    x, target = np.zeros((0, 5), np.float32), np.zeros(0, np.int64)
    for of, way in ((lr, {"stream": stream}), (tree, {})):
        assert np.isnan(host(of.cross_entropy(x, target, **way))[0])
        assert host(of.cross_entropy(x, target, reduction="sum", **way))[0] == 0
        ignored = np.full(3, -100), np.ones((3, 5), np.float32)
        assert np.isnan(host(of.cross_entropy(*ignored[::-1], **way))[0])
        assert host(of.cross_entropy(*ignored[::-1], reduction="sum", weight=ignored[1][0], **way))[0] == 0

"""The tree's results beside PyTorch's own of the same tensors: another library's word on what an operator means."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch has an environment with it")

import lowlevel_reduce as lr  # noqa: E402
from benchmarks.measure.problems import Case  # noqa: E402
from benchmarks.peers.torch_peer import TorchPeer  # noqa: E402

SHAPE = (37, 53)
AXES = [None, 0, 1]


def planes(result):
    return [np.asarray(each) for each in (result if isinstance(result, tuple) else (result,))]


def tensor_of(dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if dtype == "bool":
        return torch.rand(SHAPE, generator=generator) < 0.05
    # All different, so that there is one place of the largest.
    shuffled = torch.randperm(SHAPE[0] * SHAPE[1], generator=generator).reshape(SHAPE) - 700
    return shuffled.to(getattr(torch, dtype))


NUMBERS = ("int16", "int64", "float16", "float64")
EXACT = {
    "max": (torch.amax, (*NUMBERS, "bool")),
    "min": (torch.amin, (*NUMBERS, "bool")),
    "argmax": (torch.argmax, NUMBERS),
    "argmin": (torch.argmin, NUMBERS),
    "any": (torch.any, (*NUMBERS, "bool")),
    "all": (torch.all, (*NUMBERS, "bool")),
    "count_nonzero": (torch.count_nonzero, (*NUMBERS, "bool")),
}


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize(("op", "dtype"), [(op, dtype) for op, (_, dtypes) in EXACT.items() for dtype in dtypes])
def test_exact_results_are_equal(op, dtype, axis):
    x = tensor_of(dtype)
    if dtype == "float64" and op in ("max", "min"):
        x[5, 7] = torch.nan  # which propagates
    expected = EXACT[op][0](x, **({} if axis is None else {"dim": axis}))
    np.testing.assert_array_equal(lr.tree.reduce(x.numpy(), op, axis=axis), expected.numpy())


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
def test_sums_of_integers_are_equal_and_those_without_nan(dtype, axis):
    x = tensor_of(dtype)
    if x.is_floating_point():
        x[::3, ::2] = torch.nan
    expected = torch.nansum(x.double(), dim=axis)
    found = lr.tree.reduce(x.numpy(), axis=axis, dtype="float64", nan="ignore")
    np.testing.assert_array_equal(found, expected.numpy())


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize(
    "op", ["sum", "max", "argmax", "minmax", "var", "std", "mean_var", "norm2", "dot", "logsumexp"]
)
def test_the_competitor_of_the_benchmarks_computes_what_we_do(op, axis):
    """Its calls are timed next to ours, and these are they."""
    peer = TorchPeer.__new__(TorchPeer)  # without a GPU, which opening it wants
    peer.torch = torch
    x, y = (tensor_of("float64", seed) / 100 for seed in (1, 2))
    if axis is None:
        x, y = x.reshape(-1), y.reshape(-1)
    function = peer.function(Case(op, tuple(x.shape), axis, "float64"))
    theirs = function((x, y) if op == "dot" else x)
    second = {"second": y.numpy()} if op == "dot" else {}
    ours = planes(lr.tree.reduce(x.numpy(), op, axis=axis, **second))
    assert len(ours) == len(planes(theirs))
    for found, expected in zip(ours, planes(theirs), strict=True):
        # Both round each of at most 1961 sums of terms below 13**2 by half an ulp, in an order of their own.
        np.testing.assert_allclose(found, expected, rtol=1961 * 2**-52, atol=1961 * 170 * 2**-52)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize(("op", "theirs"), [("var", torch.var), ("std", torch.std)])
@pytest.mark.parametrize("ddof", [0, 1, 3])
def test_variances_are_theirs_with_their_correction(op, theirs, ddof, axis):
    x = tensor_of("float64") / 100
    found = lr.tree.reduce(x.numpy(), op, axis=axis, ddof=ddof)
    expected = theirs(x, dim=axis, correction=ddof).numpy()
    np.testing.assert_allclose(found, expected, rtol=1961 * 2**-52)

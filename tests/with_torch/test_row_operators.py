"""The operators for PyTorch on tensors of the CPU: the tree's bits, opcheck, gradients, tracing."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import lowlevel_reduce as lr
import lowlevel_reduce.torch as lt
from lowlevel_reduce import tree
from lowlevel_reduce.torch.tensors import as_numpy, as_tensor

OPS = torch.ops.lowlevel_reduce


def tensors(dtype=torch.float64, shape=(5, 33), seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    weight, bias = (torch.randn(shape[-1:], generator=generator, dtype=torch.float64).to(dtype) for _ in range(2))
    return [each.requires_grad_() for each in (x, weight, bias)]


TARGET = torch.tensor([0, 3, 32, 7, -100])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_trees_bits(dtype):
    x, weight, bias = tensors(dtype)
    pairs = [
        (lt.softmax(x, scale=0.5), tree.softmax(as_numpy(x), scale=0.5)),
        (lt.log_softmax(x), tree.log_softmax(as_numpy(x))),
        (lt.rms_norm(x, weight), tree.rms_norm(as_numpy(x), as_numpy(weight))),
        (lt.layer_norm(x, weight, bias), tree.layer_norm(as_numpy(x), as_numpy(weight), as_numpy(bias))),
        (lt.sum(x, 0), tree.reduce(as_numpy(x), axis=0)),
        (lt.mean(x, -1, True), tree.reduce(as_numpy(x), "mean", axis=-1, keepdims=True)),
        (
            lt.cross_entropy(x, TARGET, reduction="sum"),
            tree.cross_entropy(as_numpy(x), TARGET.numpy(), reduction="sum"),
        ),
    ]
    for got, expected in pairs:
        assert as_numpy(got).tobytes() == np.asarray(expected).tobytes()
    torch.testing.assert_close(lt.softmax(x), torch.softmax(x, -1))
    torch.testing.assert_close(lt.layer_norm(x, weight, bias), torch.nn.functional.layer_norm(x, (33,), weight, bias))
    torch.testing.assert_close(
        lt.rms_norm(x, weight), torch.nn.functional.rms_norm(x, (33,), weight), rtol=2e-2, atol=2e-2
    )


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("softmax", (0.5, False)),
        ("softmax", (1.0, True)),
        ("rms_norm", ("weight", 1e-5)),
        ("rms_norm", (None, 1e-5)),
        ("layer_norm", ("weight", "bias", 1e-5)),
        ("layer_norm", (None, None, 1e-5)),
        ("cross_entropy", (TARGET, -100)),
        ("cross_entropy", (TARGET, -100, "plain", 0.1)),
        ("group_norm", (3, None, None, 1e-5)),
        ("group_norm", (11, "weight", "bias", 1e-5)),
        ("sum", ([0], False, None)),
        ("mean", ([0, 1], True, torch.float32)),
    ],
)
def test_opcheck(name, rest):
    x, weight, bias = tensors()
    known = {"weight": weight, "bias": bias, "plain": weight.detach().abs()}
    arguments = [known.get(each, each) if isinstance(each, str) else each for each in rest]
    found = torch.library.opcheck(getattr(OPS, name).default, (x, *arguments))
    assert set(found.values()) == {"SUCCESS"}


def test_gradients():
    x, weight, bias = tensors(shape=(4, 9))
    target = torch.tensor([0, 3, 8, -100])
    check = torch.autograd.gradcheck
    assert check(lt.layer_norm, (x, weight, bias))
    assert check(lt.layer_norm, (x,))
    assert check(lambda x, w: lt.rms_norm(x, w, 1e-5), (x, weight))
    assert check(lambda x: lt.rms_norm(x, None, 1e-5), (x,))
    assert check(lambda x: lt.softmax(x, 0, scale=0.5), (x,))
    assert check(lt.log_softmax, (x,))
    assert check(lambda x: lt.cross_entropy(x, target), (x,))
    assert check(lambda x: lt.mean(x, 0), (x,))


@pytest.mark.parametrize("shape", [(2, 6, 2, 3), (3, 6)])
def test_gradients_of_group_norm(shape):
    x, _, _ = tensors(shape=shape)
    weight, bias = tensors(shape=(2, 6), seed=1)[1:]
    check = torch.autograd.gradcheck
    assert check(lambda x, w, b: lt.group_norm(x, 3, w, b), (x, weight, bias))
    assert check(lambda x: lt.group_norm(x, 2), (x,))
    assert check(lambda x, b: lt.group_norm(x, 3, None, b), (x, bias))
    apart = x.detach().transpose(0, -1).contiguous().transpose(0, -1)
    torch.testing.assert_close(lt.group_norm(apart, 3, weight, bias), lt.group_norm(x, 3, weight, bias))


@pytest.mark.parametrize("shape", [(4, 6, 5), (4, 6), (4, 6, 1, 1)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_group_norm_is_torchs(dtype, shape):
    x, weight, bias = tensors(dtype, shape)[0], *tensors(dtype, (1, 6))[1:]
    dy, found = torch.randn(*shape, generator=torch.Generator().manual_seed(3)).to(dtype), []
    for norm in (lt.group_norm, torch.nn.functional.group_norm):
        out = norm(x, 3, weight, bias)
        found.append((out.detach(), *torch.autograd.grad(out, (x, weight, bias), dy)))
    tolerance = {"rtol": 2e-2, "atol": 6e-2} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    for one, other in zip(*found, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, **tolerance)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_are_torchs(weighted, smoothing, reduction):
    x, weight, _ = tensors()
    options = {"label_smoothing": smoothing, "reduction": reduction}
    weight = weight.detach().abs() if weighted else None
    ours = lt.cross_entropy(x, TARGET, weight, **options)
    torch.testing.assert_close(ours, torch.nn.functional.cross_entropy(x, TARGET, weight, **options))
    assert torch.autograd.gradcheck(lambda x: lt.cross_entropy(x, TARGET, weight, **options), (x,))


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    "row", [[INF, 0, 1], [INF, INF, 0], [-INF, 0, 1], [-INF] * 3, [NAN, 0, 1], [INF, -INF, NAN]], ids=str
)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_rows_that_are_not_finite_give_what_torch_gives(row, smoothing):
    found = []
    for functions in (lt, torch.nn.functional):
        x = torch.tensor([row] * 3, requires_grad=True)
        loss = functions.cross_entropy(x, torch.arange(3), reduction="none", label_smoothing=smoothing)
        loss.sum().backward()
        found.append((loss, x.grad, functions.softmax(x, -1), functions.log_softmax(x, -1)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)


def test_the_gradient_of_large_logits():
    """In the digits of the rows' statistics: torch's is of what float32 has left of 1e4, and so was ours."""
    x = tensors(torch.float32, (6, 700))[0].detach() + 1e4
    target = torch.arange(6) * 100
    exact = x.double().requires_grad_()
    torch.nn.functional.cross_entropy(exact, target, reduction="sum").backward()
    ours = x.clone().requires_grad_()
    lt.cross_entropy(ours, target, reduction="sum").backward()
    relative = (ours.grad.double() / exact.grad - 1).abs().max()
    assert relative < 76 * 2**-24  # tests/gpu/test_row_losses.py derives it


def test_traced_without_a_graph_break():
    x, weight, _ = tensors(torch.float32)

    def block(x):
        return lt.softmax(lt.rms_norm(x, weight)).sum()

    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), block(x))


def test_what_torch_calls_is_replaced():
    x, weight, bias = (each.detach() for each in tensors(torch.bfloat16, (6, 200)))
    f = torch.nn.functional
    before = torch.softmax(x, -1)
    with lt.batch_invariant("cpu"):
        got = (
            torch.softmax(x, -1),
            torch.log_softmax(x, 0),
            f.layer_norm(x, (200,), weight, bias),
            x.sum(-1),
            x.mean(0),
        )
        whole = torch.arange(6).reshape(2, 3).sum(1)
        alone = f.layer_norm(x[3:4], (200,), weight, bias)
    expected = (
        lt.softmax(x), lt.log_softmax(x, 0), lt.layer_norm(x, weight, bias), lt.sum(x, -1), lt.mean(x, 0)
    )  # fmt: skip
    assert all(map(torch.equal, got, expected))
    assert torch.equal(got[2][3:4], alone)
    assert whole.tolist() == [3, 12]
    assert torch.equal(torch.softmax(x, -1), before), "torch's own are not back"


def test_gradients_of_replaced_functions():
    x, weight, bias = tensors(torch.float32)
    with lt.batch_invariant("cpu"):
        torch.softmax(torch.nn.functional.layer_norm(x, (33,), weight, bias), -1)[:, 0].sum().backward()
    got = x.grad.clone()
    x.grad = None
    torch.softmax(torch.nn.functional.layer_norm(x, (33,), weight, bias), -1)[:, 0].sum().backward()
    torch.testing.assert_close(got, x.grad)


def test_example():
    example = Path(__file__).parents[2] / "examples" / "batch_invariant_torch.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, example], check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "alone and among eight are equal to the bit: True" in done.stdout


def test_refusals():
    x, weight, _ = tensors()
    with pytest.raises(ValueError, match=r"weight of rms_norm has shape \(32,\)"):
        lt.rms_norm(x, weight[:32])
    with pytest.raises(ValueError, match="reduction is"):
        lt.cross_entropy(x, TARGET, reduction="some")
    with pytest.raises(ValueError, match="label_smoothing is between 0 and 1"):
        lt.cross_entropy(x, TARGET, label_smoothing=1.5)
    with pytest.raises(ValueError, match=r"weight of cross_entropy has shape \(32,\)"):
        lt.cross_entropy(x, TARGET, weight[:32])
    with pytest.raises(lr.UnsupportedError, match="not probabilities"):
        lt.cross_entropy(x, x)
    with pytest.raises(ValueError, match="33 channels do not divide into 2 groups"):
        lt.group_norm(x, 2)
    with pytest.raises(ValueError, match=r"bias of group_norm has shape \(32,\)"):
        lt.group_norm(x, 3, weight, weight[:32])
    with pytest.raises(ValueError, match="two axes at least"):
        lt.group_norm(weight, 3)
    with pytest.raises(ValueError, match='device is "cuda" or "cpu"'), lt.batch_invariant("tpu"):
        pass


def test_types_that_torch_does_not_convert():
    x = torch.arange(-8, 8, dtype=torch.float32).to(torch.float8_e4m3fn)
    assert torch.equal(as_tensor(as_numpy(x)).float(), x.float())
    assert as_tensor(np.float32(3)).shape == ()


@pytest.mark.parametrize("shape", [(0, 64), (2, 0, 64), (64,), (3, 4, 16)])
def test_a_batch_may_be_empty_and_a_norm_of_all_axes(shape):
    x, weight = torch.randn(shape, generator=torch.Generator().manual_seed(1)), torch.full((64,), 2.0)
    normalized, weight = ((64,), weight) if shape[-1] == 64 else ((4, 16), weight.reshape(4, 16))
    norms = torch.nn.functional.layer_norm, torch.nn.functional.rms_norm
    expected = [norm(x, normalized, weight) for norm in norms]
    with lt.batch_invariant("cpu"):
        found = [norm(x.requires_grad_(), normalized, weight) for norm in norms]
        found[0].sum().backward()
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(found, expected, strict=True))
    assert x.grad.shape == x.shape


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.complex64])
def test_sums_of_other_types_go_to_torch(dtype):
    x = torch.full((3, 5), 1.5)
    expected = x.sum(0, dtype=dtype)
    with lt.batch_invariant("cpu"):
        assert torch.equal(x.sum(0, dtype=dtype), expected)

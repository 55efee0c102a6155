"""Row operations as ``torch.library`` operators: with fake kernels, autograd and torch's names and arguments.

They run on tensors of a GPU, in torch's current stream and memory, and on tensors of the CPU by the tree in NumPy.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.rowops import exponentials, losses, norms
from lowlevel_reduce.rowops.requests import PROBABILITIES, channel_words, not_negative, positive
from lowlevel_reduce.torch.launching import run
from lowlevel_reduce.torch.reductions import sum_of
from lowlevel_reduce.torch.tensors import number_type

__all__ = ["cross_entropy", "group_norm", "layer_norm", "log_softmax", "rms_norm", "softmax"]


def _like(x: Tensor, *beside: Tensor | None) -> Tensor:
    """Return a tensor for the result, not written.

    What is beside the rows must be where they are, also for fake kernels: torch calls them if any tensor is one of the
    device "meta", and would return memory that nothing was written to.
    """
    for each in beside:
        if each is not None and each.device != x.device:
            raise ValueError(f"an array of a row operation is on {each.device}, the rows on {x.device}")
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _per_row(x: Tensor) -> Tensor:
    return torch.empty(x.shape[:-1], dtype=number_type(x.dtype), device=x.device)


def _given(**tensors: Tensor | None) -> dict[str, Tensor]:
    """Return those tensors that there are, by name."""
    return {name: each for name, each in tensors.items() if each is not None}


def _summed(terms: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the sums of all rows, in the order of the one tree."""
    rows = terms.flatten(0, -2) if terms.dim() > 1 else terms[None]
    return sum_of(rows, [0], False, dtype)


@torch.library.custom_op("lowlevel_reduce::softmax", mutates_args=())
def _softmax(x: Tensor, scale: float, log: bool) -> Tensor:
    operation = exponentials.softmax_of(log=log, causal=False, lengths=False, scaled=scale != 1)
    parameters: dict[str, Any] = {"scale": positive(scale, "scale")} if scale != 1 else {}
    return run(operation, x, **parameters)[0]


@torch.library.custom_op("lowlevel_reduce::softmax_backward", mutates_args=())
def _softmax_backward(dy: Tensor, y: Tensor, scale: float, log: bool) -> Tensor:
    return run(exponentials.softmax_gradient_of(log=log), y, second=dy, scale=scale)[0]


@torch.library.custom_op("lowlevel_reduce::rms_norm", mutates_args=())
def _rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    operation = norms.rms_norm_of(weight=weight is not None, residual=False, keeps=True)
    out, rstd = run(operation, x, beside=_given(weight=weight), eps=not_negative(eps, "eps"))
    return out, rstd


@torch.library.custom_op("lowlevel_reduce::rms_norm_backward", mutates_args=())
def _rms_norm_backward(dy: Tensor, x: Tensor, rstd: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    operation = norms.rms_norm_gradient_of(weight=weight is not None, terms=weight is not None)
    types = {} if weight is None else {"dweight": number_type(x.dtype)}
    found = run(operation, x, second=dy, beside=_given(weight=weight, rstd=rstd), dtypes=types)
    return found[0], x.new_empty(0) if weight is None else _summed(found[1], weight.dtype)


@torch.library.custom_op("lowlevel_reduce::layer_norm", mutates_args=())
def _layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    operation = norms.layer_norm_of(weight=weight is not None, bias=bias is not None, keeps=True)
    out, mean, rstd = run(operation, x, beside=_given(weight=weight, bias=bias), eps=not_negative(eps, "eps"))
    return out, mean, rstd


@torch.library.custom_op("lowlevel_reduce::layer_norm_backward", mutates_args=())
def _layer_norm_backward(
    dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    operation = norms.layer_norm_gradient_of(weight=weight is not None, terms=weight is not None)
    types = {} if weight is None else {"dweight": number_type(x.dtype)}
    found = run(operation, x, second=dy, beside=_given(weight=weight, mean=mean, rstd=rstd), dtypes=types)
    dweight = x.new_empty(0) if weight is None else _summed(found[1], weight.dtype)
    dbias = _summed(dy, dy.dtype if weight is None else weight.dtype) if bias else x.new_empty(0)
    return found[0], dweight, dbias


@torch.library.custom_op("lowlevel_reduce::group_norm", mutates_args=())
def _group_norm(
    x: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    beside = _given(weight=weight, bias=bias)
    shape, words = _groups(x, groups, beside)
    operation = norms.group_norm_of(weight=weight is not None, bias=bias is not None, keeps=True)
    own = {"eps": not_negative(eps, "eps"), **(words if beside else {})}
    out, mean, rstd = run(operation, x.reshape(shape), beside=beside, **own)
    return out.reshape(x.shape), mean, rstd


@torch.library.custom_op("lowlevel_reduce::group_norm_backward", mutates_args=())
def _group_norm_backward(
    dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    groups = mean.shape[1]
    shape, words = _groups(x, groups, _given(weight=weight))
    channels = words["channels"]
    of_channels = (*x.shape[:2], math.prod(x.shape[2:]))
    tables = {"means": mean.reshape(-1), "rstds": rstd.reshape(-1)}
    # Where each channel is one element rows are samples.
    is_single = of_channels[2] == 1
    of_element: dict[str, Any] = channel_words(groups, x.shape[1], channels)
    del of_element["channels"]
    own = tuple(each.reshape(x.shape[:2] if is_single else of_channels) for each in (x, dy))
    sums: tuple[Tensor, ...] = ()
    if is_single and (weight is not None or bias):
        dtypes = {"dbias": mean.dtype, "dweight": mean.dtype}
        sums = run(
            norms.group_norm_single_terms_of(), own[0], second=own[1], beside=tables, dtypes=dtypes, **of_element
        )
    elif weight is not None or bias:
        sums = run(norms.group_norm_sums_of(), own[0], second=own[1], beside=tables, channels=channels)
    if weight is None:
        beside = {"mean": mean, "rstd": rstd}
        operation = norms.layer_norm_gradient_of(weight=False, terms=False)
        dx = run(operation, x.reshape(shape), second=dy.reshape(shape), beside=beside)[0]
    else:
        dbias, dweight = (each.reshape(x.shape[0], groups, channels) for each in sums)
        found = run(
            norms.group_norm_means_of(), dbias, second=dweight, beside={"weight": weight}, groups=groups,
            count=channels * of_channels[2],
        )  # fmt: skip
        tables |= {"gradients": found[0].reshape(-1), "products": found[1].reshape(-1)}
        if is_single:
            beside = {"weight": weight, **tables}  # columns come before tables
            operation = norms.group_norm_single_gradient_of()
            dx = run(operation, own[0], second=own[1], beside=beside, **of_element)[0]
        else:
            tables["weight"] = weight
            operation = norms.group_norm_gradient_of()
            dx = run(operation, own[0], second=own[1], beside=tables, channels=channels, every=x.shape[1])[0]
    dtype = dy.dtype if weight is None else weight.dtype
    dweight = x.new_empty(0) if weight is None else _summed(sums[1], dtype)
    return dx.reshape(x.shape), dweight, _summed(sums[0], dtype) if bias else x.new_empty(0)


def _groups(x: Tensor, groups: int, beside: dict[str, Tensor]) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Return the shape in which rows are groups of channels, and the numbers by which elements find their channel's."""
    if x.dim() < 2:
        raise ValueError("group_norm needs a tensor of two axes at least: the batch's and the channels'")
    channels, inner = x.shape[1], math.prod(x.shape[2:])
    if groups < 1 or not channels or channels % groups:
        raise ValueError(f"{channels} channels do not divide into {groups} groups")
    for name, each in beside.items():
        if each.shape != (channels,):
            raise ValueError(f"{name} of group_norm has shape {tuple(each.shape)}, not {(channels,)}")
    return (x.shape[0], groups, channels // groups * inner), channel_words(groups, channels, inner)


@torch.library.custom_op("lowlevel_reduce::cross_entropy", mutates_args=())
def _cross_entropy(
    x: Tensor, target: Tensor, ignore_index: int, weight: Tensor | None = None, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    given, words, options = _classes(x, weight, label_smoothing)
    operation = losses.cross_entropy_of(counts=False, stats=True, **options)
    beside = {**given["columns"], "target": target, **given["tables"]}
    loss, largest, rest = run(operation, x, beside=beside, ignore=ignore_index, **words)
    return loss, largest, rest


@torch.library.custom_op("lowlevel_reduce::cross_entropy_backward", mutates_args=())
def _cross_entropy_backward(
    dloss: Tensor,
    x: Tensor,
    target: Tensor,
    largest: Tensor,
    rest: Tensor,
    ignore_index: int,
    weight: Tensor | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    given, words, options = _classes(x, weight, label_smoothing)
    rows = {"target": target, "largest": largest, "rest": rest, "dloss": dloss}
    beside = {**given["columns"], **rows, **given["tables"]}
    operation = losses.cross_entropy_gradient_of(**options)
    return run(operation, x, beside=beside, ignore=ignore_index, **words, known=1, first=0)[0]


def _classes(
    x: Tensor, weight: Tensor | None, smoothing: float
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any], dict[str, Any]]:
    """Return what a loss is given for its classes' weights and smoothed labels, and of which operation it is."""
    options = {"weight": weight is not None, "smooth": smoothing > 0}
    if weight is not None and weight.shape != x.shape[-1:]:
        raise ValueError(f"weight of cross_entropy has shape {tuple(weight.shape)}, not {tuple(x.shape[-1:])}")
    tables, columns = _given(weights=weight), _given(weight=weight if smoothing > 0 else None)
    if columns:
        tables["all"] = sum_of(weight, [0], True, number_type(x.dtype))
    words = {"smoothing": float(smoothing)} if smoothing > 0 else {}
    return {"columns": columns, "tables": tables}, words, options


def _none_like(x: Tensor, weight: Tensor | None) -> Tensor:
    return x.new_empty(0) if weight is None else torch.empty_like(weight, memory_format=torch.contiguous_format)


_softmax.register_fake(lambda x, scale, log: _like(x))
_softmax_backward.register_fake(lambda dy, y, scale, log: _like(y, dy))
_rms_norm.register_fake(lambda x, weight, eps: (_like(x, weight), _per_row(x)))
_rms_norm_backward.register_fake(lambda dy, x, rstd, weight: (_like(x, dy, rstd, weight), _none_like(x, weight)))
_layer_norm.register_fake(lambda x, weight, bias, eps: (_like(x, weight, bias), _per_row(x), _per_row(x)))


@_cross_entropy.register_fake
def _(
    x: Tensor, target: Tensor, ignore_index: int, weight: Tensor | None = None, label_smoothing: float = 0.0
) -> tuple[Tensor, ...]:
    return _per_row(_like(x, target, weight)), _per_row(x), _per_row(x)


@_cross_entropy_backward.register_fake
def _(dloss: Tensor, x: Tensor, target: Tensor, largest: Tensor, rest: Tensor, *more: Any) -> Tensor:
    return _like(x, dloss, target, largest, rest)


@_group_norm.register_fake
def _(x: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, ...]:
    out = torch.empty_like(_like(x, weight, bias), memory_format=torch.contiguous_format)
    mean, rstd = (torch.empty((x.shape[0], groups), dtype=number_type(x.dtype), device=x.device) for _ in range(2))
    return out, mean, rstd


@_group_norm_backward.register_fake
def _(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: bool) -> tuple[Tensor, ...]:
    own = dy.dtype if weight is None else weight.dtype
    dbias = torch.empty(x.shape[1], dtype=own, device=x.device) if bias else x.new_empty(0)
    return _like(x, dy, mean, rstd, weight), _none_like(x, weight), dbias


@_layer_norm_backward.register_fake
def _(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: bool) -> tuple[Tensor, ...]:
    own = dy.dtype if weight is None else weight.dtype
    dbias = torch.empty(x.shape[-1:], dtype=own, device=x.device) if bias else x.new_empty(0)
    return _like(x, dy, mean, rstd, weight), _none_like(x, weight), dbias


def _keep_softmax(ctx: Any, inputs: Any, output: Tensor) -> None:
    _, ctx.scale, ctx.log = inputs
    ctx.save_for_backward(output)


def _softmax_gradient(ctx: Any, dy: Tensor) -> Any:
    (y,) = ctx.saved_tensors
    return _softmax_backward(dy, y, ctx.scale, ctx.log), None, None


def _keep_rms_norm(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, _ = inputs
    ctx.save_for_backward(x, output[1], weight)
    ctx.mark_non_differentiable(output[1])


def _rms_norm_gradient(ctx: Any, dy: Tensor, _: Any) -> Any:
    x, rstd, weight = ctx.saved_tensors
    dx, dweight = _rms_norm_backward(dy, x, rstd, weight)
    return dx, dweight if weight is not None else None, None


def _keep_layer_norm(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, bias, _ = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(x, output[1], output[2], weight)
    ctx.mark_non_differentiable(output[1], output[2])


def _layer_norm_gradient(ctx: Any, dy: Tensor, *_: Any) -> Any:
    x, mean, rstd, weight = ctx.saved_tensors
    dx, dweight, dbias = _layer_norm_backward(dy, x, mean, rstd, weight, ctx.has_bias)
    return dx, dweight if weight is not None else None, dbias if ctx.has_bias else None, None


def _keep_group_norm(ctx: Any, inputs: Any, output: Any) -> None:
    x, _, weight, bias, _ = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(x, output[1], output[2], weight)
    ctx.mark_non_differentiable(output[1], output[2])


def _group_norm_gradient(ctx: Any, dy: Tensor, *_: Any) -> Any:
    x, mean, rstd, weight = ctx.saved_tensors
    dx, dweight, dbias = _group_norm_backward(dy, x, mean, rstd, weight, ctx.has_bias)
    return dx, None, dweight if weight is not None else None, dbias if ctx.has_bias else None, None


def _keep_cross_entropy(ctx: Any, inputs: Any, output: Any) -> None:
    x, target, ctx.ignore_index, weight, ctx.label_smoothing = inputs
    ctx.save_for_backward(x, target, output[1], output[2], weight)
    ctx.mark_non_differentiable(output[1], output[2])


def _cross_entropy_gradient(ctx: Any, dloss: Tensor, *_: Any) -> Any:
    x, target, largest, rest, weight = ctx.saved_tensors
    how = ctx.ignore_index, weight, ctx.label_smoothing
    return _cross_entropy_backward(dloss, x, target, largest, rest, *how), None, None, None, None


_softmax.register_autograd(_softmax_gradient, setup_context=_keep_softmax)
_rms_norm.register_autograd(_rms_norm_gradient, setup_context=_keep_rms_norm)
_layer_norm.register_autograd(_layer_norm_gradient, setup_context=_keep_layer_norm)
_group_norm.register_autograd(_group_norm_gradient, setup_context=_keep_group_norm)
_cross_entropy.register_autograd(_cross_entropy_gradient, setup_context=_keep_cross_entropy)


def softmax(x: Tensor, dim: int = -1, *, scale: float = 1.0, dtype: torch.dtype | None = None) -> Tensor:
    """Return `lowlevel_reduce.softmax` along an axis; other axes than the last one are moved there."""
    return _along(x, dim, scale, dtype, log=False)


def log_softmax(x: Tensor, dim: int = -1, *, scale: float = 1.0, dtype: torch.dtype | None = None) -> Tensor:
    """Return `lowlevel_reduce.log_softmax` along an axis; other axes than the last one are moved there."""
    return _along(x, dim, scale, dtype, log=True)


def _along(x: Tensor, dim: int, scale: float, dtype: torch.dtype | None, *, log: bool) -> Tensor:
    x = x if dtype is None else x.to(dtype)
    is_last = dim in (-1, x.dim() - 1)
    found: Tensor = _softmax(x if is_last else x.transpose(dim, -1).contiguous(), scale, log)
    return found if is_last else found.transpose(dim, -1)


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Return `lowlevel_reduce.rms_norm` of the last axis; eps is the elements' type's by default.

    So it is in torch's documentation; its functions take that of float32 for types of 16 bits.
    """
    return _rms_norm(x, weight, torch.finfo(x.dtype).eps if eps is None else eps)[0]


def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Return `lowlevel_reduce.layer_norm` of the last axis."""
    return _layer_norm(x, weight, bias, eps)[0]


def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Return `lowlevel_reduce.group_norm`; what does not lie in C order is copied first."""
    return _group_norm(x.contiguous(), num_groups, weight, bias, eps)[0]


def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the loss of rows of logits, whose classes are the last axis; `reduction` is "mean", "sum" or "none".

    The losses are numbers, float32 for 16-bit logits; they are summed in the order of the one tree. Targets are
    indices of classes: probabilities are refused.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f'reduction is "mean", "sum" or "none", not {reduction!r}')
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing is between 0 and 1, not {label_smoothing!r}")
    if target.is_floating_point() and target.shape == x.shape:
        raise UnsupportedError(PROBABILITIES)
    loss: Tensor = _cross_entropy(x, target, ignore_index, weight, label_smoothing)[0]
    if reduction == "none":
        return loss
    total = _total(loss)
    if reduction == "sum":
        return total
    counts = target != ignore_index
    if weight is None:
        return total / counts.sum()
    # A target that is no class has made the loss NaN; it looks into nothing here either.
    own = weight.to(loss.dtype)[target.clamp(0, len(weight) - 1).long()]
    return total / _total(torch.where(counts, own, torch.zeros_like(own)))


def _total(x: Tensor) -> Tensor:
    return sum_of(x, list(range(x.dim())), False, x.dtype)

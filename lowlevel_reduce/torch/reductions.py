"""Sums and means of tensors as ``torch.library`` operators, in the order of the one tree."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

import lowlevel_reduce
from lowlevel_reduce import tree
from lowlevel_reduce.arguments import chosen_axes
from lowlevel_reduce.torch.tensors import as_numpy, as_tensor, numpy_type

__all__ = ["mean", "mean_of", "sum", "sum_of"]


def _reduced(x: Tensor, op: str, dims: list[int], keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    axes = chosen_axes(dims or None, x.dim())
    wanted = numpy_type(_result_type(x, dtype))
    if x.device.type == "cpu":
        return as_tensor(tree.reduce(as_numpy(x), op, axis=axes, keepdims=keepdim, dtype=wanted))
    out = _fake(x, dims, keepdim, dtype)
    # In torch's current stream there; a subclass, as a parameter, tells nothing by attributes.
    plain = x if type(x) is Tensor else x.detach()
    lowlevel_reduce.reduce(plain, op, axis=axes, keepdims=keepdim, dtype=wanted, out=out)
    return out


def _result_type(x: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """Return the type of the result, by default that of `x`, or int64 for integers and bool, as in torch."""
    return dtype or (x.dtype if x.is_floating_point() or x.is_complex() else torch.int64)


@torch.library.custom_op("lowlevel_reduce::sum", mutates_args=())
def sum_of(x: Tensor, dims: list[int], keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    """Return the sum over some axes, all if there are none; of `dtype`, by default that of `x`."""
    return _reduced(x, "sum", dims, keepdim, dtype)


@torch.library.custom_op("lowlevel_reduce::mean", mutates_args=())
def mean_of(x: Tensor, dims: list[int], keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    """Return the mean over some axes, all if there are none; of `dtype`, by default that of `x`."""
    return _reduced(x, "mean", dims, keepdim, dtype)


def _fake(x: Tensor, dims: list[int], keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    """Return a tensor for the result, not written."""
    axes = chosen_axes(dims or None, x.dim())
    shape = [1 if k in axes else size for k, size in enumerate(x.shape) if keepdim or k not in axes]
    return torch.empty(shape, dtype=_result_type(x, dtype), device=x.device)


def _keep(ctx: Any, inputs: Any, output: Tensor) -> None:
    x, dims, ctx.keepdim, _ = inputs
    ctx.shape, ctx.dtype, ctx.axes = x.shape, x.dtype, chosen_axes(dims or None, x.dim())


def _spread(ctx: Any, dy: Tensor) -> Tensor:
    for axis in () if ctx.keepdim else ctx.axes:
        dy = dy.unsqueeze(axis)
    return dy.expand(ctx.shape)


def _sum_gradient(ctx: Any, dy: Tensor) -> Any:
    return _spread(ctx, dy).to(ctx.dtype), None, None, None


def _mean_gradient(ctx: Any, dy: Tensor) -> Any:
    count = math.prod(ctx.shape[axis] for axis in ctx.axes)
    return (_spread(ctx, dy) / count).to(ctx.dtype), None, None, None


sum_of.register_fake(_fake)
mean_of.register_fake(_fake)
sum_of.register_autograd(_sum_gradient, setup_context=_keep)
mean_of.register_autograd(_mean_gradient, setup_context=_keep)


def sum(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """Return the sum over axes, in the order of the one tree; as ``torch.sum``."""
    return sum_of(x, _dims(dim), keepdim, dtype)


def mean(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """Return the mean of floats over axes, in the order of the one tree; as ``torch.mean``."""
    return mean_of(x, _dims(dim), keepdim, dtype)


def _dims(dim: Any) -> list[int]:
    if dim is None:
        return []
    return list(dim) if isinstance(dim, (list, tuple)) else [dim]

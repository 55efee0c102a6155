"""Sums and means of tensors as ``torch.library`` operators, in the order of the one tree."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import lowlevel_reduce
from lowlevel_reduce import tree
from lowlevel_reduce.torch.tensors import NUMPY_TYPES, as_numpy, as_tensor

__all__ = ["mean", "mean_of", "sum", "sum_of"]


def _reduced(x: Tensor, op: str, dims: list[int], keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    axes = tuple(dims) or tuple(range(x.dim()))
    wanted = None if dtype is None else NUMPY_TYPES[dtype]
    if x.device.type == "cpu":
        return as_tensor(tree.reduce(as_numpy(x), op, axis=axes, keepdims=keepdim, dtype=wanted))
    out = torch.empty(_shape(x, dims, keepdim), dtype=dtype or x.dtype, device=x.device)
    stream = torch.cuda.current_stream(x.device)
    lowlevel_reduce.reduce(x, op, axis=axes, keepdims=keepdim, dtype=wanted, out=out, stream=_Streamed(stream))
    return out


class _Streamed:
    """A stream of torch's, for those of its versions that do not export it."""

    def __init__(self, stream: Any) -> None:
        self._handle = stream.cuda_stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def _shape(x: Tensor, dims: list[int], keepdim: bool) -> list[Any]:
    axes = {dim % x.dim() for dim in dims} if dims else set(range(x.dim()))
    return [1 if k in axes else size for k, size in enumerate(x.shape) if keepdim or k not in axes]


@torch.library.custom_op("lowlevel_reduce::sum", mutates_args=())
def sum_of(x: Tensor, dims: list[int], keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    """Return the sum over some axes, all if there are none; of `dtype`, by default that of `x`."""
    return _reduced(x, "sum", dims, keepdim, dtype or x.dtype)


@torch.library.custom_op("lowlevel_reduce::mean", mutates_args=())
def mean_of(x: Tensor, dims: list[int], keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    """Return the mean over some axes, all if there are none; of `dtype`, by default that of `x`."""
    return _reduced(x, "mean", dims, keepdim, dtype or x.dtype)


def _fake(x: Tensor, dims: list[int], keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    return torch.empty(_shape(x, dims, keepdim), dtype=dtype or x.dtype, device=x.device)


def _keep(ctx: Any, inputs: Any, output: Tensor) -> None:
    x, ctx.dims, ctx.keepdim, _ = inputs
    ctx.shape, ctx.dtype = x.shape, x.dtype


def _spread(ctx: Any, dy: Tensor) -> Tensor:
    axes = sorted({dim % len(ctx.shape) for dim in ctx.dims} or range(len(ctx.shape)))
    if not ctx.keepdim:
        for axis in axes:
            dy = dy.unsqueeze(axis)
    return dy.expand(ctx.shape).to(ctx.dtype)


def _count(ctx: Any) -> int:
    count = 1
    for axis in {dim % len(ctx.shape) for dim in ctx.dims} or range(len(ctx.shape)):
        count *= ctx.shape[axis]
    return count


sum_of.register_fake(_fake)
mean_of.register_fake(_fake)
sum_of.register_autograd(lambda ctx, dy: (_spread(ctx, dy), None, None, None), setup_context=_keep)
mean_of.register_autograd(lambda ctx, dy: (_spread(ctx, dy) / _count(ctx), None, None, None), setup_context=_keep)


def sum(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """Return the sum of floats over axes, in the order of the one tree; as ``torch.sum``."""
    return sum_of(x, _dims(dim), keepdim, dtype)


def mean(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """Return the mean of floats over axes, in the order of the one tree; as ``torch.mean``."""
    return mean_of(x, _dims(dim), keepdim, dtype)


def _dims(dim: Any) -> list[int]:
    if dim is None:
        return []
    return [dim] if isinstance(dim, int) else list(dim)

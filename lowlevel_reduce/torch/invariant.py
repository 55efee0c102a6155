"""`batch_invariant`: torch's own functions of rows, for a while, by the operations of the one tree."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from lowlevel_reduce.torch import operators, reductions
from lowlevel_reduce.torch.tensors import number_type

__all__ = ["REPLACED", "batch_invariant"]

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_ours = threading.local()
_lock = threading.RLock()

_open: dict[str, tuple[int, torch.library.Library]] = {}
"""How many blocks there are for a kind of device, and what holds for all of them: they may end in any order."""


def _is_ours(x: Tensor) -> bool:
    return x.dtype in _FLOATS and x.dim() > 0 and not getattr(_ours, "inside", False)


def _softmax(log: bool) -> Callable[..., Tensor]:
    function = operators.log_softmax if log else operators.softmax

    def replaced(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
        return function(x.float() if half_to_float else x, dim).contiguous()  # as torch's own, whatever the axis

    return replaced


def _softmax_backward(log: bool) -> Callable[..., Tensor]:
    def replaced(dy: Tensor, y: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
        dim = dim % y.dim()
        dy, y = (each.transpose(dim, -1).contiguous() for each in (dy, y))
        found: Tensor = operators._softmax_backward(dy, y, 1.0, log)
        return found.transpose(dim, -1).to(input_dtype).contiguous()

    return replaced


def _rows(x: Tensor, shape: list[int]) -> Tensor:
    """Return a tensor whose last axis has all of those of a shape, which it ends with; there may be no rows."""
    return x.reshape(*x.shape[: x.dim() - len(shape)], math.prod(shape))


def _layer_norm(
    x: Tensor, normalized_shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    axes, rows = len(normalized_shape), _rows(x, normalized_shape)
    flat = [None if each is None else each.reshape(-1) for each in (weight, bias)]
    out, mean, rstd = operators._layer_norm(rows, *flat, eps)
    shape = (*rows.shape[:-1], *(1,) * axes)
    kept = mean.dtype
    if not x.is_cuda and (weight is None or weight.dtype == x.dtype):  # what torch's gradient takes there
        kept = x.dtype
    return out.reshape(x.shape), mean.reshape(shape).to(kept), rstd.reshape(shape).to(kept)


def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, inner: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    out, mean, rstd = operators._group_norm(x.contiguous(), groups, weight, bias, eps)
    kept = x.dtype if weight is None or weight.dtype == x.dtype else mean.dtype  # what torch's gradient takes
    return out, mean.to(kept), rstd.to(kept)


def _sum(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    return reductions.sum(x, dim, keepdim, dtype=dtype)


def _mean(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    return reductions.mean(x, dim, keepdim, dtype=dtype)


def _epsilon(x: Tensor, eps: float | None) -> float:
    """Return eps; by default torch's, which is that of numbers, not that of elements of 16 bits."""
    return torch.finfo(number_type(x.dtype)).eps if eps is None else eps


def _fused_rms_norm(
    x: Tensor, normalized_shape: list[int], weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    axes, rows = len(normalized_shape), _rows(x, normalized_shape)
    out, rstd = operators._rms_norm(rows, None if weight is None else weight.reshape(-1), _epsilon(x, eps))
    return out.reshape(x.shape), rstd.reshape(*rows.shape[:-1], *(1,) * axes)


def _rms_norm(x: Tensor, normalized_shape: list[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    flat = None if weight is None else weight.reshape(-1)
    return operators.rms_norm(_rows(x, normalized_shape), flat, _epsilon(x, eps)).reshape(x.shape)


REPLACED: dict[str, Callable[..., Any]] = {
    "sum.dim_IntList": _sum,
    "mean.dim": _mean,
    "_softmax": _softmax(False),
    "_log_softmax": _softmax(True),
    "_softmax_backward_data": _softmax_backward(False),
    "_log_softmax_backward_data": _softmax_backward(True),
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
}
"""The functions of ``aten`` that are replaced, and by what; those that a version of torch lacks are left out."""

_REPLACED_ON: dict[str, list[tuple[str, str, Callable[..., Any]]]] = {
    "CUDA": [("CUDA", "_fused_rms_norm", _fused_rms_norm)],
    "CPU": [("CPU", "rms_norm", _rms_norm), ("AutogradCPU", "rms_norm", _rms_norm)],
}
"""The same for one kind of device. On the CPU torch's fused function has no gradient: the whole function is replaced
there, and has the gradient of ours."""


@contextmanager
def batch_invariant(device: str = "cuda") -> Iterator[None]:
    """Put the one tree in the place of torch's sum, mean, softmax, log_softmax and norms of layers, groups and rms.

    What a model computes of a row then has the same bits, whatever the batch, as far as its other functions are
    invariant: matrix products of a fixed shape per row, for example. Tensors of other types than floats, and without an
    axis, go to torch, and so do sums and means that are to be of other types, and calls with ``out=``. It holds for the
    whole process, so for other threads too, until the last of all blocks ends.

    Parameters
    ----------
    device : {"cuda", "cpu"}
        Tensors of which kind of device; on the CPU it runs in NumPy, for tests.
    """
    key = {"cuda": "CUDA", "cpu": "CPU"}.get(device)
    if key is None:
        raise ValueError(f'device is "cuda" or "cpu", not {device!r}')
    with _lock:
        count, library = _open.get(key) or (0, _replacing(key))
        _open[key] = count + 1, library
    try:
        yield
    finally:
        with _lock:
            count, library = _open.pop(key)
            if count > 1:
                _open[key] = count - 1, library
            else:
                library._destroy()


def _replacing(device: str) -> torch.library.Library:
    """Put our functions in the place of torch's for a kind of device, until the library is destroyed."""
    library = torch.library.Library("aten", "IMPL")
    try:
        everywhere = [(device, name, function) for name, function in REPLACED.items()]
        for key, name, function in everywhere + _REPLACED_ON[device]:
            packet, _, overload = name.partition(".")
            operator = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
            if operator is not None:
                original = torch.library.get_kernel(operator, key)
                with warnings.catch_warnings():  # that a kernel is overridden, which is what was asked for
                    warnings.simplefilter("ignore", UserWarning)
                    library.impl(name, _guarded(function, original), key, with_keyset=True, allow_override=True)
    except BaseException:
        library._destroy()
        raise
    return library


def _guarded(function: Callable[..., Any], original: Any) -> Callable[..., Any]:
    """Return the function, which hands what it does not take to the kernel that was there."""

    def replaced(keyset: Any, x: Tensor, *rest: Any, **options: Any) -> Any:
        if not _is_ours(x) or options.get("dtype") not in (None, *_FLOATS):
            return original.call_boxed(keyset, x, *rest, **options)
        _ours.inside = True
        try:
            return function(x, *rest, **options)
        finally:
            _ours.inside = False

    return replaced

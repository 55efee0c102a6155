"""The built-in row operations in NumPy, on the host: what `lowlevel_reduce.tree` has under the same names.

Arguments are those of `lowlevel_reduce.rowops.functions`, without what concerns the device. Results equal the device's
bit for bit, but for softmax, log_softmax, cross_entropy and log_prob, which call ``exp`` and ``log``.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from lowlevel_reduce import tree
from lowlevel_reduce.arguments import not_masked
from lowlevel_reduce.rowops import gradients, requests
from lowlevel_reduce.rowops.losses import MEAN_OF_LOSSES
from lowlevel_reduce.rowops.meaning import row_operation

__all__ = [
    "cross_entropy",
    "cross_entropy_backward",
    "group_norm",
    "group_norm_backward",
    "layer_norm",
    "layer_norm_backward",
    "log_prob",
    "log_softmax",
    "log_softmax_backward",
    "normalize",
    "quantize",
    "rms_norm",
    "rms_norm_backward",
    "row_operation",
    "softmax",
    "softmax_backward",
]

cross_entropy_backward = functools.partial(gradients.cross_entropy_backward, host=True)
group_norm_backward = functools.partial(gradients.group_norm_backward, host=True)
layer_norm_backward = functools.partial(gradients.layer_norm_backward, host=True)
log_softmax_backward = functools.partial(gradients.log_softmax_backward, host=True)
rms_norm_backward = functools.partial(gradients.rms_norm_backward, host=True)
softmax_backward = functools.partial(gradients.softmax_backward, host=True)


def _array(x: Any) -> Any:
    return np.asarray(not_masked(x))


def _evaluate(request: requests.Request, x: Any) -> Any:
    if request.groups is not None:
        rows = x.reshape(x.shape[0], request.groups, math.prod(x.shape[1:]) // request.groups)
        found: Any = row_operation(request.operation, rows, dtype=request.dtype, **request.given)
        return found._replace(out=found.out.reshape(x.shape)) if request.operation.keep else found.reshape(x.shape)
    if request.block is None:
        return row_operation(
            request.operation, x, axis=request.axis, second=request.second, dtype=request.dtype, **request.given
        )
    x = np.moveaxis(x, request.axis, -1)
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // request.block, request.block)
    found = row_operation(request.operation, blocks, dtype=request.dtype, **request.given)
    written = {name: getattr(found, name).reshape(x.shape) for name in request.operation.write}
    return found._replace(
        **{name: np.ascontiguousarray(np.moveaxis(each, -1, request.axis)) for name, each in written.items()}
    )


def softmax(
    x: Any,
    axis: int = -1,
    *,
    scale: float = 1.0,
    causal: bool = False,
    offset: int | None = None,
    lengths: Any = None,
    dtype: Any = None,
) -> Any:
    """Return softmax of each row, as `lowlevel_reduce.softmax`."""
    x = _array(x)
    request = requests.softmax(
        x, axis, log=False, scale=scale, causal=causal, offset=offset, lengths=lengths, dtype=dtype
    )
    return _evaluate(request, x)


def log_softmax(
    x: Any,
    axis: int = -1,
    *,
    scale: float = 1.0,
    causal: bool = False,
    offset: int | None = None,
    lengths: Any = None,
    dtype: Any = None,
) -> Any:
    """Return the logarithm of softmax of each row, as `lowlevel_reduce.log_softmax`."""
    x = _array(x)
    request = requests.softmax(
        x, axis, log=True, scale=scale, causal=causal, offset=offset, lengths=lengths, dtype=dtype
    )
    return _evaluate(request, x)


def rms_norm(
    x: Any,
    weight: Any = None,
    eps: float | None = None,
    *,
    axis: int = -1,
    residual: Any = None,
    return_rstd: bool = False,
    dtype: Any = None,
) -> Any:
    """Return rows over the root of their mean square, as `lowlevel_reduce.rms_norm`."""
    x = _array(x)
    return _evaluate(requests.rms_norm(x, weight, eps, residual=residual, keeps=return_rstd, dtype=dtype, axis=axis), x)


def layer_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    axis: int = -1,
    return_stats: bool = False,
    dtype: Any = None,
) -> Any:
    """Return rows of mean 0 and variance 1, scaled and shifted, as `lowlevel_reduce.layer_norm`."""
    x = _array(x)
    return _evaluate(requests.layer_norm(x, weight, bias, eps, keeps=return_stats, dtype=dtype, axis=axis), x)


def group_norm(
    x: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    return_stats: bool = False,
    dtype: Any = None,
) -> Any:
    """Return groups of channels of mean 0 and variance 1, scaled and shifted, as `lowlevel_reduce.group_norm`."""
    x, weight, bias = (None if each is None else _array(each) for each in (x, weight, bias))
    return _evaluate(requests.group_norm(x, num_groups, weight, bias, eps, dtype=dtype, keeps=return_stats), x)


def normalize(x: Any, p: float = 2.0, axis: int = -1, eps: float = 1e-12, *, dtype: Any = None) -> Any:
    """Return rows over their norm, as `lowlevel_reduce.normalize`."""
    x = _array(x)
    return _evaluate(requests.normalize(x, p, axis, eps, dtype=dtype), x)


def quantize(
    x: Any,
    dtype: Any = "float8_e4m3fn",
    *,
    axis: int = -1,
    block: int | None = None,
    rms_eps: float | None = None,
    weight: Any = None,
) -> Any:
    """Return values of 8 bits and their scales, as `lowlevel_reduce.quantize`."""
    x = _array(x)
    return _evaluate(requests.quantize(x, dtype, block, weight=weight, rms_eps=rms_eps, axis=axis), x)


def cross_entropy(
    x: Any,
    target: Any,
    *,
    weight: Any = None,
    axis: int = -1,
    ignore_index: int = requests.IGNORE_INDEX,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    return_stats: bool = False,
) -> Any:
    """Return the loss of rows of logits, as `lowlevel_reduce.cross_entropy`."""
    x, weight = _array(x), None if weight is None else _array(weight)
    request = requests.cross_entropy(
        x, target, ignore_index=ignore_index, reduction=reduction, axis=axis, weight=weight,
        all_weights=lambda: gradients.sum_of_weights(weight, like=x, host=True), label_smoothing=label_smoothing,
        stats=return_stats,
    )  # fmt: skip
    found = _evaluate(request, x)
    if reduction == "none":
        return found
    if reduction == "sum":
        return tree.reduce(found.loss, "sum")
    return row_operation(MEAN_OF_LOSSES, found.loss.reshape(-1), second=found.counts.reshape(-1))


def log_prob(x: Any, target: Any, *, axis: int = -1, scale: float = 1.0) -> Any:
    """Return each row's log-probability of its target, as `lowlevel_reduce.log_prob`."""
    x = _array(x)
    return _evaluate(requests.log_prob(x, target, scale=scale, axis=axis), x)

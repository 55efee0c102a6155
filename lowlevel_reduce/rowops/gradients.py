"""Gradients of the built-in row operations, deterministic, without atomics; on the device, or in NumPy.

With respect to the rows each is a row operation of its own, so its bits for a row depend on that row alone. With
respect to weights and biases, terms are written and summed along the columns in the order of the one tree.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lowlevel_reduce import tree
from lowlevel_reduce.arguments import integer
from lowlevel_reduce.calls.reduce import reduce
from lowlevel_reduce.rowops import meaning
from lowlevel_reduce.rowops.call import row_operation
from lowlevel_reduce.rowops.exponentials import cross_entropy_gradient_of, softmax_gradient_of
from lowlevel_reduce.rowops.norms import layer_norm_gradient_of, rms_norm_gradient_of
from lowlevel_reduce.rowops.operation import RowOperation
from lowlevel_reduce.rowops.requests import IGNORE_INDEX, name_of, positive
from lowlevel_reduce.rowops.shaped import shaped

__all__ = [
    "cross_entropy_backward",
    "layer_norm_backward",
    "log_softmax_backward",
    "rms_norm_backward",
    "softmax_backward",
]


def softmax_backward(dy: Any, y: Any, *, scale: float = 1.0, axis: int = -1, host: bool = False, **options: Any) -> Any:
    """Return ``scale * y * (dy - sum(dy * y))``, the gradient with respect to `x`, for the result `y` of `softmax`.

    Parameters
    ----------
    dy, y : array
        The gradient with respect to the result, and the result; of one shape and type.
    scale : float
        As it was passed to `softmax`.
    axis : int
        Along which rows lie.
    host : bool
        Whether to compute in NumPy, to the same bits.
    **options
        `out`, `stream`, `allocator`, as for `row_operation`.
    """
    given = {"scale": positive(scale, "scale")}
    return _run(softmax_gradient_of(log=False), y, host, axis=axis, second=dy, **given, **options)


def log_softmax_backward(
    dy: Any, y: Any, *, scale: float = 1.0, axis: int = -1, host: bool = False, **options: Any
) -> Any:
    """Return ``scale * (dy - exp(y) * sum(dy))``, for the result `y` of `log_softmax`; as `softmax_backward`."""
    given = {"scale": positive(scale, "scale")}
    return _run(softmax_gradient_of(log=True), y, host, axis=axis, second=dy, **given, **options)


def cross_entropy_backward(
    dloss: Any,
    x: Any,
    target: Any,
    lse: Any,
    *,
    axis: int = -1,
    ignore_index: int = IGNORE_INDEX,
    host: bool = False,
    **options: Any,
) -> Any:
    """Return ``(exp(x - lse) - onehot(target)) * dloss``, the gradient with respect to the logits.

    `dloss` and `lse` have one element for each row: the gradient with respect to its loss, and what `cross_entropy`
    with ``reduction="none"`` returned.
    """
    given = {"target": target, "lse": lse, "dloss": dloss}
    ignore = integer(ignore_index, "ignore_index is an integer")
    return _run(cross_entropy_gradient_of(), x, host, axis=axis, **given, ignore=ignore, **options)


def rms_norm_backward(
    dy: Any, x: Any, rstd: Any, weight: Any = None, *, axis: int = -1, host: bool = False, **options: Any
) -> tuple[Any, Any]:
    """Return the gradients with respect to `x` and to `weight`, None without one.

    `x` is what was normalised (with a residual the sum), `rstd` what `rms_norm` returned with ``return_rstd=True``.
    """
    operation = rms_norm_gradient_of(weight=weight is not None, terms=weight is not None)
    call = _Call(axis, host, options)
    found = call.run(operation, x, weight, second=dy, rstd=rstd)
    if weight is None:
        return found, None
    return found.dx, call.summed(found.dweight, weight, found.dx)


def layer_norm_backward(
    dy: Any,
    x: Any,
    mean: Any,
    rstd: Any,
    weight: Any = None,
    *,
    axis: int = -1,
    bias: bool = False,
    host: bool = False,
    **options: Any,
) -> tuple[Any, Any, Any]:
    """Return the gradients with respect to `x`, to `weight` (None without one), and to the bias if there is a `bias`.

    `mean` and `rstd` are what `layer_norm` returned with ``return_stats=True``. The bias's gradient is of the weight's
    type, or of that of `dy`.
    """
    operation = layer_norm_gradient_of(weight=weight is not None, terms=weight is not None)
    call = _Call(axis, host, options)
    found = call.run(operation, x, weight, second=dy, mean=mean, rstd=rstd)
    dx = found if weight is None else found.dx
    dbias = call.summed(dy, dy if weight is None else weight, dx) if bias else None
    return dx, None if weight is None else call.summed(found.dweight, weight, dx), dbias


def _run(operation: RowOperation, x: Any, host: bool, **given: Any) -> Any:
    return meaning.row_operation(operation, x, **given) if host else row_operation(operation, x, **given)


class _Call:
    """A call of a gradient whose weight has one, too: the axis of rows, whether it is on the host, and its options."""

    def __init__(self, axis: int, host: bool, options: dict[str, Any]) -> None:
        self.axis, self.host, self.options = axis, host, options

    def run(self, operation: RowOperation, x: Any, weight: Any, *, rstd: Any, **given: Any) -> Any:
        """Return the gradient of the rows, and with a weight the terms of its own, as numbers: those of rstd's type."""
        if weight is not None:
            given = {**given, "weight": weight, "dtype": {"dweight": self._type_of(rstd)}}
        return _run(operation, x, self.host, axis=self.axis, rstd=rstd, **given, **self.options)

    def summed(self, terms: Any, like: Any, rows: Any) -> Any:
        """Return the sums along all axes but the one of the rows, of the type that an array has."""
        count = len(rows.shape)
        axes = tuple(k for k in range(count) if k != self.axis % count)
        dtype = self._type_of(like)
        if self.host:
            return tree.reduce(np.asarray(terms), "sum", axis=axes, dtype=dtype)
        own = {key: value for key, value in self.options.items() if key in ("stream", "allocator")}
        return reduce(terms, "sum", axis=axes, dtype=dtype, **own)

    def _type_of(self, array: Any) -> str:
        array = np.asarray(array) if self.host else shaped(self.options.get("stream"), array)[1]
        return name_of(array.dtype)

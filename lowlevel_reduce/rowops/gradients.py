"""Gradients of the built-in row operations, deterministic, without atomics; on the device, or in NumPy.

With respect to the rows each is a row operation of its own, so its bits for a row depend on that row alone. With
respect to weights and biases, terms are written and summed along the columns in the order of the one tree.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from lowlevel_reduce import tree
from lowlevel_reduce.arguments import not_masked
from lowlevel_reduce.arrays.device_array import ArrayView
from lowlevel_reduce.calls.reduce import reduce
from lowlevel_reduce.calls.threads import here
from lowlevel_reduce.layout import is_contiguous
from lowlevel_reduce.rowops import meaning, requests
from lowlevel_reduce.rowops.call import apply, row_operation
from lowlevel_reduce.rowops.exponentials import softmax_gradient_of
from lowlevel_reduce.rowops.norms import (
    group_norm_gradient_of,
    group_norm_means_of,
    group_norm_single_gradient_of,
    group_norm_single_terms_of,
    group_norm_sums_of,
    layer_norm_gradient_of,
    rms_norm_gradient_of,
)
from lowlevel_reduce.rowops.operation import RowOperation
from lowlevel_reduce.rowops.requests import IGNORE_INDEX, name_of, positive
from lowlevel_reduce.rowops.shaped import shaped

__all__ = [
    "cross_entropy_backward",
    "group_norm_backward",
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
    lse: Any = None,
    *,
    largest: Any = None,
    rest: Any = None,
    axis: int = -1,
    ignore_index: int = IGNORE_INDEX,
    weight: Any = None,
    label_smoothing: float = 0.0,
    host: bool = False,
    **options: Any,
) -> Any:
    """Return ``(softmax(x) - onehot(target)) * dloss``, the gradient with respect to the logits.

    Parameters
    ----------
    dloss : array
        The gradient with respect to each row's loss; a mean's is that of the mean over what counts in it.
    target, ignore_index, weight, label_smoothing
        As for `cross_entropy`.
    largest, rest : array
        What `cross_entropy` with ``return_stats=True`` returned: probabilities have their digits at any level of the
        logits, and that at a target which is the row's largest element is taken from 1 without loss.
    lse : array
        In their place, what it returned without: rounded, by which probabilities are off by its magnitude times 2^-24
        relative, of float32.
    axis, host, **options
        As for `softmax_backward`.
    """
    if host:
        x, weight = _on_host(x), None if weight is None else _on_host(weight)
    else:
        options["stream"], x, weight = shaped(options.get("stream"), x, weight)
    request = requests.cross_entropy_gradient(
        x, target, lse=lse, largest=largest, rest=rest, dloss=dloss, ignore_index=ignore_index, axis=axis,
        weight=weight, all_weights=lambda: sum_of_weights(weight, host=host, like=x, **options),
        label_smoothing=label_smoothing,
    )  # fmt: skip
    return _run(request.operation, x, host, axis=axis, **request.given, **options)


def sum_of_weights(weight: Any, *, like: Any, host: bool = False, **options: Any) -> Any:
    """Return the sum of the classes' weights as an array of one number, of the type in which rows of `like` compute."""
    dtype = "float64" if name_of(like.dtype) == "float64" else "float32"
    if host:
        return tree.reduce(np.asarray(weight), "sum", dtype=dtype, axis=0, keepdims=True)
    where = here().stream_of(options.get("stream"), like)  # the rows' stream, which the weights may not have
    return reduce(weight, "sum", dtype=dtype, axis=0, keepdims=True, stream=where, allocator=options.get("allocator"))


def group_norm_backward(
    dy: Any,
    x: Any,
    mean: Any,
    rstd: Any,
    num_groups: int,
    weight: Any = None,
    *,
    bias: bool = False,
    host: bool = False,
    **options: Any,
) -> tuple[Any, Any, Any]:
    """Return the gradients with respect to `x`, to `weight` (None without one), and to the bias if there is a `bias`.

    `mean` and `rstd` are what `group_norm` returned with ``return_stats=True``. Those of weights and biases are sums
    over each channel of a sample, then over the samples; the bias's is of the weight's type, or of that of `dy`.
    """
    if host:
        x, dy, mean, rstd = map(_on_host, (x, dy, mean, rstd))
        weight = None if weight is None else _on_host(weight)
    else:
        options["stream"], x, dy, mean, rstd, weight = shaped(options.get("stream"), x, dy, mean, rstd, weight)
    groups, channels, inner = requests.channels_of(x, num_groups, weight)
    _check_stats(x, groups, mean=mean, rstd=rstd)
    own = {key: value for key, value in options.items() if key != "out"}
    stats = {"means": _flat(mean), "rstds": _flat(rstd)}
    # On the host there is nothing to gain by other rows, and it tells whether these have the same bits.
    is_single = inner == 1 and not host
    of_size = requests.channel_words(groups, channels, channels // groups)
    of_element = {name: of_size[name] for name in ("groups", "word", "shift")}
    call = _Call(-1, host, own)
    sums: Any = None
    if is_single and (weight is not None or bias):
        sums = _single_sums(x, dy, {**stats, **of_element}, call.type_of(mean), own)
    elif weight is not None or bias:
        sums = _in_groups(group_norm_sums_of(), x, dy, channels, host, {**stats, "channels": channels // groups}, own)
    if weight is None:
        of_rows = {"mean": mean, "rstd": rstd}
        dx = _in_groups(layer_norm_gradient_of(weight=False, terms=False), x, dy, groups, host, of_rows, options)
    else:
        found = {"weight": weight, "groups": groups, "count": channels // groups * inner}
        means = _in_groups(group_norm_means_of(), sums.dbias, sums.dweight, groups, host, found, own)
        given = {**stats, "gradients": _flat(means.gradient), "products": _flat(means.product), "weight": weight}
        if is_single:
            dx = _in_groups(group_norm_single_gradient_of(), x, dy, 1, host, given | of_element, options)
        else:
            given |= {"channels": channels // groups, "every": channels}
            dx = _in_groups(group_norm_gradient_of(), x, dy, channels, host, given, options)
    like = dy if weight is None else weight
    dweight = None if weight is None else call.summed(sums.dweight, like, sums.dweight)
    return dx, dweight, call.summed(sums.dbias, like, sums.dbias) if bias else None


class _Sums(NamedTuple):
    """The sums over each channel of each sample, of which the gradients of weights and biases are made."""

    dbias: Any
    dweight: Any


def _single_sums(x: Any, dy: Any, given: dict[str, Any], number: str, options: dict[str, Any]) -> _Sums:
    """Return the sums where each channel is one element."""
    dtype = dict.fromkeys(_Sums._fields, number)
    terms = _in_groups(group_norm_single_terms_of(), x, dy, 1, False, given, {**options, "dtype": dtype})
    return _Sums(*(each.reshape(x.shape[:2]) for each in (terms.dbias, terms.dweight)))


def _check_stats(x: Any, groups: int, **stats: Any) -> None:
    """Refuse statistics that are not one number for each group of each sample."""
    due = (x.shape[0], groups)
    for name, array in stats.items():
        if tuple(array.shape) != due:
            raise ValueError(f"{name} has shape {tuple(array.shape)}, not {due}")


def _on_host(array: Any) -> Any:
    return np.asarray(not_masked(array))


def _flat(array: Any) -> Any:
    """Return an array as one axis."""
    if isinstance(array, ArrayView):
        if not is_contiguous(array.shape, array.strides_bytes, array.dtype.itemsize):
            raise ValueError("statistics are contiguous in C order")
        return array._replace(shape=(math.prod(array.shape),), strides_bytes=None)
    return array.reshape(-1)


def _in_groups(
    operation: RowOperation,
    x: Any,
    second: Any,
    groups: int,
    host: bool,
    given: dict[str, Any],
    options: dict[str, Any],
) -> Any:
    """Apply an operation to rows that are groups of channels."""
    if not host:
        return apply(operation, x, given, second=second, groups=groups, **options)
    if second.shape != x.shape:
        raise ValueError(f"dy has shape {second.shape}, not {x.shape}")
    shape = (x.shape[0], groups, math.prod(x.shape[1:]) // groups)
    found = meaning.row_operation(operation, x.reshape(shape), second=second.reshape(shape), **given)
    return found.reshape(x.shape) if operation.write else found


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
            given = {**given, "weight": weight, "dtype": {"dweight": self.type_of(rstd)}}
        return _run(operation, x, self.host, axis=self.axis, rstd=rstd, **given, **self.options)

    def summed(self, terms: Any, like: Any, rows: Any) -> Any:
        """Return the sums along all axes but the one of the rows, of the type that an array has."""
        count = len(rows.shape)
        axes = tuple(k for k in range(count) if k != self.axis % count)
        dtype = self.type_of(like)
        if self.host:
            return tree.reduce(np.asarray(terms), "sum", axis=axes, dtype=dtype)
        own = {key: value for key, value in self.options.items() if key in ("stream", "allocator")}
        return reduce(terms, "sum", axis=axes, dtype=dtype, **own)

    def type_of(self, array: Any) -> str:
        """Return the name of an array's type."""
        array = np.asarray(array) if self.host else shaped(self.options.get("stream"), array)[1]
        return name_of(array.dtype)

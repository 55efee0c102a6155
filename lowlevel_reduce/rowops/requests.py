"""From the arguments of a built-in row operation to the operation and what it is given: for the device and the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from lowlevel_reduce.arguments import integer, real, shown
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.rowops import exponentials, losses, norms, quantisation
from lowlevel_reduce.rowops.operation import RowOperation, axis_of

__all__ = [
    "IGNORE_INDEX",
    "PROBABILITIES",
    "Request",
    "channel_words",
    "channels_of",
    "cross_entropy",
    "cross_entropy_gradient",
    "group_norm",
    "layer_norm",
    "log_prob",
    "name_of",
    "normalize",
    "quantize",
    "rms_norm",
    "softmax",
]

PROBABILITIES = "targets are indices of classes, not probabilities: those give -(target * log_softmax(x)).sum(-1)"
"""What is said of targets that torch would take as probabilities."""

IGNORE_INDEX = -100
"""The target of rows whose loss does not count, by default: torch's."""

_LAST = -1
"""The axis of rows by default."""

_EPSILONS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
_epsilons: dict[Any, float] = {}  # by dtypes, NumPy's and other libraries'; their names take a microsecond or two

_NORMS = {1.0: "norm1", 2.0: "norm2", np.inf: "norm_inf"}


class Request(NamedTuple):
    """An operation and what it is given.

    Attributes
    ----------
    operation : RowOperation
        The operation.
    given : dict
        Columns, row inputs and parameters, by name.
    second : array or None
        The second array.
    dtype : mapping or None
        Types of the outputs, by name.
    block : int or None
        The elements of the blocks that rows are cut into.
    axis : int
        Along which rows lie.
    groups : int or None
        The groups that the second axis is cut into, each a row with all axes behind it.
    """

    operation: RowOperation
    given: dict[str, Any]
    second: Any = None
    dtype: Mapping[str, Any] | None = None
    block: int | None = None
    axis: int = -1
    groups: int | None = None


def softmax(
    x: Any, axis: int, *, log: bool, scale: float, causal: bool, offset: int | None, lengths: Any, dtype: Any
) -> Request:
    """Return the request of `lowlevel_reduce.softmax` and `lowlevel_reduce.log_softmax`."""
    shape = _shape(x, axis)
    causal = _switch(causal, "causal")
    scale = positive(scale, "scale")
    given: dict[str, Any] = {"scale": scale} if scale != 1 else {}
    if causal:
        if len(shape) < 2:
            raise ValueError("a causal mask needs an array of two axes at least: queries and keys")
        queries, keys = shape[-2:]
        given["queries"] = max(queries, 1)
        given["offset"] = keys - queries if offset is None else integer(offset, "offset is an integer")
    elif offset is not None:
        raise ValueError("offset goes with causal=True")
    if lengths is not None:
        given["lengths"] = lengths
    operation = exponentials.softmax_of(log=log, causal=causal, lengths=lengths is not None, scaled=scale != 1)
    return Request(operation, given, dtype=_dtype("out", dtype), axis=axis)


def cross_entropy(
    x: Any,
    target: Any,
    *,
    ignore_index: int,
    reduction: str,
    axis: int = -1,
    weight: Any = None,
    all_weights: Callable[[], Any] = lambda: None,
    label_smoothing: float = 0.0,
    stats: bool = False,
) -> Request:
    """Return the request of `lowlevel_reduce.cross_entropy`, for each row's loss; `all_weights` makes their sum."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f'reduction is "mean", "sum" or "none", not {shown(reduction)}')
    if _switch(stats, "return_stats") and reduction != "none":
        raise ValueError('return_stats goes with reduction="none"')
    given, options = _classes(x, axis, target, ignore_index, weight, all_weights, label_smoothing)
    operation = losses.cross_entropy_of(counts=reduction == "mean", stats=stats, **options)
    return Request(operation, given, axis=axis)


def cross_entropy_gradient(
    x: Any,
    target: Any,
    *,
    lse: Any,
    largest: Any,
    rest: Any,
    dloss: Any,
    ignore_index: int,
    axis: int = -1,
    weight: Any = None,
    all_weights: Callable[[], Any] = lambda: None,
    label_smoothing: float = 0.0,
    first: int = 0,
) -> Request:
    """Return the request of `lowlevel_reduce.cross_entropy_backward`: of the log-sum-exp, or of what it is made of."""
    known = largest is not None and rest is not None
    if (largest is None) != (rest is None) or (lse is None) != known:
        raise TypeError("the gradient of a loss is made of lse, or of largest and rest")
    given, options = _classes(x, axis, target, ignore_index, weight, all_weights, label_smoothing)
    given |= {"largest": largest if known else lse, "rest": rest if known else lse, "dloss": dloss, "known": int(known)}
    given["first"] = first
    return Request(losses.cross_entropy_gradient_of(**options), given, axis=axis)


def _classes(
    x: Any, axis: int, target: Any, ignore_index: int, weight: Any, all_weights: Callable[[], Any], smoothing: float
) -> tuple[dict[str, Any], dict[str, bool]]:
    """Return what a loss and its gradient are given by their arguments, and of which operation they are."""
    classes = _shape(x, axis)[-1:]
    _refuse_probabilities(x, target)
    given = {"target": target, "ignore": integer(ignore_index, "ignore_index is an integer")}
    smoothing = not_negative(smoothing, "label_smoothing")
    if smoothing > 1:
        raise ValueError(f"label_smoothing is between 0 and 1, not {shown(smoothing)}")
    options = {"weight": weight is not None, "smooth": smoothing > 0}
    if smoothing:
        given["smoothing"] = smoothing
    if weight is not None:
        if _shape(weight, _LAST) != classes:
            raise ValueError(f"weight has shape {_shape(weight, _LAST)}, not {classes}")
        given["weights"] = weight
        if smoothing:
            given |= {"weight": weight, "all": all_weights()}
    return given, options


def _refuse_probabilities(x: Any, target: Any) -> None:
    """Refuse targets of the logits' shape and of floats, as torch takes them."""
    shape, dtype = getattr(target, "shape", None), getattr(target, "dtype", None)
    if shape is not None and tuple(shape) == tuple(x.shape) and name_of(dtype) in _EPSILONS:
        raise UnsupportedError(PROBABILITIES)


def log_prob(x: Any, target: Any, *, scale: float, axis: int = -1) -> Request:
    """Return the request of `lowlevel_reduce.log_prob`."""
    _shape(x, axis)
    return Request(losses.log_prob_of(), {"target": target, "scale": positive(scale, "scale")}, axis=axis)


def rms_norm(
    x: Any, weight: Any, eps: float | None, *, residual: Any, keeps: bool, dtype: Any, axis: int = -1
) -> Request:
    """Return the request of `lowlevel_reduce.rms_norm`."""
    _shape(x, axis)
    operation = norms.rms_norm_of(
        weight=weight is not None, residual=residual is not None, keeps=_switch(keeps, "return_rstd")
    )
    given = {"eps": epsilon(eps, x), **({} if weight is None else {"weight": weight})}
    return Request(operation, given, second=residual, dtype=_dtype("out", dtype), axis=axis)


def layer_norm(x: Any, weight: Any, bias: Any, eps: float, *, keeps: bool, dtype: Any, axis: int = -1) -> Request:
    """Return the request of `lowlevel_reduce.layer_norm`."""
    _shape(x, axis)
    operation = norms.layer_norm_of(
        weight=weight is not None, bias=bias is not None, keeps=_switch(keeps, "return_stats")
    )
    arrays = {"weight": weight, "bias": bias}
    given = {"eps": not_negative(eps, "eps"), **{name: each for name, each in arrays.items() if each is not None}}
    return Request(operation, given, dtype=_dtype("out", dtype), axis=axis)


def group_norm(
    x: Any, num_groups: int, weight: Any, bias: Any, eps: float, *, dtype: Any, keeps: bool = False
) -> Request:
    """Return the request of `lowlevel_reduce.group_norm`."""
    groups, channels, inner = _channels(x, num_groups)
    operation = norms.group_norm_of(
        weight=weight is not None, bias=bias is not None, keeps=_switch(keeps, "return_stats")
    )
    arrays = {"weight": weight, "bias": bias}
    given: dict[str, Any] = {"eps": not_negative(eps, "eps")}
    for name, each in arrays.items():
        if each is None:
            continue
        if _shape(each, -1) != (channels,):
            raise ValueError(f"{name} has shape {_shape(each, -1)}, not {(channels,)}")
        given[name] = each
    if weight is not None or bias is not None:
        given |= channel_words(groups, channels, inner)
    return Request(operation, given, dtype=_dtype("out", dtype), groups=groups)


def channels_of(x: Any, num_groups: int, weight: Any) -> tuple[int, int, int]:
    """Return groups, channels and the elements of each, for a gradient of `lowlevel_reduce.group_norm`."""
    groups, channels, inner = _channels(x, num_groups)
    if not channels:
        raise ValueError("without channels there is no gradient of a group_norm")
    if weight is not None and _shape(weight, _LAST) != (channels,):
        raise ValueError(f"weight has shape {_shape(weight, _LAST)}, not {(channels,)}")
    return groups, channels, inner


def channel_words(groups: int, channels: int, inner: int) -> dict[str, int]:
    """Return the parameters by which an element of a group is of a channel, each of which has `inner` elements."""
    word, shift = norms.divisor_words(max(inner, 1))
    return {"groups": groups, "channels": channels // groups, "word": word, "shift": shift}


def _channels(x: Any, num_groups: int) -> tuple[int, int, int]:
    """Return how many groups and channels there are, and how many elements each channel has."""
    shape = _shape(x, -1)
    if len(shape) < 2:
        raise ValueError("group_norm needs an array of two axes at least: the batch's and the channels'")
    groups = integer(num_groups, "num_groups is an integer")
    if groups < 1 or shape[1] % groups:
        raise ValueError(f"{shape[1]} channels do not divide into {groups} groups")
    return groups, shape[1], math.prod(shape[2:])


def normalize(x: Any, p: float, axis: int, eps: float, *, dtype: Any) -> Request:
    """Return the request of `lowlevel_reduce.normalize`."""
    _shape(x, axis)
    order = float(real(p, "the order of a norm is 1, 2 or infinity"))
    if order not in _NORMS:
        raise UnsupportedError(f"rows are normalised by the norm of order 1, 2 or infinity, not {shown(p)}")
    operation = norms.normalize_of(_NORMS[order])
    return Request(operation, {"eps": not_negative(eps, "eps")}, dtype=_dtype("out", dtype), axis=axis)


def quantize(x: Any, dtype: Any, block: int | None, *, weight: Any, rms_eps: float | None, axis: int = -1) -> Request:
    """Return the request of `lowlevel_reduce.quantize`."""
    from lowlevel_reduce.dtypes import numpy_dtype  # noqa: PLC0415 - what is imported above would hide the argument

    shape = _shape(x, axis)
    norm = rms_eps is not None
    if weight is not None and not norm:
        raise ValueError("weight goes with rms_eps, the eps of the rms_norm before the quantisation")
    if block is not None:
        block = integer(block, "block is an integer")
        if block not in quantisation.BLOCKS:
            raise ValueError(f"rows are quantised by blocks of 32, 64 or 128 elements, not of {block}")
        if norm:
            raise UnsupportedError("after an rms_norm a row is quantised as a whole, not by blocks")
        if shape[-1] % block:
            raise ValueError(f"rows of {shape[-1]} elements do not divide into blocks of {block}")
    operation = quantisation.quantize_of(numpy_dtype(dtype).name, norm=norm, weight=weight is not None)
    given: dict[str, Any] = {"eps": not_negative(rms_eps, "rms_eps")} if norm else {}
    if weight is not None:
        given["weight"] = weight
    return Request(operation, given, block=block, axis=axis)


def epsilon(eps: float | None, x: Any) -> float:
    """Return eps; by default the distance from 1 to the next number of the elements' type."""
    if eps is not None:
        return not_negative(eps, "eps")
    found = _epsilons.get(x.dtype)
    if found is None:
        name = name_of(x.dtype)
        if name not in _EPSILONS:
            raise UnsupportedError(f"row operations take rows of {', '.join(_EPSILONS)}, not of {name}")
        found = _epsilons[x.dtype] = _EPSILONS[name]
    return found


def name_of(dtype: Any) -> str:
    """Return the name of a dtype, NumPy's or another library's."""
    return str(dtype).rsplit(".", 1)[-1]


def positive(value: Any, name: str) -> float:
    """Return a real number above zero and finite, as a float."""
    if type(value) is float and 0 < value < np.inf:
        return value
    number = float(real(value, f"{name} is a real number"))
    if not 0 < number < np.inf:
        raise ValueError(f"{name} is above 0 and finite, not {shown(value)}")
    return number


def not_negative(value: Any, name: str) -> float:
    """Return a real number from zero on, as a float."""
    if type(value) is float and value >= 0:
        return value
    number = float(real(value, f"{name} is a real number"))
    if not number >= 0:
        raise ValueError(f"{name} is 0 or more, not {shown(value)}")
    return number


def _shape(x: Any, axis: int) -> tuple[int, ...]:
    """Return the array's shape, the rows' axis last."""
    try:
        shape = tuple(x.shape)
    except (AttributeError, TypeError):
        raise TypeError(f"{type(x).__name__} is no array: it has no shape") from None
    if axis is _LAST and shape:  # what most calls say: this is a hot path
        return shape
    axis = axis_of(axis, len(shape))
    return (*shape[:axis], *shape[axis + 1 :], shape[axis])


def _switch(value: Any, name: str) -> bool:
    """Return a bool: of what else might be meant as one, as text, all would be true."""
    if value is False or value is True:
        return value
    if not isinstance(value, np.bool_):
        raise TypeError(f"{name} is True or False, not {shown(value)}")
    return bool(value)


def _dtype(name: str, dtype: Any) -> dict[str, Any] | None:
    return None if dtype is None else {name: dtype}

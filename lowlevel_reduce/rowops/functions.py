"""The built-in row operations by their names, on the device: names and arguments as in torch where torch has them.

Of every array one axis is the row, by default the last one: up to 2^30 elements of float16, bfloat16, float32 or
float64, of any stride. `out`, `stream`, `allocator` and what is raised are as for
`lowlevel_reduce.rowops.call.row_operation`; `out` may be `x` itself. A row's bits depend on that row and the arguments
alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lowlevel_reduce.functions.keywords import own_keywords
from lowlevel_reduce.rowops import requests
from lowlevel_reduce.rowops.call import apply, row_operation
from lowlevel_reduce.rowops.losses import MEAN_OF_LOSSES
from lowlevel_reduce.rowops.shaped import shaped

if TYPE_CHECKING:
    from lowlevel_reduce.arrays.allocator import Allocator

__all__ = [
    "cross_entropy",
    "group_norm",
    "layer_norm",
    "log_prob",
    "log_softmax",
    "normalize",
    "quantize",
    "rms_norm",
    "softmax",
]


def _apply(request: requests.Request, x: Any, **options: Any) -> Any:
    return apply(
        request.operation,
        x,
        request.given,
        axis=request.axis,
        second=request.second,
        dtype=request.dtype,
        block=request.block,
        groups=request.groups,
        **options,
    )


def _sum_of_weights(weight: Any, **options: Any) -> Any:
    from lowlevel_reduce.rowops.gradients import sum_of_weights  # noqa: PLC0415 - losses without weights need none

    return sum_of_weights(weight, **options)


@own_keywords
def softmax(
    x: Any,
    axis: int = -1,
    *,
    scale: float = 1.0,
    causal: bool = False,
    offset: int | None = None,
    lengths: Any = None,
    dtype: Any = None,
    out: Any = None,
    stream: Any = None,
    allocator: Allocator | None = None,
    strategy: str | None = None,
    cluster: int | None = None,
) -> Any:
    """Return ``exp(scale * x - max) / sum`` of each row; elements that a mask hides become 0.

    Parameters
    ----------
    x : array
        The rows.
    axis : int
        Along which rows lie.
    scale : float
        Above 0; elements are multiplied by it, rounded to the type in which expressions compute.
    causal : bool
        Whether row r of the last one of the other axes has only its first ``r + 1 + offset`` elements.
    offset : int, optional
        By default the keys less the queries: the last query sees all keys.
    lengths : array of int, optional
        How many elements each row has, of the shape of the other axes; hidden ones are not read.
    dtype : dtype, optional
        Type of the result; by default the elements' own.
    out, stream, allocator, strategy, cluster : optional
        As for `row_operation`.

    Notes
    -----
    A row whose largest element is infinite or NaN becomes NaN, as in torch; a row without elements becomes zeros.
    """
    stream, x = shaped(stream, x)
    request = requests.softmax(
        x, axis, log=False, scale=scale, causal=causal, offset=offset, lengths=lengths, dtype=dtype
    )
    return _apply(request, x, out=out, stream=stream, allocator=allocator, strategy=strategy, cluster=cluster)


@own_keywords
def log_softmax(
    x: Any,
    axis: int = -1,
    *,
    scale: float = 1.0,
    causal: bool = False,
    offset: int | None = None,
    lengths: Any = None,
    dtype: Any = None,
    out: Any = None,
    stream: Any = None,
    allocator: Allocator | None = None,
    strategy: str | None = None,
    cluster: int | None = None,
) -> Any:
    """Return the logarithm of `softmax`, whose arguments these are; elements that a mask hides become -inf."""
    stream, x = shaped(stream, x)
    request = requests.softmax(
        x, axis, log=True, scale=scale, causal=causal, offset=offset, lengths=lengths, dtype=dtype
    )
    return _apply(request, x, out=out, stream=stream, allocator=allocator, strategy=strategy, cluster=cluster)


@own_keywords
def rms_norm(
    x: Any,
    weight: Any = None,
    eps: float | None = None,
    *,
    axis: int = -1,
    residual: Any = None,
    return_rstd: bool = False,
    dtype: Any = None,
    out: Any = None,
    stream: Any = None,
    allocator: Allocator | None = None,
    strategy: str | None = None,
    cluster: int | None = None,
) -> Any:
    """Return ``x * rstd * weight`` of each row, where ``rstd = 1 / sqrt(mean(x * x) + eps)``.

    Parameters
    ----------
    weight : array, optional
        One element for each column.
    eps : float, optional
        By default the elements' type's epsilon, as torch documents its own; of types of 16 bits torch takes float32's.
    residual : array, optional
        Added to `x` first, rounded to the elements' type; the sum is written too, to ``out={"residual": …}`` or a new
        array.
    return_rstd : bool
        Whether rstd is returned too.

    Returns
    -------
    DeviceArray or named tuple
        `out`; with more than that, a tuple of `out`, `residual` and `rstd`, as far as they were asked for.
    """
    stream, x = shaped(stream, x)
    request = requests.rms_norm(x, weight, eps, residual=residual, keeps=return_rstd, dtype=dtype, axis=axis)
    return _apply(request, x, out=out, stream=stream, allocator=allocator, strategy=strategy, cluster=cluster)


@own_keywords
def layer_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    axis: int = -1,
    return_stats: bool = False,
    dtype: Any = None,
    out: Any = None,
    stream: Any = None,
    allocator: Allocator | None = None,
    strategy: str | None = None,
    cluster: int | None = None,
) -> Any:
    """Return ``(x - mean) * rstd * weight + bias`` of each row, where ``rstd = 1 / sqrt(variance + eps)``.

    `weight` and `bias` have one element for each column. With `return_stats` the result is a named tuple of `out`,
    `mean` and `rstd`.
    """
    stream, x = shaped(stream, x)
    request = requests.layer_norm(x, weight, bias, eps, keeps=return_stats, dtype=dtype, axis=axis)
    return _apply(request, x, out=out, stream=stream, allocator=allocator, strategy=strategy, cluster=cluster)


@own_keywords
def group_norm(
    x: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    return_stats: bool = False,
    dtype: Any = None,
    out: Any = None,
    stream: Any = None,
    allocator: Allocator | None = None,
    strategy: str | None = None,
    cluster: int | None = None,
) -> Any:
    """Return ``(x - mean) * rstd * weight + bias``, with the mean and variance of each group of channels of a sample.

    Parameters
    ----------
    x : array
        Of shape ``(samples, channels, ...)``. All axes but the first are one piece, as those of a contiguous array.
    num_groups : int
        How many groups the channels are cut into, each of as many neighbouring ones.
    weight, bias : array, optional
        One element for each channel.
    eps : float
        Added to the variance: ``rstd = 1 / sqrt(variance + eps)``.
    return_stats : bool
        Whether each group's `mean` and `rstd` are returned too, of shape ``(samples, num_groups)``.

    Returns
    -------
    DeviceArray or named tuple
        `out`; with `return_stats` a tuple of `out`, `mean` and `rstd`.

    Raises
    ------
    UnsupportedError
        If a group is not in one piece, as where channels lie last in memory.
    """
    stream, x, weight, bias = shaped(stream, x, weight, bias)
    request = requests.group_norm(x, num_groups, weight, bias, eps, dtype=dtype, keeps=return_stats)
    return _apply(request, x, out=out, stream=stream, allocator=allocator, strategy=strategy, cluster=cluster)


@own_keywords
def normalize(
    x: Any,
    p: float = 2.0,
    axis: int = -1,
    eps: float = 1e-12,
    *,
    dtype: Any = None,
    out: Any = None,
    stream: Any = None,
    allocator: Allocator | None = None,
    strategy: str | None = None,
    cluster: int | None = None,
) -> Any:
    """Return rows divided by their norm of order `p` (1, 2 or infinity), or by `eps` if that is larger."""
    stream, x = shaped(stream, x)
    request = requests.normalize(x, p, axis, eps, dtype=dtype)
    return _apply(request, x, out=out, stream=stream, allocator=allocator, strategy=strategy, cluster=cluster)


@own_keywords
def quantize(
    x: Any,
    dtype: Any = "float8_e4m3fn",
    *,
    axis: int = -1,
    block: int | None = None,
    rms_eps: float | None = None,
    weight: Any = None,
    out: Any = None,
    stream: Any = None,
    allocator: Allocator | None = None,
    strategy: str | None = None,
    cluster: int | None = None,
) -> Any:
    """Return `values` of 8 bits and the `scale` of each row, or of each block of it: ``x`` is about ``values * scale``.

    The scale is the largest magnitude over the largest number of the type, 448 or 127. Values are products of the
    elements with ``largest number / largest magnitude``, rounded to nearest; int8 between -127 and 127.

    Parameters
    ----------
    dtype : dtype
        ``"float8_e4m3fn"`` or ``"int8"``.
    block : int, optional
        32, 64 or 128: rows are cut into blocks of as many elements. The axis of blocks is the last one of `scale`.
    rms_eps : float, optional
        Quantise ``rms_norm(x, weight, rms_eps)`` in place of `x`, without rounding it in between.

    Returns
    -------
    named tuple of DeviceArray
        `values`, of the shape of `x`, and `scale`, a number for each row or block. A row of zeros, or of magnitudes
        under 2^-100, has scale 0. A NaN in a row makes its scale NaN, an infinity makes it infinite.
    """
    stream, x = shaped(stream, x)
    request = requests.quantize(x, dtype, block, weight=weight, rms_eps=rms_eps, axis=axis)
    return _apply(request, x, out=out, stream=stream, allocator=allocator, strategy=strategy, cluster=cluster)


@own_keywords
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
    out: Any = None,
    stream: Any = None,
    allocator: Allocator | None = None,
    strategy: str | None = None,
    cluster: int | None = None,
) -> Any:
    """Return the loss ``logsumexp(x) - x[target]`` of rows of logits, as float32, or float64 for float64.

    Parameters
    ----------
    target : array of int
        One for each row, of the shape of the other axes. A target that is no element's index makes the loss NaN:
        nothing else is read.
    weight : array, optional
        One element for each class: a row's loss is multiplied by its target's, and counts as much in the mean.
    ignore_index : int
        Rows with this target have loss 0, and do not count in the mean.
    reduction : {"mean", "sum", "none"}
        "none" returns a named tuple of each row's `loss` and `lse`, the log-sum-exp.
    label_smoothing : float
        Between 0 and 1: how much of the loss is the mean over all classes, each by its weight, not the target's.
    return_stats : bool
        Of ``reduction="none"``, whether the largest logit and the sum of the others' ``exp(x - largest)`` are returned
        as `largest` and `rest` in place of `lse`, which is their ``largest + log1p(rest)``: the gradient is made of
        them.

    Notes
    -----
    Of a row with an element of +inf or NaN, and of one of nothing but -inf, the loss is NaN, as in torch; at a target
    of -inf in another row it is inf.
    """
    stream, x = shaped(stream, x)
    if weight is not None:
        stream, weight = shaped(stream, weight)
    request = requests.cross_entropy(
        x, target, ignore_index=ignore_index, reduction=reduction, axis=axis, weight=weight,
        all_weights=lambda: _sum_of_weights(weight, like=x, stream=stream, allocator=allocator),
        label_smoothing=label_smoothing, stats=return_stats,
    )  # fmt: skip
    first = out if reduction == "none" else None
    found = _apply(request, x, out=first, stream=stream, allocator=allocator, strategy=strategy, cluster=cluster)
    if reduction == "none":
        return found
    if reduction == "sum":
        from lowlevel_reduce.calls.reduce import reduce  # noqa: PLC0415 - its options are others

        return reduce(found.loss, "sum", out=out, stream=stream, allocator=allocator)
    losses, counted = found.loss.ravel(), found.counts.ravel()
    return row_operation(MEAN_OF_LOSSES, losses, second=counted, out=out, stream=stream, allocator=allocator)


@own_keywords
def log_prob(
    x: Any,
    target: Any,
    *,
    axis: int = -1,
    scale: float = 1.0,
    out: Any = None,
    stream: Any = None,
    allocator: Allocator | None = None,
    strategy: str | None = None,
    cluster: int | None = None,
) -> Any:
    """Return `log_prob`, ``log_softmax(scale * x)[target]`` of each row, and its log-sum-exp `lse`, as a named tuple.

    A target that is no element's index gives NaN. `scale` is the inverse of a temperature.
    """
    stream, x = shaped(stream, x)
    request = requests.log_prob(x, target, scale=scale, axis=axis)
    return _apply(request, x, out=out, stream=stream, allocator=allocator, strategy=strategy, cluster=cluster)

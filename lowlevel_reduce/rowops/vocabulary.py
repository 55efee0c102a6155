"""`lr.vocabulary`: rows in parts over the ranks of a group, as the logits of tensor-parallel models: one GPU's bits.

>>> found = lr.vocabulary.cross_entropy(part, target, length=128_256, first=rank * 32_064)      # on every rank

Each rank has a slice of the last axis, and the same targets, which number the elements of whole rows. The partials of
the largest element and of the sum of exponentials travel, and each row's logit of its target; the logits stay where
they are. Groups and cuts are those of `lowlevel_reduce.distributed.reduce`, and so are the errors; all ranks make the
same calls in the same order.
"""

from __future__ import annotations

import functools
from typing import Any

from lowlevel_reduce.arguments import integer
from lowlevel_reduce.operators.exponentials import SOFTMAX_REST
from lowlevel_reduce.parts import distributed
from lowlevel_reduce.rowops import requests
from lowlevel_reduce.rowops.call import row_operation
from lowlevel_reduce.rowops.exponentials import softmax_with_stats_of
from lowlevel_reduce.rowops.losses import LOSS, LSE
from lowlevel_reduce.rowops.operation import RowOperation
from lowlevel_reduce.rowops.requests import IGNORE_INDEX, name_of

__all__ = ["cross_entropy", "cross_entropy_backward", "log_prob", "log_softmax", "softmax"]


def softmax(part: Any, group: Any = None, *, length: int, out: Any = None, stream: Any = None) -> Any:
    """Return this rank's part of `lowlevel_reduce.softmax` of whole rows.

    Parameters
    ----------
    part : array
        This rank's slice of the last axis, contiguous in C order: float16, bfloat16, float32 or float64.
    group : optional
        The ranks, as for `lowlevel_reduce.distributed.reduce`.
    length : int
        Elements of a whole row.
    out : array, optional
        Where to write it; `part` itself works in place.
    stream : optional
        As for `lowlevel_reduce.softmax`.
    """
    return _written(part, group, length, out, stream, log=False)


def log_softmax(part: Any, group: Any = None, *, length: int, out: Any = None, stream: Any = None) -> Any:
    """Return this rank's part of `lowlevel_reduce.log_softmax` of whole rows; the arguments are those of `softmax`."""
    return _written(part, group, length, out, stream, log=True)


def log_prob(part: Any, target: Any, group: Any = None, *, length: int, first: int, stream: Any = None) -> Any:
    """Return each row's `log_prob`, the logarithm of softmax at its target, and its log-sum-exp `lse`, on every rank.

    Parameters
    ----------
    part, group, length, stream
        As for `softmax`.
    target : array of int
        Which element of its whole row; the same on all ranks, of the shape of the other axes. One that is no element's
        index gives NaN.
    first : int
        Which element of whole rows is the first one of this rank's part.
    """
    return _at_targets(part, target, group, length, first, stream, ignore=None)


def cross_entropy(
    part: Any,
    target: Any,
    group: Any = None,
    *,
    length: int,
    first: int,
    ignore_index: int = IGNORE_INDEX,
    return_stats: bool = False,
    stream: Any = None,
) -> Any:
    """Return each row's `loss` and `lse`, as `lowlevel_reduce.cross_entropy` with ``reduction="none"``, on every rank.

    Arguments are those of `log_prob`; rows with the target `ignore_index` have loss 0. With `return_stats` there are
    `largest` and `rest` in place of `lse`, of which each rank makes its part of the gradient.
    """
    return _at_targets(part, target, group, length, first, stream, ignore=ignore_index, stats=return_stats)


def cross_entropy_backward(
    dloss: Any,
    part: Any,
    target: Any,
    largest: Any,
    rest: Any,
    *,
    first: int,
    ignore_index: int = IGNORE_INDEX,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Return this rank's part of `lowlevel_reduce.cross_entropy_backward` of whole rows; nothing travels for it.

    Arguments are those of `cross_entropy`, what it returned with `return_stats`, and the gradient with respect to each
    row's loss.
    """
    request = requests.cross_entropy_gradient(
        part, target, lse=None, largest=largest, rest=rest, dloss=dloss, ignore_index=ignore_index,
        first=integer(first, "first is an integer"),
    )  # fmt: skip
    return row_operation(request.operation, part, out=out, stream=stream, **request.given)


def _written(part: Any, group: Any, length: int, out: Any, stream: Any, *, log: bool) -> Any:
    largest, of_sum = _stats(part, group, length, stream, log=log)
    operation = softmax_with_stats_of(log=log)
    given = {"largest": largest, operation.rows[1]: of_sum}
    return row_operation(operation, part, out=out, stream=stream, **given)


def _stats(part: Any, group: Any, length: int, stream: Any, *, log: bool, fault: Exception | None = None) -> Any:
    """Return the largest element and the sum of exponentials of whole rows, as numbers; for `log` without its 1.

    A fault is raised when all ranks know that this one has it; so is what is wrong with the part.
    """
    number = "float64" if name_of(getattr(part, "dtype", None)) == "float64" else "float32"
    operator: Any = SOFTMAX_REST if log else "softmax_stats"
    return distributed.reduce(fault or part, operator, group, axis=-1, length=length, dtype=number, stream=stream)


@functools.cache
def _logits_of() -> RowOperation:
    """Return the logit of each row's target, NaN where this rank does not have it; a row's only element is not used."""
    return RowOperation(
        "logits_of_targets",
        keep={
            "logit": "const int64 k = target - first; "
            "return k >= 0 && k < count ? logits[row * count + k] : not_a_number<Number>();"
        },
        rows=("target: int64",),
        parameters=("first: int64", "count: int64"),
        tables=("logits",),
    )


@functools.cache
def _result_of(*, loss: bool, stats: bool) -> RowOperation:
    """Return what comes of the logit of a row's target, its only element, and of the row's statistics."""
    value = LOSS.format(logit="at(0)")
    value = value if loss else f"-({value})"
    value = f"target >= 0 && target < vocabulary ? {value} : not_a_number<Number>()"
    return RowOperation(
        "cross_entropy" if loss else "log_prob",
        row=LSE,
        keep={
            **({"loss": f"target == ignore ? Number(0) : {value}"} if loss else {"log_prob": value}),
            **({"largest": "Number(largest)", "rest": "Number(rest)"} if stats else {"lse": "lse"}),
        },
        rows=("target: int64", "largest", "rest"),
        parameters=("vocabulary: int64", *(("ignore: int64",) if loss else ())),
    )


def _checked(part: Any, target: Any, first: int, ignore: int | None) -> tuple[tuple[int, ...], int, dict[str, Any]]:
    """Return the shape of the rows, the number of the part's first element, and what is ignored; raises."""
    shape = tuple(part.shape[:-1])
    if not part.shape or tuple(target.shape) != shape:
        raise ValueError(f"target has shape {tuple(target.shape)}; it has one element for each row of {shape}")
    more: dict[str, Any] = {} if ignore is None else {"ignore": integer(ignore, "ignore_index is an integer")}
    return shape, integer(first, "first is an integer"), more


def _at_targets(
    part: Any, target: Any, group: Any, length: int, first: int, stream: Any, *, ignore: int | None, stats: bool = False
) -> Any:
    members, fault = distributed.group(group), None
    try:
        shape, first, more = _checked(part, target, first, ignore)
    except Exception as error:  # noqa: BLE001 - it is raised in the next reduction, in which the other ranks wait
        fault = error
    largest, rest = _stats(part, members, length, stream, log=True, fault=fault)
    logit: Any
    try:
        logit = row_operation(
            _logits_of(), largest.reshape(*shape, 1), target=target, logits=part.reshape(-1), first=first,
            count=part.shape[-1], stream=stream,
        ).reshape(1, -1)  # fmt: skip
    except Exception as error:  # noqa: BLE001 - as above
        logit = error
    # One rank has it, and the others NaN.
    logit = distributed.max(logit, members, axis=0, length=members.size, nan="ignore", stream=stream)
    return row_operation(
        _result_of(loss=ignore is not None, stats=stats), logit.reshape(*shape, 1), target=target, largest=largest,
        rest=rest, vocabulary=length, stream=stream, **more,
    )  # fmt: skip

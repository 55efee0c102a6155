"""Softmax and its logarithm, and their gradients, as row operations."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import numpy as np

from lowlevel_reduce.operators.exponentials import SOFTMAX_REST
from lowlevel_reduce.rowops.operation import RowMeaning, RowOperation

__all__ = [
    "exp_quotient",
    "log1p",
    "softmax_gradient_of",
    "softmax_of",
    "softmax_with_stats_of",
    "statistics",
]


def statistics(log: bool, scaled: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the reductions of ``scale * x``, and their terms in NumPy; without a scale the elements themselves."""
    names, operator = ("largest, rest", SOFTMAX_REST) if log else ("largest, total", "softmax_stats")
    if not scaled:
        return {names: operator}, {}
    return {names: (operator, "x * scale")}, {"largest": lambda v: v.x * v.scale}


# Of a row whose largest element is infinite or NaN all is NaN, as in torch: the sum of exponentials says nothing then.
_INVERSE = "largest - largest == 0 ? 1 / total : not_a_number<Number>()"


# Of 16 bits by one fused product, which is off by (|largest| + |x|) 2^-24 in the exponent, and the special function
# unit: a hundredth of the rounding to 16 bits. Of more by the quotient itself: the difference and the inverse go with
# what their roundings lack, which may be 32 units in the last place of the result where the row's range is 64.
_EXPONENTIALS = """\
if constexpr (sizeof(Output) <= 2) return power_of_two(fused(x, factor, shift)) * inverse;
else return exponential_times({x}, largest, inverse, lacks);"""
_LACKS = "fused(-inverse, total, Number(1)) * inverse"


_UNUSED = np.zeros(())
"""What NumPy has no use for: its ``exp`` is as good for 16 bits."""


def _exp(x: Any) -> Any:
    """Return ``exp(x)``; of float32 by float64, rounded once, for NumPy's own is off by up to 2.5 ulp there."""
    x = np.asarray(x)
    return np.exp(x.astype(np.float64)).astype(x.dtype) if x.dtype == np.float32 else np.exp(x)


def log1p(x: Any) -> Any:
    """Return ``log(1 + x)``, in the same way."""
    x = np.asarray(x)
    return np.log1p(x.astype(np.float64)).astype(x.dtype) if x.dtype == np.float32 else np.log1p(x)


def exp_quotient(v: SimpleNamespace, x: Any) -> Any:
    """Return ``exp(x - largest) / total`` of the difference itself, NaN in rows whose largest element is not finite."""
    total = np.where(v.largest - v.largest == 0, v.total, v.number(np.nan)).astype(np.float64)
    x, largest = np.asarray(x, np.float64), v.largest.astype(np.float64)
    difference = x - largest
    e = np.exp(difference)
    if v.number is np.float64:  # else the difference is exact, or its rounding nothing beside that to float32
        back = difference - x
        lost = (x - (difference - back)) - (largest + back)
        e = np.where(e > 0, e + e * lost, e)
    return (e / total).astype(v.number)


def _inverse(v: SimpleNamespace) -> Any:
    return np.where(v.largest - v.largest == 0, v.number(1) / v.total, v.number(np.nan))


# The logarithm of the whole sum, without adding the largest element's 1 first: of a row whose others have a sum of 1e-4
# the addition would lose 13 of its 24 bits, and the result of the largest element is that logarithm.
_LOG_TOTAL = "largest - largest == 0 ? logarithm_of_one_and(rest) : not_a_number<Number>()"
"""The text of a row's `log_total`, from `largest` and `rest`."""


def _log_total(v: SimpleNamespace) -> Any:
    return np.where(v.largest - v.largest == 0, log1p(v.rest), v.number(np.nan))


def _masked(causal: bool, lengths: bool, scaled: bool) -> dict[str, Any]:
    """Return how many elements of a row there are: up to the diagonal, or as many as an array says, or the lesser."""
    diagonal = "row % queries + 1 + offset"
    texts = {(True, False): diagonal, (False, True): "int64(lengths)"}
    both = f"const int64 up = {diagonal}; return up < int64(lengths) ? up : int64(lengths);"
    return {
        "length": texts.get((causal, lengths), both if causal else None),
        "rows": ("lengths: int64",) if lengths else (),
        "parameters": (*(("scale",) if scaled else ()), *(("queries: int64", "offset: int64") if causal else ())),
    }


def _length(causal: bool, lengths: bool) -> Any:
    def length(v: SimpleNamespace) -> Any:
        up = v.row % v.queries + 1 + v.offset if causal else v.n
        return np.minimum(up, v.lengths) if lengths else up

    return length if causal or lengths else None


def _written(log: bool, scaled: bool) -> tuple[dict[str, str], dict[str, str], Any, Any]:
    """Return the texts of a row and of its elements, and their meaning in NumPy, from a row's statistics."""

    def row(v: SimpleNamespace) -> dict[str, Any]:
        if log:
            return {"log_total": _log_total(v)}
        return {"inverse": _inverse(v), "lacks": _UNUSED, "factor": _UNUSED, "shift": _UNUSED}

    def write(v: SimpleNamespace) -> dict[str, Any]:
        x = v.x * v.scale if scaled else v.x
        out = x - v.largest - v.log_total if log else exp_quotient(v, x)
        return {"out": np.where(v.i < v.length, out, v.number(-np.inf if log else 0))}

    x = "x * scale" if scaled else "x"
    if log:
        texts = {"log_total": _LOG_TOTAL}
        return texts, {"out": f"({x} - largest) - log_total"}, row, write
    texts = {
        "inverse": _INVERSE,
        "lacks": _LACKS,
        "factor": f"{'scale * ' if scaled else ''}Number(1.4426950408889634)",
        "shift": "largest * Number(-1.4426950408889634)",
    }
    return texts, {"out": _EXPONENTIALS.format(x=x)}, row, write


@functools.cache
def softmax_with_stats_of(*, log: bool) -> RowOperation:
    """Return softmax or its logarithm where each row's largest element and sum of exponentials are known.

    That sum is `total`; for the logarithm `rest`, without the largest element's.
    """
    row, out, row_meaning, write = _written(log, scaled=False)
    return RowOperation(
        "log_softmax_with_stats" if log else "softmax_with_stats",
        row=row,
        write=out,
        rows=("largest", "rest" if log else "total"),
        numpy=RowMeaning(row=row_meaning, write=write),
    )


@functools.cache
def softmax_of(*, log: bool, causal: bool, lengths: bool, scaled: bool) -> RowOperation:
    """Return softmax or its logarithm of ``scale * x``, over the elements that the mask leaves."""
    reductions, terms = statistics(log, scaled)
    row, out, row_meaning, write = _written(log, scaled)
    fill = {"out": "-infinity<Number>()"} if log else {}
    masks = _masked(causal, lengths, scaled)
    return RowOperation(
        "log_softmax" if log else "softmax",
        reduce=reductions,
        row=row,
        write=out,
        fill=fill if masks["length"] else {},
        numpy=RowMeaning(
            terms=terms,
            row=row_meaning,
            write=write,
            length=_length(causal, lengths),
        ),
        **masks,
    )


@functools.cache
def softmax_gradient_of(*, log: bool) -> RowOperation:
    """Return the gradient with respect to `x`: of the results `x` and their gradient `y`."""
    if log:
        return RowOperation(
            "log_softmax_gradient",
            second=True,
            reduce={"total": ("sum", "y")},
            write={"dx": "(y - exponential(x) * total) * scale"},
            parameters=("scale",),
            numpy=RowMeaning(
                terms={"total": lambda v: v.y}, write=lambda v: {"dx": (v.y - _exp(v.x) * v.total) * v.scale}
            ),
        )
    return RowOperation(
        "softmax_gradient",
        second=True,
        reduce={"product": "dot"},
        write={"dx": "x * (y - product) * scale"},
        parameters=("scale",),
        numpy=RowMeaning(write=lambda v: {"dx": v.x * (v.y - v.product) * v.scale}),
    )

"""Cross entropy, its gradient, and log-probabilities of targets, as row operations."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import numpy as np

from lowlevel_reduce.operators.exponentials import SOFTMAX_REST
from lowlevel_reduce.rowops.exponentials import exp_quotient, log1p, statistics
from lowlevel_reduce.rowops.operation import RowMeaning, RowOperation

__all__ = [
    "LOSS",
    "LSE",
    "MEAN_OF_LOSSES",
    "cross_entropy_gradient_of",
    "cross_entropy_of",
    "log_prob_of",
]

# A target's logit is taken from the largest one first: of a large log-sum-exp, already rounded, little would be left.
LOSS = "(largest - {logit}) + log_total"
"""The text of a row's loss, from its statistics and the logit of its target."""

# Beside an infinite logit no loss means anything: NaN, as in torch. The log-sum-exp of such a row is infinite.
LSE = {
    "log_rest": "logarithm_of_one_and(rest)",
    "lse": "largest + log_rest",
    "log_total": "largest - largest == 0 ? log_rest : not_a_number<Number>()",
}
"""The texts of a row's values for it."""


def _lse(v: SimpleNamespace) -> dict[str, Any]:
    log_rest = log1p(v.rest)
    log_total = np.where(v.largest - v.largest == 0, log_rest, v.number(np.nan))
    return {"log_rest": log_rest, "lse": v.largest + log_rest, "log_total": log_total}


# Of labels smoothed by s, the loss is 1 - s of the target's and s of the mean over all elements, each by its weight.
# The mean of the logits is taken from the largest one, as a target's logit is.
_SMOOTH = {
    (False, True): "(1 - smoothing) * {loss} + smoothing * ((largest - middle) + log_total)",
    (True, True): (
        "(1 - smoothing) * (weights[target] * {loss}) + smoothing / Number(n) * (all[0] == 0 ? all[0] * log_total - "
        "weighted : all[0] * ((largest - weighted / all[0]) + log_total))"
    ),
    (True, False): "weights[target] * {loss}",
    (False, False): "{loss}",
}
"""The texts of a row's loss, by whether classes have weights and labels are smoothed."""


def _smooth(v: SimpleNamespace, loss: Any, weight: bool, smooth: bool) -> Any:
    """Return what `_SMOOTH` means."""
    loss = v.weights[v.target] * loss if weight else loss
    if not smooth:
        return loss
    one = v.number(1)
    if not weight:
        return (one - v.smoothing) * loss + v.smoothing * ((v.largest - v.middle) + v.log_total)
    whole = v.all[np.zeros((1, 1), np.int64)]
    spread = np.where(
        whole == 0, whole * v.log_total - v.weighted, whole * ((v.largest - v.weighted / whole) + v.log_total)
    )
    return (one - v.smoothing) * loss + v.smoothing / v.number(v.n) * spread


def _options(weight: bool, smooth: bool) -> dict[str, Any]:
    """Return what an operation is given for weights and smoothed labels."""
    return {
        "columns": ("weight",) if weight and smooth else (),
        "tables": (*(("weights",) if weight else ()), *(("all",) if weight and smooth else ())),
        "parameters": ("ignore: int64", *(("smoothing",) if smooth else ())),
    }


@functools.cache
def cross_entropy_of(*, counts: bool, stats: bool = False, weight: bool = False, smooth: bool = False) -> RowOperation:
    """Return each row's loss and, for means, what it counts.

    With `stats` the largest element and the others' sum of exponentials are kept, of which its gradient is made; else
    the log-sum-exp. With `weight` each element has one: ``weights``, and to be smoothed the same as columns and their
    sum, ``all``.
    """
    loss = _SMOOTH[weight, smooth].format(
        loss=f"({LOSS.format(logit='at(target)')})" if weight or smooth else LOSS.format(logit="at(target)")
    )
    keep = {"loss": f"target == ignore ? Number(0) : {loss}"}
    keep |= {"largest": "largest", "rest": "rest"} if stats else {"lse": "lse"}
    if counts:
        keep["counts"] = "target == ignore ? Number(0) : weights[target]" if weight else "Number(target != ignore)"
    reductions: dict[str, Any] = {"largest, rest": SOFTMAX_REST}
    if smooth:
        reductions |= {"weighted": ("sum", "x * weight")} if weight else {"middle": "mean"}

    def write(v: SimpleNamespace) -> dict[str, Any]:
        loss = _smooth(v, (v.largest - v.at(v.target)) + v.log_total, weight, smooth)
        counted = (v.target != v.ignore).astype(v.number)
        return {
            "loss": np.where(v.target == v.ignore, v.number(0), loss),
            "lse": v.lse,
            "largest": v.largest,
            "rest": v.rest,
            "counts": np.where(counted == 0, v.number(0), v.weights[v.target]) if weight else counted,
        }

    return RowOperation(
        "cross_entropy",
        reduce=reductions,
        row=LSE,
        keep=keep,
        rows=("target: int64",),
        numpy=RowMeaning(row=_lse, write=write, terms={"weighted": lambda v: v.x * v.weight}),
        **_options(weight, smooth),
    )


MEAN_OF_LOSSES = RowOperation(
    "mean_of_losses",
    second=True,
    reduce={"losses": ("sum", "x"), "counted": ("sum", "y")},
    keep={"loss": "losses / counted"},
    numpy=RowMeaning(
        terms={"losses": lambda v: v.x, "counted": lambda v: v.y}, write=lambda v: {"loss": v.losses / v.counted}
    ),
)
"""The mean of the losses `x` of those rows that `y` counts: one row of all losses."""


# A probability is made of the logit's distance from the largest one, which is rounded by its own magnitude, not by that
# of the logits. At the target 1 is taken from it; where that is the row's largest element, what is left is the others'
# share: of a probability near 1 the difference would have few digits.
_NEAR = """\
const Number top = Number(largest);
Number near;
if constexpr (sizeof(Output) <= 2) near = power_of_two((x - top) * Number(1.4426950408889634)) * inverse;
else near = exponential(x - top) * inverse;
near = i == target - first ? (x == top ? -others : near - 1) : near;
"""
_DX = {
    False: "return target == ignore ? Number(0) : near * factor;",
    True: "return target == ignore ? Number(0) : near * factor + ({more}) * spread;",
}
_MORE = {
    # what smoothing adds, in parts of `spread`: the probability times all weights, less the element's own
    False: "shared * Number(n) - 1",
    True: "shared * all[0] - weight",
}


def _row_of_gradient(weight: bool, smooth: bool) -> dict[str, str]:
    """Return the texts of a row's values for its gradient."""
    own = "weights[target]" if weight else ""
    own = " * ".join(each for each in ("(1 - smoothing)" if smooth else "", own) if each)
    return {
        "total": "known ? 1 + Number(rest) : Number(1)",
        "is_finite": "Number(largest) - Number(largest) == 0 ? Number(1) : not_a_number<Number>()",
        "inverse": "is_finite / total",
        "others": "known ? is_finite * Number(rest) / total : Number(0)",
        "factor": f"Number(dloss) * ({own})" if own else "Number(dloss)",
        **({"spread": "Number(dloss) * (smoothing / Number(n))"} if smooth else {}),
    }


def _row_of_gradient_in_numpy(v: SimpleNamespace, weight: bool, smooth: bool) -> dict[str, Any]:
    one, number = v.number(1), v.number
    v.largest, v.rest, v.dloss = (each.astype(number) for each in (v.largest, v.rest, v.dloss))
    total = one + v.rest if v.known else np.ones_like(v.rest)
    is_finite = np.where(v.largest - v.largest == 0, one, number(np.nan))
    own = [*([one - v.smoothing] if smooth else []), *([v.weights[v.target]] if weight else [])]
    factor = v.dloss * functools.reduce(lambda a, b: a * b, own) if own else v.dloss
    found = {
        "total": total,
        "is_finite": is_finite,
        "inverse": is_finite / total,
        "others": is_finite * v.rest / total if v.known else np.zeros_like(v.rest),
        "factor": factor,
    }
    return found | ({"spread": v.dloss * (v.smoothing / number(v.n))} if smooth else {})


@functools.cache
def cross_entropy_gradient_of(*, weight: bool = False, smooth: bool = False) -> RowOperation:
    """Return the gradient with respect to `x`, from each row's target, statistics and the loss's gradient `dloss`.

    `largest` and `rest` are what `cross_entropy_of` keeps; unless they are `known`, `largest` is the log-sum-exp. The
    rows may be parts of longer ones, of which element `first` is theirs.
    """

    def write(v: SimpleNamespace) -> dict[str, Any]:
        p = exp_quotient(v, v.x)
        near = np.where(v.i == v.target - v.first, np.where(v.x == v.largest, -v.others, p - v.number(1)), p)
        dx = near * v.factor
        if smooth:
            whole = v.all[np.zeros((1, 1), np.int64)] if weight else v.number(v.n)
            dx = dx + (p * whole - (v.weight if weight else v.number(1))) * v.spread
        return {"dx": np.where(v.target == v.ignore, v.number(0), dx)}

    near = _NEAR
    if smooth:
        near = near.replace("near = i ==", "const Number shared = near;\nnear = i ==")
    options = _options(weight, smooth)
    return RowOperation(
        "cross_entropy_gradient",
        row=_row_of_gradient(weight, smooth),
        write={"dx": near + _DX[smooth].format(more=_MORE[weight])},
        rows=("target: int64", "largest", "rest", "dloss"),
        numpy=RowMeaning(row=lambda v: _row_of_gradient_in_numpy(v, weight, smooth), write=write),
        **{**options, "parameters": (*options["parameters"], "known: int64", "first: int64")},
    )


@functools.cache
def log_prob_of() -> RowOperation:
    """Return the logarithm of softmax of ``scale * x`` at each row's target, and the log-sum-exp."""
    reductions, terms = statistics(log=True, scaled=True)
    return RowOperation(
        "log_prob",
        reduce=reductions,
        row=LSE,
        keep={"log_prob": f"-({LOSS.format(logit='at(target) * scale')})", "lse": "lse"},
        rows=("target: int64",),
        parameters=("scale",),
        numpy=RowMeaning(
            terms=terms,
            row=_lse,
            write=lambda v: {"log_prob": -((v.largest - v.at(v.target) * v.scale) + v.log_total), "lse": v.lse},
        ),
    )

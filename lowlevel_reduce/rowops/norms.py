"""Normalisation of rows, and its gradients, as row operations."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import numpy as np

from lowlevel_reduce.rowops.operation import RowMeaning, RowOperation

__all__ = [
    "divisor_words",
    "group_norm_gradient_of",
    "group_norm_means_of",
    "group_norm_of",
    "group_norm_single_gradient_of",
    "group_norm_single_terms_of",
    "group_norm_sums_of",
    "layer_norm_gradient_of",
    "layer_norm_of",
    "normalize_of",
    "rms_norm_gradient_of",
    "rms_norm_of",
]


def _affine(text: str, *, weight: bool, bias: bool, at: str = "") -> str:
    return text + (f" * weight{at}" if weight else "") + (f" + bias{at}" if bias else "")


def _applied(value: Any, v: SimpleNamespace, *, weight: bool, bias: bool) -> Any:
    value = value * v.weight if weight else value
    return value + v.bias if bias else value


def _columns(*, weight: bool, bias: bool) -> tuple[str, ...]:
    return (*(["weight"] if weight else []), *(["bias"] if bias else []))


def _rstd_of_variance(v: SimpleNamespace) -> dict[str, Any]:
    return {"rstd": v.number(1) / np.sqrt(v.variance + v.eps)}


def _means_of_gradients(v: SimpleNamespace) -> dict[str, Any]:
    return {"mean_gradient": v.gradients / v.number(v.n), "mean_product": v.product / v.number(v.n)}


def _rstd_of_squares(v: SimpleNamespace) -> Any:
    return v.number(1) / np.sqrt(v.squares / v.number(v.n) + v.eps)


@functools.cache
def rms_norm_of(*, weight: bool, residual: bool, keeps: bool) -> RowOperation:
    """Return ``x * rstd * weight`` with ``rstd = 1 / sqrt(mean(x * x) + eps)``.

    With `residual`, x is the sum of both arrays, rounded, which is written too. With `keeps`, rstd is kept.
    """

    def write(v: SimpleNamespace) -> dict[str, Any]:
        return {"out": _applied(v.x * v.rstd, v, weight=weight, bias=False), "residual": v.x, "rstd": v.rstd}

    return RowOperation(
        "rms_norm",
        second=residual,
        merge="x + y" if residual else None,
        reduce={"squares": "sum_squares"},
        row={"rstd": "1 / square_root(squares / Number(n) + eps)"},
        write={"out": _affine("x * rstd", weight=weight, bias=False), **({"residual": "x"} if residual else {})},
        keep={"rstd": "rstd"} if keeps else {},
        columns=_columns(weight=weight, bias=False),
        parameters=("eps",),
        numpy=RowMeaning(
            merge=(lambda v: v.x + v.y) if residual else None, row=lambda v: {"rstd": _rstd_of_squares(v)}, write=write
        ),
    )


@functools.cache
def rms_norm_gradient_of(*, weight: bool, terms: bool) -> RowOperation:
    """Return the gradient with respect to `x`, from the output's gradient `y` and rstd; with `terms` the weight's too.

    The weight's gradient is the sum over all rows of `dweight`, numbers that a reduction along columns adds up.
    """
    scaled = "y * weight" if weight else "y"

    def of(v: SimpleNamespace) -> Any:
        return v.y * v.weight if weight else v.y

    def write(v: SimpleNamespace) -> dict[str, Any]:
        return {"dx": (of(v) - v.x * v.factor) * v.rstd, "dweight": v.y * (v.x * v.rstd)}

    return RowOperation(
        "rms_norm_gradient",
        second=True,
        reduce={"product": ("sum", f"{scaled} * x")},
        row={"factor": "rstd * rstd * (product / Number(n))"},
        write={"dx": f"({scaled} - x * factor) * rstd", **({"dweight": "y * (x * rstd)"} if terms else {})},
        columns=_columns(weight=weight, bias=False),
        rows=("rstd",),
        numpy=RowMeaning(
            terms={"product": lambda v: of(v) * v.x},
            row=lambda v: {"factor": v.rstd * v.rstd * (v.product / v.number(v.n))},
            write=write,
        ),
    )


@functools.cache
def layer_norm_of(*, weight: bool, bias: bool, keeps: bool) -> RowOperation:
    """Return ``(x - mean) * rstd * weight + bias`` with ``rstd = 1 / sqrt(var + eps)``; with `keeps`, mean and rstd."""

    def write(v: SimpleNamespace) -> dict[str, Any]:
        out = _applied((v.x - v.mean) * v.rstd, v, weight=weight, bias=bias)
        return {"out": out, "mean": v.mean, "rstd": v.rstd}

    return RowOperation(
        "layer_norm",
        reduce={"mean, variance": "mean_var"},
        row={"rstd": "1 / square_root(variance + eps)"},
        write={"out": _affine("(x - mean) * rstd", weight=weight, bias=bias)},
        keep={"mean": "mean", "rstd": "rstd"} if keeps else {},
        columns=_columns(weight=weight, bias=bias),
        parameters=("eps",),
        numpy=RowMeaning(row=_rstd_of_variance, write=write),
    )


@functools.cache
def layer_norm_gradient_of(*, weight: bool, terms: bool) -> RowOperation:
    """Return the gradient with respect to `x`, from the gradient `y` of the output, mean and rstd.

    With `terms` the weight's too, as `rms_norm_gradient_of`.
    """
    scaled = "y * weight" if weight else "y"

    def of(v: SimpleNamespace) -> Any:
        return v.y * v.weight if weight else v.y

    def normal(v: SimpleNamespace) -> Any:
        return (v.x - v.mean) * v.rstd

    def write(v: SimpleNamespace) -> dict[str, Any]:
        dx = ((of(v) - v.mean_gradient) - normal(v) * v.mean_product) * v.rstd
        return {"dx": dx, "dweight": v.y * normal(v)}

    return RowOperation(
        "layer_norm_gradient",
        second=True,
        reduce={"gradients": ("sum", scaled), "product": ("sum", f"{scaled} * ((x - mean) * rstd)")},
        row={"mean_gradient": "gradients / Number(n)", "mean_product": "product / Number(n)"},
        write={
            "dx": f"(({scaled} - mean_gradient) - (x - mean) * rstd * mean_product) * rstd",
            **({"dweight": "y * ((x - mean) * rstd)"} if terms else {}),
        },
        columns=_columns(weight=weight, bias=False),
        rows=("mean", "rstd"),
        numpy=RowMeaning(
            terms={"gradients": of, "product": lambda v: of(v) * normal(v)},
            row=_means_of_gradients,
            write=write,
        ),
    )


# Row r is group r % groups; it has `channels` channels, and its element i is of channel i / size of these, a division
# by what `divisor_words` returns.
_CHANNEL = "[row % groups * channels + int64(uint64(i) * uint64(word) >> shift)]"
_CHANNELS = ("groups: int64", "channels: int64", "word: int64", "shift: int64")


def _channel(v: SimpleNamespace) -> Any:
    return v.row % v.groups * v.channels + (v.i * v.word >> v.shift)


@functools.cache
def group_norm_of(*, weight: bool, bias: bool, keeps: bool = False) -> RowOperation:
    """Return ``(x - mean) * rstd * weight[c] + bias[c]`` of a group of channels, which lie one behind the other.

    With `keeps`, each group's mean and rstd.
    """

    def write(v: SimpleNamespace) -> dict[str, Any]:
        out = (v.x - v.mean) * v.rstd
        if weight or bias:
            own = _channel(v)
            out = out * v.weight[own] if weight else out
            out = out + v.bias[own] if bias else out
        return {"out": out, "mean": v.mean, "rstd": v.rstd}

    return RowOperation(
        "group_norm",
        reduce={"mean, variance": "mean_var"},
        row={"rstd": "1 / square_root(variance + eps)"},
        write={"out": _affine("(x - mean) * rstd", weight=weight, bias=bias, at=_CHANNEL)},
        keep={"mean": "mean", "rstd": "rstd"} if keeps else {},
        tables=_columns(weight=weight, bias=bias),
        parameters=("eps", *(_CHANNELS if weight or bias else ())),
        numpy=RowMeaning(row=_rstd_of_variance, write=write),
    )


# The gradient with weights takes rows that are channels, not groups: no element looks for its channel's weight then,
# and the channels' sums, of which the weights' gradients are made, make those of the groups. A sample's channel c is of
# its group c / channels.
_GROUP = "[row / channels]"


@functools.cache
def group_norm_sums_of() -> RowOperation:
    """Return, for rows that are channels, the sums of which the gradients of their weights and biases are made.

    `means` and `rstds` have one element for each group of each sample.
    """
    return RowOperation(
        "group_norm_sums",
        second=True,
        before={"mean": f"means{_GROUP}", "rstd": f"rstds{_GROUP}"},
        reduce={"gradients": ("sum", "y"), "products": ("sum", "y * ((x - mean) * rstd)")},
        keep={"dbias": "gradients", "dweight": "products"},
        tables=("means", "rstds"),
        parameters=("channels: int64",),
        numpy=RowMeaning(
            before=lambda v: {"mean": v.means[v.row // v.channels], "rstd": v.rstds[v.row // v.channels]},
            terms={"gradients": lambda v: v.y, "products": lambda v: v.y * ((v.x - v.mean) * v.rstd)},
            write=lambda v: {"dbias": v.gradients, "dweight": v.products},
        ),
    )


@functools.cache
def group_norm_means_of() -> RowOperation:
    """Return, for the channels' sums of a group, `dbias` and `dweight`, their means over the group's elements."""
    weight = "weight[row % groups * n + i]"

    def own(v: SimpleNamespace) -> Any:
        return v.weight[v.row % v.groups * v.n + v.i]

    return RowOperation(
        "group_norm_means",
        second=True,
        reduce={"gradients": ("sum", f"x * {weight}"), "products": ("sum", f"y * {weight}")},
        keep={"gradient": "gradients / Number(count)", "product": "products / Number(count)"},
        tables=("weight",),
        parameters=("groups: int64", "count: int64"),
        numpy=RowMeaning(
            terms={"gradients": lambda v: v.x * own(v), "products": lambda v: v.y * own(v)},
            write=lambda v: {
                "gradient": v.gradients / v.number(v.count), "product": v.products / v.number(v.count)
            },
        ),
    )  # fmt: skip


@functools.cache
def group_norm_gradient_of() -> RowOperation:
    """Return the gradient with respect to `x` of rows that are channels, from that of the output, `y`.

    Of each group of each sample there are `means`, `rstds`, and what `group_norm_means_of` keeps. Without weights the
    gradient is that of `layer_norm_gradient_of`, of rows that are groups.
    """
    names = {"mean": "means", "rstd": "rstds", "gradient": "gradients", "product": "products"}
    scaled = "y * scale"

    def write(v: SimpleNamespace) -> dict[str, Any]:
        return {"dx": ((v.y * v.scale - v.gradient) - (v.x - v.mean) * v.rstd * v.product) * v.rstd}

    return RowOperation(
        "group_norm_gradient",
        second=True,
        row={**{name: f"{table}{_GROUP}" for name, table in names.items()}, "scale": "weight[row % every]"},
        write={"dx": f"(({scaled} - gradient) - (x - mean) * rstd * product) * rstd"},
        tables=(*names.values(), "weight"),
        parameters=("channels: int64", "every: int64"),
        numpy=RowMeaning(
            row=lambda v: {
                **{name: getattr(v, table)[v.row // v.channels] for name, table in names.items()},
                "scale": v.weight[v.row % v.every],
            },
            write=write,
        ),
    )


# Where each channel is one element, rows are samples: of rows of one element a launch would have as many as there are
# elements. Element i is of group i / size, a division by what `divisor_words` returns.
_GROUP_OF_ELEMENT = "[row * groups + int64(uint64(i) * uint64(word) >> shift)]"
_ELEMENTS = ("groups: int64", "word: int64", "shift: int64")


def _single_normal(v: SimpleNamespace) -> tuple[Any, Any, Any]:
    """Return each element's group, its rstd, and the element less the mean."""
    own = v.row * v.groups + (v.i * v.word >> v.shift)
    return own, v.rstds[own], v.x - v.means[own]


@functools.cache
def group_norm_single_terms_of() -> RowOperation:
    """Return what `group_norm_sums_of` does where each channel is one element: the sums are their only terms."""

    def write(v: SimpleNamespace) -> dict[str, Any]:
        _, rstd, from_mean = _single_normal(v)
        return {"dbias": v.y, "dweight": v.y * (from_mean * rstd)}

    return RowOperation(
        "group_norm_single_terms",
        second=True,
        write={"dbias": "y", "dweight": f"y * ((x - means{_GROUP_OF_ELEMENT}) * rstds{_GROUP_OF_ELEMENT})"},
        tables=("means", "rstds"),
        parameters=_ELEMENTS,
        numpy=RowMeaning(write=write),
    )


@functools.cache
def group_norm_single_gradient_of() -> RowOperation:
    """Return what `group_norm_gradient_of` does where each channel is one element."""
    mean, rstd, gradient, product = (
        f"{table}{_GROUP_OF_ELEMENT}" for table in ("means", "rstds", "gradients", "products")
    )

    def write(v: SimpleNamespace) -> dict[str, Any]:
        own, rstd, from_mean = _single_normal(v)
        return {"dx": ((v.y * v.weight - v.gradients[own]) - from_mean * rstd * v.products[own]) * rstd}

    return RowOperation(
        "group_norm_single_gradient",
        second=True,
        write={"dx": f"((y * weight - {gradient}) - (x - {mean}) * {rstd} * {product}) * {rstd}"},
        columns=("weight",),
        tables=("means", "rstds", "gradients", "products"),
        parameters=_ELEMENTS,
        numpy=RowMeaning(write=write),
    )


def divisor_words(size: int) -> tuple[int, int]:
    """Return a word and a shift by which ``i * word >> shift`` is ``i // size``, rounded down, for i below 2^30.

    The word is 2^shift / size, rounded up: by less than one, so the quotient is too large by less than
    ``2^30 / 2^shift``, which is at most the ``1 / size`` by which it may be.
    """
    shift = 30 + (size - 1).bit_length()
    return -(-(1 << shift) // size), shift


@functools.cache
def normalize_of(norm: str) -> RowOperation:
    """Return ``x / max(norm, eps)`` for the operator of a norm."""
    return RowOperation(
        "normalize",
        reduce={"size": norm},
        row={"divisor": "size < eps ? eps : size"},
        write={"out": "x / divisor"},
        parameters=("eps",),
        numpy=RowMeaning(
            row=lambda v: {"divisor": np.where(v.size < v.eps, v.eps, v.size)}, write=lambda v: {"out": v.x / v.divisor}
        ),
    )

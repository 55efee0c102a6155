"""Rows, or blocks of them, as float8 or int8 with one scale each, as row operations."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.rowops.operation import RowMeaning, RowOperation

__all__ = ["BLOCKS", "FORMATS", "quantize_of"]

BLOCKS = (32, 64, 128)
"""The blocks that a row may be cut into, in elements."""


class _Format(NamedTuple):
    """A type of 8 bits: its largest number, and whether values are rounded to integers first."""

    largest: int
    whole: bool


FORMATS = {"float8_e4m3fn": _Format(448, False), "int8": _Format(127, True)}

_LEAST = "0x1p-100f"
"""A row whose largest magnitude is below this counts as zero: the inverse of its scale might be infinite."""


@functools.cache
def quantize_of(name: str, *, norm: bool = False, weight: bool = False) -> RowOperation:
    """Return ``values = x / scale`` rounded, and ``scale``, the largest magnitude over the type's largest number.

    The division is a product with ``largest number / largest magnitude``. With `norm` the row is that of `rms_norm`,
    and the largest magnitude that of ``x * weight``, times rstd.
    """
    if name not in FORMATS:
        raise UnsupportedError(f"rows are quantised to {' or '.join(FORMATS)}, not to {name}")
    most, whole = FORMATS[name]
    scaled = ("x * rstd" + (" * weight" if weight else "")) if norm else "x"
    rstd = {"rstd": "1 / square_root(squares / Number(n) + eps)"} if norm else {}
    size = "largest * rstd" if norm else "largest"
    of = {"largest": ("norm_inf", "x * weight") if weight else "norm_inf"}

    def row(v: SimpleNamespace) -> dict[str, Any]:
        found = {"rstd": v.number(1) / np.sqrt(v.squares / v.number(v.n) + v.eps)} if norm else {}
        magnitude = v.largest * found["rstd"].astype(v.number) if norm else v.largest
        small = magnitude < v.number(2.0**-100)
        scale = np.where(small, v.number(0), magnitude / v.number(most))
        inverse = np.where(magnitude >= v.number(2.0**-100), v.number(most) / magnitude, v.number(0))
        return {**found, "magnitude": magnitude, "scale": scale, "inverse": inverse}

    def write(v: SimpleNamespace) -> dict[str, Any]:
        values = (v.x * v.rstd * v.weight if weight else v.x * v.rstd) if norm else v.x
        values = values * v.inverse
        return {"values": np.rint(values) if whole else values, "scale": v.scale}

    value = f"{scaled} * inverse"
    return RowOperation(
        "rms_norm_quantize" if norm else "quantize",
        reduce={**({"squares": "sum_squares"} if norm else {}), **of},
        row={
            **rstd,
            "magnitude": size,
            "scale": f"magnitude < {_LEAST} ? Number(0) : magnitude / {most}",
            "inverse": f"magnitude >= {_LEAST} ? {most} / magnitude : Number(0)",
        },
        write={f"values: {name}": f"nearest_integer({value})" if whole else value},
        keep={"scale": "scale"},
        columns=("weight",) if weight else (),
        parameters=("eps",) if norm else (),
        numpy=RowMeaning(terms={"largest": lambda v: v.x * v.weight} if weight else {}, row=row, write=write),
    )

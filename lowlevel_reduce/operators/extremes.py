"""Minima, maxima and their indices, by integer keys that sort like the elements; any and all.

A float's key is its bits, with all but the sign bit flipped if the sign is set. So -0.0 is below +0.0, whichever comes
first, and a NaN gets the key that wins. Keys that belong to no number decode to NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lowlevel_reduce.arguments import shown
from lowlevel_reduce.dtypes import ElementType, finfo, numpy_dtype
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.operators.arithmetic import magnitude, nonzero, template
from lowlevel_reduce.operators.base import (
    Array,
    Fields,
    Items,
    Reduction,
    Row,
    TypeRule,
    Types,
    number_type,
    sum_number_type,
)
from lowlevel_reduce.operators.rounding import round_to
from lowlevel_reduce.operators.scalars import is_nan, number_of, scalar_of

__all__ = ["ALL", "ANY", "ARGMAX", "ARGMIN", "LAST_ARGMAX", "LAST_ARGMIN", "MAX", "MIN", "MINMAX", "NORM_INF"]

_ABSENT = 2**64 - 1


def _key_name(element: ElementType) -> str:
    """Return the type of an element's key: at least 32 bits wide, of the element's signedness."""
    sign = "uint" if element.dtype.kind in "ub" else "int"
    return f"{sign}{64 if element.itemsize == 8 else 32}"


def _key_rule(name: str, result: str | None = None) -> Callable[[ElementType], TypeRule]:
    def rule(element: ElementType) -> TypeRule:
        if element.is_complex:
            raise UnsupportedError(f"{name} of {element.name} is not defined here")
        own = result or element.name
        return TypeRule((_key_name(element),), own, (own,))

    return rule


def _layout(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return a mask of all bits but the sign, and the bits of the largest magnitude that is not NaN."""
    info = finfo(dtype)
    largest = info.max if dtype.name == "float8_e4m3fn" else np.inf
    unsigned = np.dtype(f"u{dtype.itemsize}")
    return (1 << (8 * dtype.itemsize - 1)) - 1, int(np.array(largest, dtype).view(unsigned))


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind not in "iub"


def to_keys(x: Array, key: str, *, largest: bool) -> Array:
    """Return the elements' keys; a NaN gets the largest key if `largest`, else the smallest, so that it wins."""
    if not _is_float(x.dtype):
        return (nonzero(x) if x.dtype.kind == "b" else x).astype(key)
    mask, limit = _layout(x.dtype)
    bits = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}").astype(key)
    info = np.iinfo(key)
    return np.where((bits & mask) > limit, info.max if largest else info.min, _flip(bits, mask)).astype(key)


def _flip(bits: Array, mask: int) -> Array:
    flipped: Array = bits ^ ((bits >> (8 * bits.dtype.itemsize - 1)) & mask)
    return flipped


def from_keys(keys: Array, dtype: np.dtype[Any]) -> Array:
    """Return the elements that these keys encode; every NaN is numpy.nan."""
    if not _is_float(dtype):
        return keys.astype(dtype)
    mask, limit = _layout(dtype)
    bits = _flip(keys, mask)
    values = np.asarray(bits.astype(f"i{dtype.itemsize}")).view(dtype)
    return np.where((bits & mask) > limit, np.array(np.nan, dtype), values)


def _worst(types: Types, *, largest: bool) -> Any:
    info = np.iinfo(types.accumulator)
    return info.min if largest else info.max


def _finish_keys(keys: Array, types: Types) -> Array:
    return round_to(from_keys(keys, types.element.dtype), types.result_dtype)


def _initial(value: Any, types: Types, *, largest: bool) -> tuple[Any, ...]:
    dtype = types.element.dtype
    converted = scalar_of(value, dtype, "the initial value")
    number = number_of(value, "the initial value")
    # A float is rounded to the elements' type, but a type without infinity turns numbers that are too large into NaN.
    if is_nan(converted) != is_nan(number) if _is_float(dtype) else converted != number:
        raise ValueError(f"the initial value {shown(value)} is not a value of {dtype}")
    return (to_keys(np.asarray(converted).reshape(1), types.accumulator, largest=largest)[0],)


def _extreme(name: str, *, largest: bool) -> Reduction:
    choose = np.maximum if largest else np.minimum
    return Reduction(
        name=name,
        label=name,
        struct=template("Max" if largest else "Min"),
        rule=_key_rule(name),
        identity=lambda types: (_worst(types, largest=largest),),
        map=lambda items, types: (to_keys(items.x, types.accumulator, largest=largest),),
        combine=lambda a, b, types: (choose(a[0], b[0]),),
        finish=lambda fields, row, types: (_finish_keys(fields[0], types),),
        empty=None,
        initial=lambda value, types: _initial(value, types, largest=largest),
    )


def _key_bytes(types: Types) -> int:
    return numpy_dtype(types.accumulator).itemsize


def _arg(name: str, *, largest: bool, last: bool) -> Reduction:
    def combine(a: Fields, b: Fields, types: Types) -> Fields:
        beats = b[0] > a[0] if largest else b[0] < a[0]
        later = b[1].view(np.int64) > a[1].view(np.int64) if last else b[1] < a[1]
        take = beats | ((a[0] == b[0]) & later)
        return np.where(take, b[0], a[0]), np.where(take, b[1], a[1])

    def map_(items: Items, types: Types) -> Fields:
        keys = to_keys(items.x, types.accumulator, largest=largest)
        if _is_float(items.x.dtype):
            keys = np.where(keys == -1, keys.dtype.type(0), keys)  # here -0.0 is not less than +0.0
        return keys, np.broadcast_to(items.index, items.x.shape)

    struct = ("LastArg" if last else "Arg") + ("Max" if largest else "Min")
    return Reduction(
        name=name,
        label=f"last_{name}" if last else name,
        struct=template(struct),
        rule=_key_rule(name, "int64"),
        identity=lambda types: (_worst(types, largest=largest), _ABSENT),
        map=map_,
        combine=combine,
        finish=lambda fields, row, types: (fields[1].astype(np.int64),),
        empty=None,
        size=lambda types: _key_bytes(types) + 8,
        indexed=True,
        # The first of equal extremes is found without an index per element: with 4 bytes always, else in whole leaves.
        is_heavy=lambda types: last or types.element.itemsize != 4,
        fits_full_block=lambda types: not last and types.element.dtype.kind != "b",
    )


MIN = _extreme("min", largest=False)
MAX = _extreme("max", largest=True)
ARGMIN = _arg("argmin", largest=False, last=False)
ARGMAX = _arg("argmax", largest=True, last=False)
LAST_ARGMIN = _arg("argmin", largest=False, last=True)
LAST_ARGMAX = _arg("argmax", largest=True, last=True)


def _each(fields: Fields, row: Row, types: Types) -> tuple[Array, ...]:
    return tuple(_finish_keys(field, types) for field in fields)


MINMAX = Reduction(
    name="minmax",
    label="minmax",
    struct=template("MinMax"),
    rule=_key_rule("minmax"),
    identity=lambda types: MIN.identity(types) + MAX.identity(types),
    map=lambda items, types: MIN.map(items, types) + MAX.map(items, types),
    combine=lambda a, b, types: (np.minimum(a[0], b[0]), np.maximum(a[1], b[1])),
    finish=_each,
    empty=None,
    size=lambda types: 2 * _key_bytes(types),
    result_names=("min", "max"),
    is_heavy=lambda types: types.element.itemsize <= 2,
    fits_full_block=lambda types: types.element.dtype.kind != "b",
)


def _inf_rule(element: ElementType) -> TypeRule:
    """Return the rule: magnitudes of integers and complex numbers are float64, whose keys have 64 bits."""
    if element.is_float:
        return TypeRule((_key_name(element),), element.result, (element.result, "float32", "float64"))
    result = "float32" if element.name == "complex64" else "float64"
    return TypeRule(("int64",), result, ("float32", "float64"))


def _inf_dtype(types: Types) -> np.dtype[Any]:
    return types.element.dtype if types.element.is_float else np.dtype(np.float64)


def _inf_number(types: Types) -> str:
    return number_type(types) if types.element.is_float else "float64"


def _inf_map(items: Items, types: Types) -> Fields:
    dtype = _inf_dtype(types)
    x = items.x if types.element.is_float else magnitude(items.x, "float64")
    bits = np.ascontiguousarray(x).view(f"i{dtype.itemsize}").astype(types.accumulator)
    return (bits & _layout(dtype)[0],)


NORM_INF = Reduction(
    name="norm_inf",
    label="norm_inf",
    struct=template("NormInf"),
    rule=_inf_rule,
    identity=lambda types: (0,),
    map=_inf_map,
    combine=lambda a, b, types: (np.maximum(a[0], b[0]),),
    finish=lambda fields, row, types: (round_to(from_keys(fields[0], _inf_dtype(types)), types.result_dtype),),
    empty=(0.0,),
    number=_inf_number,
)


def _bool_rule(element: ElementType) -> TypeRule:
    return TypeRule(("uint32",), "bool", ("bool",))


def _logical(name: str, struct: str, *, neutral: bool) -> Reduction:
    combine = np.bitwise_and if neutral else np.bitwise_or
    return Reduction(
        name=name,
        label=name,
        struct=template(struct),
        rule=_bool_rule,
        identity=lambda types: (int(neutral),),
        map=lambda items, types: (nonzero(items.x).astype(np.uint32),),
        combine=lambda a, b, types: (combine(a[0], b[0]),),
        finish=lambda fields, row, types: (fields[0].astype(bool),),
        empty=(neutral,),
        number=sum_number_type,
    )


ANY = _logical("any", "Any", neutral=False)
ALL = _logical("all", "All", neutral=True)

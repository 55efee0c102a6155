"""What kernels and the tree know of an operator once its options are decided: a `Reduction`."""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from lowlevel_reduce.dtypes import (
    COMPENSATED,
    ElementType,
    accumulator_bytes,
    accumulator_name,
    finfo,
    numpy_dtype,
    one_of,
)
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.operators.scalars import scalar_of

__all__ = [
    "Array",
    "Fields",
    "Items",
    "Reduction",
    "Row",
    "TypeRule",
    "Types",
    "number_type",
    "result_tuple",
    "sum_number_type",
]

Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]
Fields = tuple[Array, ...]
"""An array of accumulators: one NumPy array a field, all of one shape."""


@functools.cache
def result_tuple(name: str, fields: tuple[str, ...]) -> Any:
    """Return the type in which an operator's several results come: a named tuple of the operator's name."""
    return namedtuple(name, fields)


class Types(NamedTuple):
    """The types of one reduction: of its elements, of its accumulator, of its results."""

    element: ElementType
    accumulator: str
    result: str

    @property
    def result_dtype(self) -> np.dtype[Any]:
        """The results' NumPy dtype."""
        return numpy_dtype(self.result)


class TypeRule(NamedTuple):
    """What an operator allows for one element type.

    Attributes
    ----------
    accumulators : tuple of str
        What it may accumulate in, the default first.
    result : str
        Name of the default result type.
    results : tuple of str
        What ``dtype=`` may ask for.
    wraps : bool
        Whether an integer type's own name may be asked for as accumulator: arithmetic modulo 2**bits.
    """

    accumulators: tuple[str, ...]
    result: str
    results: tuple[str, ...]
    wraps: bool = False


class Items:
    """Elements of one or more rows, the last axis along the rows: what an operator's map is given."""

    __slots__ = ("index", "pivot", "x", "y")

    def __init__(self, x: Array, y: Array | None, index: Array, pivot: Array | None) -> None:
        self.x = x
        self.y = y
        self.index = index
        self.pivot = pivot

    def where(self, **changes: Any) -> Items:
        """Return a copy with some of it replaced."""
        return Items(**{"x": self.x, "y": self.y, "index": self.index, "pivot": self.pivot, **changes})


class Row(NamedTuple):
    """What all elements of a row share: the length (an array where rows differ in it), pivot, and initial value."""

    length: Any
    pivot: Array | None = None
    initial: tuple[Any, ...] | None = None


def number_type(types: Types) -> str:
    """Return the type in which a user's map computes: the accumulator's, of keys that of the floats they stand for."""
    if types.accumulator == COMPENSATED:
        return "float64"
    if types.element.is_float and types.accumulator.startswith(("int", "uint")):
        return "float64" if types.element.name == "float64" else "float32"
    return types.accumulator


def sum_number_type(types: Types) -> str:
    """Return the same where no element is held: of integers and bool the type of their sums, which holds them all."""
    return number_type(types if types.element.is_float else types._replace(accumulator=types.element.accumulators[0]))


Finish = Callable[[Fields, Row, Types], tuple[Array, ...]]


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """An operator with its options decided.

    Attributes
    ----------
    name : str
        The operator's public name.
    label : str
        An identifier that tells it from the same operator with other options, for the names of kernels.
    struct : callable
        ``struct(types)``: the operator as a CUDA C++ type.
    rule : callable
        ``rule(element)``: its `TypeRule`, or UnsupportedError.
    identity : callable
        ``identity(types)``: one value a field that, combined with any accumulator, returns it bit for bit.
    map : callable
        ``map(items, types)``: elements to accumulators.
    combine : callable
        ``combine(a, b, types)``: two arrays of accumulators to one, elementwise; commutative bit for bit.
    finish : callable
        ``finish(fields, row, types)``: accumulators to results, one array a result.
    empty : tuple or None
        The results over no elements; None where NumPy has none and raises ValueError.
    size : callable
        ``size(types)``: bytes of the CUDA accumulator, padding included.
    number : callable
        ``number(types)``: name of the type in which a map of the user's computes, see `number_type`.
    result_names : tuple of str
        One name a result; kernels store the results as planes, in this order.
    second : {None, "mask", "operand", "first"}
        The second array: none, one of bool, one of the first one's type, or the one element of which the pivot is made,
        where it is not each row's first.
    pivot : callable, optional
        ``pivot(first, types)``: each row's first element to what all its elements share.
    indexed : bool
        Whether map uses the element's index.
    is_heavy : callable
        ``is_heavy(types)``: whether a thread needs more than 64 registers or so to keep eight loads in flight.
    fits_full_block : callable
        ``fits_full_block(types)``: whether 64 are enough for whole arrays, wide as the accumulator is.
    exact : bool
        Whether NumPy and every GPU give the same bits.
    ulps, absolute, relative : float
        By how much the results differ where they do not, at most: see `tolerance`.
    skipped : callable
        ``skipped(types)``: the fields that stand for an element that is left out; the identity, but for sums.
    initial : callable, optional
        ``initial(value, types)``: the accumulator's fields of the caller's initial value; None where it takes none.
    has_initial : bool
        Whether such a value was given, so that finish takes it from the row.
    declaration : callable
        ``declaration(types)``: CUDA C++ to stand before the struct is named; empty for what cuda_src has.
    """

    name: str
    label: str
    struct: Callable[[Types], str]
    rule: Callable[[ElementType], TypeRule]
    identity: Callable[[Types], tuple[Any, ...]]
    map: Callable[[Items, Types], Fields]
    combine: Callable[[Fields, Fields, Types], Fields]
    finish: Finish
    empty: tuple[Any, ...] | None
    size: Callable[[Types], int] = field(default=lambda types: accumulator_bytes(types.accumulator))
    number: Callable[[Types], str] = field(default=number_type)
    result_names: tuple[str, ...] = ("result",)
    second: Literal["mask", "operand", "first"] | None = None
    pivot: Callable[[Array, Types], Array] | None = None
    indexed: bool = False
    is_heavy: Callable[[Types], bool] = field(default=lambda types: types.accumulator in (COMPENSATED, "complex128"))
    fits_full_block: Callable[[Types], bool] = field(default=lambda types: False)
    exact: bool = True
    ulps: float = 0.0
    absolute: float = 0.0
    relative: float = 0.0
    skipped: Callable[[Types], tuple[Any, ...]] | None = None
    initial: Callable[[Any, Types], tuple[Any, ...]] | None = None
    has_initial: bool = False
    declaration: Callable[[Types], str] = field(default=lambda types: "")

    @property
    def two_arrays(self) -> bool:
        """Whether elements of a second array go with those of the first."""
        return self.second in ("mask", "operand")

    @property
    def results(self) -> int:
        """How many values a row gives."""
        return len(self.result_names)

    def accumulator(self, element: ElementType, accumulate: str | None = None) -> str:
        """Return the accumulator's name, checked.

        An integer's own type stands for arithmetic modulo 2**bits. That is what a wider accumulator gives when its
        result is cut to the type, so it is computed in the wide one.

        Raises
        ------
        UnsupportedError
            If the operator does not take this type, or does not accumulate it in that one.
        """
        rule = self.rule(element)
        name = accumulator_name(accumulate)
        if name is None:
            return rule.accumulators[0]
        if rule.wraps and name == element.name and element.dtype.kind in "iu":
            return rule.accumulators[0]
        if name not in rule.accumulators:
            raise UnsupportedError(
                f"{self.name} of {element.name} accumulates in {one_of(rule.accumulators)}, not in {name}"
            )
        return name

    def result_type(self, element: ElementType, dtype: Any = None, accumulate: str | None = None) -> str:
        """Return the results' type, checked: `dtype`, else what `accumulate` and the element type imply.

        Raises
        ------
        UnsupportedError
            If the operator does not take this type, or a result cannot become `dtype`.
        """
        rule = self.rule(element)
        if dtype is None:
            own_width = rule.wraps and element.dtype.kind in "iu" and accumulator_name(accumulate) == element.name
            return element.name if own_width else rule.result
        name: str = numpy_dtype(dtype).name
        if name not in rule.results:
            raise UnsupportedError(f"{self.name} of {element.name} gives {one_of(rule.results)}, not {name}")
        return name

    def types(self, element: ElementType, accumulate: str | None = None, dtype: Any = None) -> Types:
        """Return the reduction's types, checked; raises as `accumulator` and `result_type` do."""
        accumulator = self.accumulator(element, accumulate)
        return Types(element, accumulator, self.result_type(element, dtype, accumulate))

    def second_dtype(self, element: ElementType) -> np.dtype[Any] | None:
        """Return the type of the second array's elements, None where there is none."""
        return {None: None, "mask": np.dtype(bool), "operand": element.dtype, "first": element.dtype}[self.second]

    def c_type(self, element: ElementType, accumulator: str, result: str) -> str:
        """Return the operator as a CUDA C++ type."""
        return self.struct(Types(element, accumulator, result))

    def source(self, element: ElementType, accumulator: str, result: str) -> str:
        """Return the CUDA C++ that must stand before `c_type` is named; empty for what cuda_src has."""
        return self.declaration(Types(element, accumulator, result))

    def accumulator_bytes(self, element: ElementType, accumulator: str, result: str) -> int:
        """Return the size of the CUDA accumulator in bytes, padding included."""
        return self.size(Types(element, accumulator, result))

    def heavy(self, element: ElementType, accumulator: str, result: str) -> bool:
        """Say whether a thread needs more than 64 registers or so."""
        return self.is_heavy(Types(element, accumulator, result))

    def empty_results(self, types: Types, initial: Any = None) -> tuple[Array, ...]:
        """Return the results over no elements, 0-d; `initial` is the initial value, where one was given.

        Raises
        ------
        ValueError
            If there is none, as NumPy does, or the results' type does not hold it.
        """
        if self.has_initial:
            nothing = tuple(np.asarray(value) for value in self.identity(types))
            start = self.initial_fields(initial, types)
            fields = tuple(none.astype(value.dtype) for none, value in zip(nothing, start, strict=True))
            return self.finish(fields, Row(0, None, start), types)
        if self.empty is None:
            raise ValueError(f"zero-size array to reduction operation {self.name} which has no identity")
        results = tuple(
            np.array(scalar_of(value, types.result_dtype, f"{self.name} of nothing,"), types.result_dtype)
            for value in self.empty
        )
        if types.result_dtype.kind == "c":  # of a NaN both parts are
            results = tuple(
                np.where(np.isnan(each), each.dtype.type(complex(np.nan, np.nan)), each) for each in results
            )
        return results

    def tolerance(self, result: Array, length: int, types: Types) -> Array:
        """Return by how much a kernel's results may differ from NumPy's, as float64 in `result`'s shape.

        That is `ulps` units in the last place of the result, and for each level of the tree `absolute` times the
        accumulator's epsilon and `relative` times that of the result's size. Zeros where the operator is `exact`.
        """
        size = np.abs(result.astype(np.float64))
        size = np.where(np.isfinite(size), size, 0.0)
        if self.exact:
            return np.zeros_like(size)
        level = (max(length - 1, 1).bit_length() + 1) * float(np.finfo(types.accumulator).eps)
        last_place = float(finfo(types.result_dtype).eps)
        bound: Array = (self.ulps * last_place + self.relative * level) * size + self.absolute * level
        return bound

    def initial_words(self, value: Any, types: Types) -> tuple[int, int]:
        """Return `initial` of the kernels' Row: the accumulator that the value makes, in two 64-bit words.

        Raises
        ------
        ValueError
            If the operator takes no initial value, or not this one.
        """
        raw = b"".join(np.asarray(part).tobytes() for part in self.initial_fields(value, types)).ljust(16, b"\0")
        return int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:], "little")

    def initial_fields(self, value: Any, types: Types) -> tuple[Any, ...]:
        """Return the accumulator that an initial value makes, one NumPy scalar a field; raises ValueError."""
        if self.initial is None:
            raise ValueError(f"{self.name} takes no initial value")
        return self.initial(value, types)

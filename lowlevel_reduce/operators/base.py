"""`Reduction`: what kernels and the tree know about an operator after its options are applied."""

from __future__ import annotations

import functools
import warnings
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
"""An array of accumulators: one NumPy array for each field of the accumulator, all of the same shape."""


@functools.cache
def result_tuple(name: str, fields: tuple[str, ...]) -> Any:
    """Return the type of an operator's several results: a named tuple with the operator's name."""
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
        Names of the accumulators that it can use, the default first.
    result : str
        Name of the default result type.
    results : tuple of str
        Names of the types that ``dtype=`` may request.
    wraps : bool
        Whether ``accumulate=`` may be an integer element type itself, which means arithmetic modulo 2**bits.
    """

    accumulators: tuple[str, ...]
    result: str
    results: tuple[str, ...]
    wraps: bool = False


class Items:
    """Elements of one or more rows, with the last axis along the rows: the argument of an operator's map."""

    __slots__ = ("index", "pivot", "x", "y")

    def __init__(self, x: Array, y: Array | None, index: Array, pivot: Array | None) -> None:
        self.x = x
        self.y = y
        self.index = index
        self.pivot = pivot

    def where(self, **changes: Any) -> Items:
        """Return a copy with some attributes replaced."""
        return Items(**{"x": self.x, "y": self.y, "index": self.index, "pivot": self.pivot, **changes})


class Row(NamedTuple):
    """What all elements of a row share: length (an array if the rows' lengths differ), pivot, and initial value."""

    length: Any
    pivot: Array | None = None
    initial: tuple[Any, ...] | None = None


def number_type(types: Types) -> str:
    """Return the type in which a user's map computes: the accumulator's or, if that is a key, the encoded float's."""
    if types.accumulator == COMPENSATED:
        return "float64"
    if types.element.is_float and types.accumulator.startswith(("int", "uint")):
        return "float64" if types.element.name == "float64" else "float32"
    return types.accumulator


def sum_number_type(types: Types) -> str:
    """Return that type for operators that keep no element: for integers and bool the type of sums, which holds all."""
    return number_type(types if types.element.is_float else types._replace(accumulator=types.element.accumulators[0]))


Finish = Callable[[Fields, Row, Types], tuple[Array, ...]]


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """An operator with its options applied.

    Attributes
    ----------
    name : str
        The operator's public name.
    label : str
        An identifier that differs from that of the same operator with options that need other kernels; used in their
        names.
    struct : callable
        ``struct(types)`` returns the operator as a CUDA C++ type.
    rule : callable
        ``rule(element)`` returns its `TypeRule`, or raises UnsupportedError.
    identity : callable
        ``identity(types)`` returns one value for each field; combined with any accumulator, they leave every bit of it
        unchanged.
    map : callable
        ``map(items, types)`` turns elements into accumulators.
    combine : callable
        ``combine(a, b, types)`` combines two arrays of accumulators elementwise; commutative bit for bit.
    finish : callable
        ``finish(fields, row, types)`` turns accumulators into results, one array for each result.
    empty : tuple or None
        The results over no elements; None if there are none and ValueError is raised, as in NumPy.
    size : callable
        ``size(types)`` returns the bytes of the CUDA accumulator, padding included.
    number : callable
        ``number(types)`` returns the name of the type in which a user's map computes: see `number_type`.
    result_names : tuple of str
        One name for each result; kernels store the results as planes, in this order.
    second : {None, "mask", "operand", "first"}
        The second array: none, one of bool, one of the first array's type, or the single element that the pivot is
        computed from if that is not each row's first.
    pivot : callable, optional
        ``pivot(first, types)`` computes from each row's first element a value that all elements of the row share.
    indexed : bool
        Whether map uses the element's index.
    is_heavy : callable
        ``is_heavy(types)`` tells whether a thread needs more than 64 registers or so to keep eight loads in flight.
    fits_full_block : callable
        ``fits_full_block(types)`` tells whether 64 registers are enough for whole arrays even though the accumulator is
        wide.
    exact : bool
        Whether NumPy and every GPU give the same bits.
    ulps, absolute, relative : float
        If not, the most by which the results differ: see `tolerance`.
    skipped : callable
        ``skipped(types)`` returns the fields that stand for an element that is left out: the identity, except for sums.
    initial : callable, optional
        ``initial(value, types)`` returns the accumulator's fields for the caller's initial value; None if the operator
        takes no initial value.
    has_initial : bool
        Whether an initial value was given, which finish then takes from the row.
    constants : tuple of int
        If not, what finish takes from there in a kernel: `ddof` of moments, so that one kernel serves each.
    least : float, optional
        Over so many elements, or fewer, the divisor is not above zero: 0 for a mean, `ddof` for a variance.
    in_parts : Reduction, optional
        The same for an array in parts, whose accumulators must serve every type of results, if this one's do not.
    declaration : callable
        ``declaration(types)`` returns CUDA C++ that must precede the first use of the struct; empty for structs of
        cuda_src.
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
    constants: tuple[int, int] = (0, 0)
    least: float | None = None
    in_parts: Reduction | None = None
    declaration: Callable[[Types], str] = field(default=lambda types: "")

    @property
    def two_arrays(self) -> bool:
        """Whether elements of a second array go with those of the first."""
        return self.second in ("mask", "operand")

    @property
    def results(self) -> int:
        """How many results each row has."""
        return len(self.result_names)

    def accumulator(self, element: ElementType, accumulate: str | None = None) -> str:
        """Return the accumulator's name, checked.

        An integer type itself stands for arithmetic modulo 2**bits. A wider accumulator gives the same when its result
        is truncated to the type, so the wide one is used.

        Raises
        ------
        TypeError
            If `accumulate` names no accumulator.
        UnsupportedError
            If the operator does not take this element type, or not with that accumulator.
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
            If the operator does not take this element type, or its result cannot have the type `dtype`.
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
        """Return the reduction's types, checked; raises what `accumulator` and `result_type` raise."""
        accumulator = self.accumulator(element, accumulate)
        return Types(element, accumulator, self.result_type(element, dtype, accumulate))

    def second_dtype(self, element: ElementType) -> np.dtype[Any] | None:
        """Return the type of the second array's elements, None if there is no second array."""
        return {None: None, "mask": np.dtype(bool), "operand": element.dtype, "first": element.dtype}[self.second]

    def c_type(self, element: ElementType, accumulator: str, result: str) -> str:
        """Return the operator as a CUDA C++ type."""
        return self.struct(Types(element, accumulator, result))

    def source(self, element: ElementType, accumulator: str, result: str) -> str:
        """Return the CUDA C++ that must precede the first use of `c_type`; empty for types of cuda_src."""
        return self.declaration(Types(element, accumulator, result))

    def accumulator_bytes(self, element: ElementType, accumulator: str, result: str) -> int:
        """Return the size of the CUDA accumulator in bytes, padding included."""
        return self.size(Types(element, accumulator, result))

    def heavy(self, element: ElementType, accumulator: str, result: str) -> bool:
        """Tell whether a thread needs more than 64 registers or so."""
        return self.is_heavy(Types(element, accumulator, result))

    def empty_results(self, types: Types, initial: Any = None) -> tuple[Array, ...]:
        """Return the results over no elements, as 0-d arrays; `initial` is the initial value, if one was given.

        Raises
        ------
        ValueError
            If there is no such result, as in NumPy, or if the results' type cannot hold it.
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
        if types.result_dtype.kind == "c":  # both parts of a NaN are NaN
            results = tuple(
                np.where(np.isnan(each), each.dtype.type(complex(np.nan, np.nan)), each) for each in results
            )
        return results

    def warn_of_too_few(self, length: int) -> None:
        """Warn, as NumPy does, if rows of this length have too few elements for a divisor above zero."""
        if self.least is not None and length <= self.least:
            rows = f"rows of {length} element{'' if length == 1 else 's'}"
            less = f" less ddof={self.least:g}" if self.least else ""
            text = f"the divisor of {self.name} is not above 0 for {rows}{less}: results are NaN or infinite"
            warnings.warn(text, RuntimeWarning, stacklevel=3)

    def tolerance(self, result: Array, length: int, types: Types) -> Array:
        """Return by how much a kernel's results may differ from NumPy's, as float64 in `result`'s shape.

        That is `ulps` units in the last place of the result and, for each level of the tree, the accumulator's epsilon
        times `absolute`, plus the epsilon times `relative` times the result's magnitude. Zeros if the operator is
        `exact`.
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
        """Return `initial` of the kernels' Row: the initial value's accumulator, in two 64-bit words.

        Raises
        ------
        ValueError
            If the operator takes no initial value, or not this one.
        """
        raw = b"".join(np.asarray(part).tobytes() for part in self.initial_fields(value, types)).ljust(16, b"\0")
        return int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:], "little")

    def initial_fields(self, value: Any, types: Types) -> tuple[Any, ...]:
        """Return the initial value's accumulator, one NumPy scalar for each field; raises ValueError."""
        if self.initial is None:
            raise ValueError(f"{self.name} takes no initial value")
        return self.initial(value, types)

"""Operators and element maps that a user writes in CUDA C++: checked, and turned into structs of the protocol.

The user's text stands in the generated source behind ``#line`` directives, so that a compile error names the user's own
line: ``map of Operator 'absmax'(1): error: …``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from lowlevel_reduce.arguments import shown
from lowlevel_reduce.dtypes import ElementType, accumulator_bytes, c_name, element_type
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.operators.arithmetic import widen
from lowlevel_reduce.operators.base import Array, Fields, Items, Reduction, Row, TypeRule, Types
from lowlevel_reduce.operators.quoting import body_of, quoted, uses
from lowlevel_reduce.operators.rounding import round_to
from lowlevel_reduce.operators.scalars import number_of
from lowlevel_reduce.operators.validation import (
    SCALARS,
    STRUCT,
    check_accumulator,
    check_name,
    check_texts,
    element_names,
    empty_key,
)
from lowlevel_reduce.texts import check_text

__all__ = ["ElementMap", "NumpyMeaning", "Operator", "mapped"]

_NO_RETURN = 940
"""NVRTC's number of the warning that a function's end is reached without a ``return``: then anything is its value, and
so it is an error in a user's text."""

_REALS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class NumpyMeaning:
    """What a user's operator means in NumPy, so that `lowlevel_reduce.tree.reduce` can compute it.

    Attributes
    ----------
    identity : tuple
        One value for each field of the accumulator.
    map : callable
        ``map(x, y, i)``: takes the elements, those of the second array or None, and their indices in the row; returns
        accumulators, a tuple of arrays with one array for each field.
    combine : callable
        ``combine(a, b)``: takes two such tuples and returns their combination.
    finish : callable
        ``finish(a, n)``: takes such a tuple and the row's length; returns the results, one array or a tuple of arrays.
    """

    identity: tuple[Any, ...]
    map: Callable[[Array, Array | None, Array], Fields]
    combine: Callable[[Fields, Fields], Fields]
    finish: Callable[[Fields, Any], Any] = lambda a, n: a[0]

    def __post_init__(self) -> None:
        if not isinstance(self.identity, tuple):
            raise TypeError(f"a NumpyMeaning's identity is a tuple, one value a field, not {shown(self.identity)}")
        for what in ("map", "combine", "finish"):
            if not callable(getattr(self, what)):
                raise TypeError(f"a NumpyMeaning's {what} is a function, not {shown(getattr(self, what))}")
        for value in self.identity:
            number_of(value, "what a NumpyMeaning's identity holds")


@dataclass(frozen=True)
class Operator:
    """A reduction of the user's own, in CUDA C++.

    Each of `map`, `combine`, `identity` and `finish` is an expression, or statements of which every path ends in a
    ``return``: the compiler refuses others.

    Attributes
    ----------
    name : str
        An identifier that is not a Python keyword.
    map : str
        Turns an element into an accumulator. May use `x`, the element as a number (8- and 16-bit floats as float32,
        bool as int32), `i`, its index in the row as uint64, and `y`, the second array's element, if there is one.
    combine : str
        Combines two accumulators `a` and `b` into one. It must be commutative; the tree decides the order.
    identity : str
        The accumulator that leaves every accumulator that it is combined with unchanged: for ``fmaxf``, which drops a
        NaN, that is NaN. It stands for absent elements. Their number depends on how the reduction is mapped to the
        device, so with any other value the result would depend on that, too.
    finish : str or tuple of str
        Turns the accumulator `a` of a row of `n` elements into the result; a pair of such texts gives two results. `n`
        is a uint64 and counts all elements, also those that ``where=`` leaves out.
    accumulator : str
        ``"float32"``, ``"float64"``, ``"int32"``, ``"int64"``, ``"uint32"`` or ``"uint64"``, or a ``"struct { … }"``
        whose members make up whole 4-byte words; the texts name the type ``Accumulator``.
    accumulator_bytes : int, optional
        Size of a struct accumulator, at most 64 bytes; checked when it is compiled.
    preamble : str
        CUDA C++ that precedes the operator, such as functions and constants.
    second : bool
        Whether there is a second array, of the same type and shape.
    result : str, optional
        Type of the results; by default the elements' own, float32 for float8. A float is converted to an integer type
        by truncation; a value out of range becomes the nearest integer of the type, and NaN becomes 0.
    elements : tuple of str, optional
        The element types that it takes; by default all but complex ones.
    empty : number, optional
        The result over no elements, or each result if there are two. By default there is none: an empty row raises
        ValueError, and an empty segment gets what `finish` makes of the identity.
    numpy : NumpyMeaning, optional
        What it means in NumPy; without it `lowlevel_reduce.tree.reduce` cannot compute it.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described above.

    Examples
    --------
    >>> absmax = Operator("absmax", map="fabsf(x)", combine="fmaxf(a, b)", identity='nanf("")')
    """

    name: str
    map: str = "x"
    combine: str = ""
    identity: str = ""
    finish: str | tuple[str, ...] = "a"
    accumulator: str = "float32"
    accumulator_bytes: int | None = None
    preamble: str = ""
    second: bool = False
    result: str | None = None
    elements: tuple[str, ...] | None = None
    empty: float | None = field(default=None, compare=False)  # but by the key that is made of it
    numpy: NumpyMeaning | None = field(default=None, hash=False)
    _empty_key: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        texts = {"name": self.name, "map": self.map, "combine": self.combine, "identity": self.identity}
        check_texts({**texts, **{f"finish {k}": text for k, text in enumerate(self.finishes)}})
        check_name(self.name)
        if len(self.finishes) not in (1, 2):
            raise ValueError(f"an Operator gives one or two results, not {len(self.finishes)}")
        check_accumulator(self.accumulator, self.accumulator_bytes)
        if not isinstance(self.preamble, str):
            raise TypeError(f"preamble is CUDA C++ text, not {self.preamble!r}")
        check_text(self.preamble, "an Operator's preamble")
        if not isinstance(self.second, bool):
            raise TypeError(f"second is True or False, not {shown(self.second)}")
        if self.numpy is not None and not isinstance(self.numpy, NumpyMeaning):
            raise TypeError(f"numpy is a NumpyMeaning, not {shown(self.numpy)}")
        own = {
            "result": None if self.result is None else element_type(self.result).name,
            "elements": None if self.elements is None else element_names(self.elements),
            "_empty_key": empty_key(self.empty),
        }
        for name, value in own.items():
            object.__setattr__(self, name, value)  # the dataclass is frozen

    @property
    def finishes(self) -> tuple[str, ...]:
        """The texts of `finish`, one for each result."""
        return self.finish if isinstance(self.finish, tuple) else (self.finish,)

    @cached_property
    def reduction(self) -> Reduction:
        """The operator as kernels and the tree use it."""
        size = self.accumulator_bytes or accumulator_bytes(self.accumulator)
        return Reduction(
            name=self.name,
            label=f"user_{self.name}",
            struct=lambda types: f"User_{self.name}",
            rule=self._rule,
            identity=lambda types: self._meaning.identity,
            map=self._map,
            combine=lambda a, b, types: self._meaning.combine(a, b),
            finish=self._finish,
            empty=None if self.empty is None else (self.empty,) * len(self.finishes),
            size=lambda types: size,
            result_names=tuple(f"result{k}" for k in range(len(self.finishes))),
            second="operand" if self.second else None,
            indexed=uses(self.map, "i"),
            is_heavy=lambda types: size > 8,
            declaration=self._declaration,
        )

    @property
    def _meaning(self) -> NumpyMeaning:
        if self.numpy is None:
            raise UnsupportedError(f"the operator {self.name!r} has no NumPy meaning: give it numpy=NumpyMeaning(…)")
        return self.numpy

    def _rule(self, element: ElementType) -> TypeRule:
        taken = not element.is_complex if self.elements is None else element in map(element_type, self.elements)
        if not taken:
            raise UnsupportedError(f"the operator {self.name!r} does not take {element.name}")
        own = "float32" if element.result == "float32" else element.name
        result = self.result or own
        name = self.accumulator if self.accumulator in SCALARS else "struct"
        return TypeRule((name,), result, tuple(dict.fromkeys((result, *_REALS, *SCALARS[2:]))))

    def _map(self, items: Items, types: Types) -> Fields:
        fields = self._meaning.map(_number(items.x), _second(items.y), items.index)
        return tuple(np.broadcast_to(field, items.x.shape) for field in fields)

    def _finish(self, fields: Fields, row: Row, types: Types) -> tuple[Array, ...]:
        results = self._meaning.finish(fields, row.length)
        each = results if isinstance(results, tuple) else (results,)
        return tuple(round_to(np.broadcast_to(result, np.shape(fields[0])), types.result_dtype) for result in each)

    def _empty(self, types: Types) -> str:
        """Return the body of `empty`: the result over no elements, bit for bit, or what is made of the identity."""
        if self.empty is None:
            return "return finish(identity(), row, k);"
        result = np.atleast_1d(self.reduction.empty_results(types)[0])
        size = types.result_dtype.itemsize
        parts = result.view(f"u{size // 2}") if types.result_dtype.kind == "c" else result.view(f"u{size}")
        number = f"float{size * 4}" if types.result_dtype.kind == "c" else "Result"
        texts = [f"element_of_bits<{number}>({int(part):#x}ull)" for part in parts]
        return f"return {texts[0]};" if len(texts) == 1 else f"return Result{{{', '.join(texts)}}};"

    def _declaration(self, types: Types) -> str:
        members = STRUCT.fullmatch(self.accumulator)
        accumulator = f"User_{self.name}_accumulator"
        size = self.accumulator_bytes or accumulator_bytes(self.accumulator)
        where = f"of Operator '{self.name}'"
        result = c_name(types.result)
        finishes = "\n".join(
            f"if (k == {k}) return result_of<{result}>([&] {{ {body_of(text, f'finish {where}')} }}());"
            for k, text in enumerate(self.finishes[:-1])
        )
        last = body_of(self.finishes[-1], f"finish {where}")
        function = "static __device__ __forceinline__"
        return f"""\
#pragma nv_diag_error {_NO_RETURN}
{quoted(self.preamble, f"preamble {where}")}
{
            f"struct {accumulator} {{{quoted(members['members'], f'accumulator {where}')}}};"
            if members
            else f"using {accumulator} = {self.accumulator};"
        }
static_assert(sizeof({accumulator}) == {size}, "accumulator_bytes {where} is not the size of its accumulator");
struct User_{self.name} : Operator<{types.element.c_name}, {accumulator}, {result}> {{
{f"using Second = {types.element.c_name};" if self.second else ""}
static constexpr int results = {len(self.finishes)};
{function} Accumulator identity() {{ {body_of(self.identity, f"identity {where}")} }}
template <class I, class R> {function} Accumulator map(const I& item, const R&) {{
{_arguments(self.map, second=self.second)} {body_of(self.map, f"map {where}")} }}
{function} Accumulator combine(Accumulator a, Accumulator b) {{ {body_of(self.combine, f"combine {where}")} }}
template <class R> {function} Result finish(Accumulator a, const R& row, int k) {{
const uint64 n = row.length; (void)n;
{finishes}
return result_of<{result}>([&] {{ {last} }}()); }}
template <class R> {function} Result empty(const R& row, int k) {{ {self._empty(types)} }}
}};
#pragma nv_diag_default {_NO_RETURN}
"""


@dataclass(frozen=True)
class ElementMap:
    """A map: the values that a built-in operator reduces in place of the elements.

    Attributes
    ----------
    source : str
        CUDA C++: an expression, or statements that end in a ``return``. May use `x`, the element, `i`, its index in the
        row, and `y`, the second array's element, if there is one. Arguments and value have the type in which the
        operator computes:

        - for sums, moments, norms of order 1 and 2, and exponentials, the accumulator's;
        - for the smallest and the largest element, the elements' own, but 32 bits for bool and 8- and 16-bit types.
          Results for 8- and 16-bit integers then have 32 bits, too, unless ``dtype=`` says that they wrap to the
          elements' type;
        - for any, all and count_nonzero, the same for floats, and 64 bits for integers and bool;
        - for the norm of order infinity, the same for floats, and float64 for integers and bool.
    numpy : callable, optional
        ``numpy(x)``, or ``numpy(x, y)`` if there is a second array: the same map over NumPy arrays of that type.
    """

    source: str
    numpy: Callable[..., Array] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.source, str):
            raise TypeError(f"a map is CUDA C++ text, not {self.source!r}")
        check_text(self.source, "a map")
        if not self.source.strip():
            raise ValueError("a map is an expression, not an empty text")
        if self.numpy is not None and not callable(self.numpy):
            raise TypeError(f"a map's meaning in NumPy is a function, not {shown(self.numpy)}")

    @property
    def second(self) -> bool:
        """Whether it uses a second array."""
        return uses(self.source, "y")


def mapped(inner: Reduction, element_map: ElementMap) -> Reduction:
    """Return the operator over the map's values in place of the elements."""
    if inner.pivot and element_map.second:
        raise ValueError(f"a map for {inner.name} is of one array: a row's first value is needed before the others")
    digest = hashlib.sha256(element_map.source.encode()).hexdigest()[:8]

    def rule(element: ElementType) -> TypeRule:
        own = inner.rule(element)
        if element.is_complex:
            raise UnsupportedError(f"a map of {element.name} is not defined here")
        # A value of the map's need not be one of eight bits, nor an integer of it be in a narrow type's range.
        if own.result.startswith("float8"):
            return own._replace(result="float32", results=("float32",))
        if element.dtype.kind in "iu" and own.results == (element.name,):
            number = inner.number(Types(element, own.accumulators[0], own.result))
            return own._replace(result=number, results=tuple(dict.fromkeys((number, element.name))))
        return own

    def within(types: Types) -> Types:
        return types._replace(element=element_type(inner.number(types)))

    def map_(items: Items, types: Types) -> Fields:
        return inner.map(items.where(x=values(types, items.x, items.y), y=None), within(types))

    def values(types: Types, x: Array, y: Array | None = None) -> Array:
        if element_map.numpy is None:
            raise UnsupportedError(
                f"the map {element_map.source!r} has no NumPy meaning: give ElementMap(source, numpy=…)"
            )
        number = inner.number(types)
        values = element_map.numpy(*(widen(each, number) for each in (x, y) if each is not None))
        return np.broadcast_to(np.asarray(values, number), x.shape)

    def pivot(first: Array, types: Types) -> Array:
        assert inner.pivot is not None  # noqa: S101 - there is none of the map where there is none
        return inner.pivot(values(types, first), within(types))

    def declaration(types: Types) -> str:
        number, element = c_name(inner.number(types)), types.element.c_name
        body = body_of(element_map.source, f"map {element_map.source.splitlines()[0]!r}"[:60])
        return f"""\
#pragma nv_diag_error {_NO_RETURN}
struct Map_{digest} {{
using Input = {element};
using Second = {element if element_map.second else "Unused"};
template <class I> static __device__ __forceinline__ {number} map(const I& item) {{
{_arguments(element_map.source, second=element_map.second, convert=f"widen<{number}>")} {body} }}
}};
#pragma nv_diag_default {_NO_RETURN}
"""

    initial = inner.initial
    return replace(
        inner,
        label=f"{inner.label}_of_{digest}",
        rule=rule,
        struct=lambda types: f"Mapped<{inner.struct(within(types))}, Map_{digest}>",
        identity=lambda types: inner.identity(within(types)),
        skipped=lambda types: (inner.skipped or inner.identity)(within(types)),
        map=map_,
        finish=lambda fields, row, types: inner.finish(fields, row, within(types)),
        initial=None if initial is None else lambda number, types: initial(number, within(types)),
        size=lambda types: inner.size(within(types)),
        second="operand" if element_map.second else None,
        pivot=pivot if inner.pivot else None,
        in_parts=None if inner.in_parts is None else mapped(inner.in_parts, element_map),
        indexed=inner.indexed or uses(element_map.source, "i"),
        is_heavy=lambda types: inner.indexed or inner.pivot is not None or inner.is_heavy(within(types)),
        fits_full_block=lambda types: False,  # what the user's map needs is not known
        declaration=declaration,
    )


def _number(x: Array) -> Array:
    """Return elements as the numbers that CUDA C++ computes with."""
    if x.dtype.kind == "b":
        return widen(x, "int32")
    return x.astype(np.float32) if x.dtype.kind not in "iuc" and x.dtype.itemsize < 4 else x


def _second(y: Array | None) -> Array | None:
    return None if y is None else _number(y)


def _arguments(text: str, *, second: bool, convert: str = "number") -> str:
    """Declare those of x, y and i that the text uses."""
    sources = {"x": f"{convert}(item.x)", "y": f"{convert}(item.y)" if second else None, "i": "item.index"}
    return " ".join(f"const auto {name} = {value};" for name, value in sources.items() if value and uses(text, name))

"""The types of a row operation's arrays, resolved: elements, numbers, results, outputs, columns and row inputs."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from lowlevel_reduce.dtypes import ElementType, element_type, numpy_dtype
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.operators import Types
from lowlevel_reduce.rowops.operation import RowOperation

__all__ = ["ELEMENTS", "RowTypes", "accumulator_bytes", "only_known", "result_type", "types_of"]

ELEMENTS = ("float16", "bfloat16", "float32", "float64")
"""The types of the rows' elements."""

_OUTPUTS = (*ELEMENTS, "float8_e4m3fn", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_INPUTS = (*ELEMENTS, "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")


class RowTypes(NamedTuple):
    """What types an operation's arrays have.

    Attributes
    ----------
    element : ElementType
        The rows' elements.
    number : str
        In which expressions compute: float32 or float64.
    reductions : tuple of Types
        Of each reduction; terms are of `number`, and accumulate as elements would.
    outputs, kept, columns, rows, tables : tuple of str
        NumPy's names of the types of the arrays, in the operation's order.
    """

    element: ElementType
    number: str
    reductions: tuple[Types, ...]
    outputs: tuple[str, ...]
    kept: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    tables: tuple[str, ...] = ()


def types_of(
    operation: RowOperation,
    dtype: Any,
    *,
    columns: Mapping[str, Any],
    rows: Mapping[str, Any],
    outputs: Mapping[str, Any],
    tables: Mapping[str, Any] | None = None,
) -> RowTypes:
    """Return the types of an operation over elements of `dtype`, checked.

    Parameters
    ----------
    columns, rows, tables : mapping
        The dtypes of these arrays.
    outputs : mapping
        Dtypes of outputs, and of what is kept, that the caller asks for in place of the operation's own.

    Raises
    ------
    TypeError
        If a row input of integers is of another type, or the operation has nothing of a name.
    UnsupportedError
        If a type is not among those that row operations take.
    """
    element = element_type(dtype)
    if element.name not in ELEMENTS:
        raise UnsupportedError(f"row operations take rows of {', '.join(ELEMENTS)}, not of {element.name}")
    number = "float64" if element.name == "float64" else "float32"
    named = (
        (operation.columns, columns),
        (operation.rows, rows),
        (operation.tables, tables),
        (operation.output_types, outputs),
    )
    for names, given in named:
        only_known(operation, names, given or {})

    def output(name: str, default: str) -> str:
        given = outputs.get(name)
        chosen: str = numpy_dtype(given).name if given is not None else operation.output_types[name] or default
        if chosen not in _OUTPUTS:
            raise UnsupportedError(f"{operation.name} writes {', '.join(_OUTPUTS)}, not {chosen}")
        return chosen

    def inputs(names: tuple[str, ...], given: Mapping[str, Any], allowed: tuple[str, ...]) -> tuple[str, ...]:
        found = tuple(np.dtype(given[name]).name for name in names)
        for name, each in zip(names, found, strict=True):
            if name in operation.whole_rows and np.dtype(each).kind not in "iu":
                raise TypeError(f"{name} of {operation.name} is of integers, not of {each}")
            if each not in allowed:
                raise UnsupportedError(f"{name} of {operation.name} is of {', '.join(allowed)}, not of {each}")
        return found

    return RowTypes(
        element,
        number,
        tuple(_reduction_types(operation, element, number)),
        tuple(output(name, element.name) for name in operation.write),
        tuple(output(name, number) for name in operation.keep),
        inputs(operation.columns, columns, ELEMENTS),
        inputs(operation.rows, rows, _INPUTS),
        inputs(operation.tables, tables or {}, ELEMENTS),
    )


def only_known(operation: RowOperation, names: Container[str], given: Iterable[str]) -> None:
    """Refuse a name that is not among an operation's."""
    for name in given:
        if name not in names:
            raise TypeError(f"{operation.name} has no {name!r}")


def _reduction_types(operation: RowOperation, element: ElementType, number: str) -> list[Types]:
    found = []
    for each in operation.reductions:
        rule = each.operator.rule(element)
        wanted = number if number in rule.results else rule.result
        found.append(each.operator.types(element, None, wanted))
    return found


def accumulator_bytes(operation: RowOperation, types: RowTypes) -> int:
    """Return the size of what all reductions of a row are folded in, together."""
    found = 0
    for each, own in zip(operation.reductions, types.reductions, strict=True):
        of_terms = own if each.terms is None else own._replace(element=element_type(types.number))
        found += each.operator.size(of_terms)
    return found or 4  # that of no reduction at all


def result_type(types: Types, number: str) -> str:
    """Return the type that a reduction's result has in expressions: a number, or an integer of 32 or 64 bits."""
    if types.result_dtype.kind in "iub":
        return types.result if types.result_dtype.itemsize >= 4 else "int32"
    return number

"""What a row operation is: its reductions, its expressions in CUDA C++, and their meaning in NumPy."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

from lowlevel_reduce.arguments import integer, shown
from lowlevel_reduce.dtypes import numpy_dtype
from lowlevel_reduce.operators import Array, Reduction, resolve
from lowlevel_reduce.operators.quoting import uses
from lowlevel_reduce.texts import check_text

__all__ = ["PARAMETER_TYPES", "RESERVED", "Parameter", "RowMeaning", "RowOperation", "RowReduction", "axis_of"]

PARAMETER_TYPES = ("number", "int64")
"""What a parameter is in expressions: of the type in which they compute, or a whole number below 2^53."""

RESERVED = ("x", "y", "i", "n", "row", "length", "at", "number", "Number", "Input", "Given", "Values", "Op",
            "Output")  # fmt: skip
"""Names that mean something in expressions already."""

_OPTIONS = ("operation", "axis", "second", "out", "dtype", "stream", "allocator", "strategy", "cluster", "block")
"""What `row_operation` takes by name: no array or parameter of the same name would reach an operation."""

_MOST = 8
"""The most arrays of a kind that an operation may have."""


class RowReduction(NamedTuple):
    """One reduction of an operation: its operator, the expression of its terms (None: the elements), its results."""

    operator: Reduction
    terms: str | None
    results: tuple[str, ...]


class Parameter(NamedTuple):
    """A scalar that a call passes: its name, and "number" or "int64"."""

    name: str
    kind: str


@dataclass(frozen=True)
class RowMeaning:
    """What a row operation means in NumPy, so that `lowlevel_reduce.tree.row_operation` can compute it.

    Each function takes a namespace of arrays that broadcast to ``(rows, n)``: `x` (and `y`) as numbers, `i`, and all
    other names of the operation; `n` and `row` are integers, `length` is of shape ``(rows, 1)``, and ``at(k)`` returns
    each row's element number k.

    Attributes
    ----------
    write : callable
        Returns a dictionary of all outputs and of what is kept.
    row : callable, optional
        Returns a dictionary of the values of a row, in the order in which the operation lists them.
    before : callable, optional
        The same for those that are made before its reductions.
    terms : mapping of callables, optional
        For each reduction of terms, by its first result, the terms.
    merge : callable, optional
        The merged element, before it is rounded to the elements' type.
    length : callable, optional
        How many elements of each row there are.
    """

    write: Callable[[SimpleNamespace], Mapping[str, Array]]
    row: Callable[[SimpleNamespace], Mapping[str, Array]] = lambda v: {}
    terms: Mapping[str, Callable[[SimpleNamespace], Array]] = field(default_factory=dict)
    merge: Callable[[SimpleNamespace], Array] | None = None
    length: Callable[[SimpleNamespace], Any] | None = None
    before: Callable[[SimpleNamespace], Mapping[str, Array]] = lambda v: {}


@dataclass(frozen=True, eq=False)
class RowOperation:
    """Reductions of a row, and an expression that writes the row back: one read, one write.

    One axis of the array is reduced, of up to 2^30 elements of float16, bfloat16, float32 or float64; each row is read
    once, kept in registers or in the shared memory of a block or a cluster, and written. The reductions are those of
    the one tree, so the bits that a row gets depend on that row alone.

    Texts are CUDA C++: an expression, or statements that end in a ``return``. They compute in *numbers*: float32 for
    float16, bfloat16 and float32, else float64. Sums and products are rounded separately, as in NumPy. All texts may
    use the row inputs and parameters by their names, `n` (the row's elements, int64) and `row` (its number, int64).

    Parameters
    ----------
    name : str
        An identifier.
    reduce : mapping
        From names of results, ``"s"`` or ``"largest, total"``, to the operator: a name, an `Operator`, or a pair of one
        and a text of *terms* that it reduces in place of the elements; terms may use `x`, `y`, `i`, columns and
        tables. Results are numbers, rounded once, or integers where the operator gives those. At most three reductions.
    row : mapping
        Values that are computed once a row, in order, each a number. They may use the results, each other, and
        ``at(k)``, the row's element number k as a number, NaN where there is none.
    write : mapping
        From the names of the outputs, arrays of the same shape, to texts. They may use `x`, `y`, `i` (the element's
        index, int64), columns, results and values of the row, and name the output's type, `Output`.
    keep : mapping
        From names of arrays of one element a row to texts, which may use what `row` may. A trailing ``": float64"``,
        for example, in the name of an output or of these says its type: by default an output has the elements' type,
        and what is kept is a number.
    second : bool
        Whether there is a second array `y` of the same shape and type.
    merge : str, optional
        Merges `x` and `y` into one element, rounded to the elements' type, that `x` is from then on.
    columns, rows, parameters : tuple of str
        Arrays of n elements, one for each column; arrays of one element a row (``"k: int64"``: of integers, of any
        integer type); scalars (``"k: int64"`` is a whole one).
    tables : tuple of str
        Arrays of one axis of any length, into which `row`, `write`, `keep`, `before` and terms look: ``weight[k]`` is
        element k as a number, NaN where there is none.
    length : str, optional
        How many elements of a row there are; the others are neither read nor reduced, and `fill` is written.
    fill : mapping
        From outputs to texts for what is not there; by default 0.
    preamble : str
        CUDA C++ that precedes the operation, such as functions.
    numpy : RowMeaning, optional
        What it means in NumPy.
    before : mapping
        Values of a row, each a number, in order, that are made before its reductions, of row inputs, parameters, tables
        and each other: all other texts may use them, terms too.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> centred = RowOperation("centred", reduce={"m": "mean"}, write={"y": "x - m"})
    """

    name: str
    reduce: Mapping[str, Any] = field(default_factory=dict)
    row: Mapping[str, str] = field(default_factory=dict)
    write: Mapping[str, str] = field(default_factory=dict)
    keep: Mapping[str, str] = field(default_factory=dict)
    second: bool = False
    merge: str | None = None
    columns: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    length: str | None = None
    fill: Mapping[str, str] = field(default_factory=dict)
    preamble: str = ""
    numpy: RowMeaning | None = None
    before: Mapping[str, str] = field(default_factory=dict)
    reductions: tuple[RowReduction, ...] = field(default=(), init=False, repr=False)
    scalars: tuple[Parameter, ...] = field(default=(), init=False, repr=False)
    output_types: Mapping[str, str | None] = field(default_factory=dict, init=False, repr=False)
    whole_rows: frozenset[str] = field(default=frozenset(), init=False, repr=False)

    def __post_init__(self) -> None:
        for what in ("reduce", "row", "write", "keep", "fill", "before"):
            if not isinstance(getattr(self, what), Mapping):
                raise TypeError(f"a RowOperation's {what} is a mapping, not {shown(getattr(self, what))}")
        for what in ("columns", "rows", "parameters", "tables"):
            given = getattr(self, what)
            if not isinstance(given, tuple) or len(given) > _MOST:
                raise TypeError(f"a RowOperation's {what} is a tuple of up to {_MOST} names, not {shown(given)}")
        if self.numpy is not None and not isinstance(self.numpy, RowMeaning):
            raise TypeError(f"numpy is a RowMeaning, not {shown(self.numpy)}")
        if self.merge is not None and not self.second:
            raise ValueError("merge joins two arrays: it goes with second=True")
        types: dict[str, str | None] = {}
        own = {
            "write": _typed(self.write, types),
            "keep": _typed(self.keep, types),
            "output_types": types,
            "reductions": tuple(_reduction(names, given) for names, given in self.reduce.items()),
            "scalars": tuple(_parameter(each, "a parameter") for each in self.parameters),
        }
        rows = tuple(_parameter(each, "a row input") for each in self.rows)
        own["rows"] = tuple(each.name for each in rows)
        own["whole_rows"] = frozenset(each.name for each in rows if each.kind == "int64")
        for name, value in own.items():
            object.__setattr__(self, name, value)  # the dataclass is frozen
        if not self.write and not self.keep:
            raise ValueError(f"the row operation {self.name!r} writes nothing: it needs write= or keep=")
        if len(self.reductions) > 3:
            raise ValueError(f"a RowOperation has at most three reductions, not {len(self.reductions)}")
        self._check_texts()
        self._check_names()
        self._check_second()

    @property
    def arrays(self) -> int:
        """How many arrays of rows it reads."""
        return 2 if self.second else 1

    @property
    def inputs(self) -> int:
        """How many arrays it reads: those of rows, columns, row inputs and tables."""
        return self.arrays + len(self.columns) + len(self.rows) + len(self.tables)

    @property
    def result_names(self) -> tuple[str, ...]:
        """The names of all results of its reductions."""
        return tuple(name for each in self.reductions for name in each.results)

    def _texts(self) -> dict[str, str]:
        groups = {"before": self.before, "row": self.row, "write": self.write, "keep": self.keep, "fill": self.fill}
        texts = {f"{what} {name}": text for what, group in groups.items() for name, text in group.items()}
        terms = {f"terms of {each.results[0]}": each.terms for each in self.reductions if each.terms is not None}
        single = {"merge": self.merge, "length": self.length}
        return {**texts, **terms, **{what: text for what, text in single.items() if text is not None}}

    def _check_texts(self) -> None:
        for what, text in self._texts().items():
            if not isinstance(text, str):
                raise TypeError(f"{what} of the row operation {self.name!r} is CUDA C++ text, not {shown(text)}")
            check_text(text, f"{what} of a RowOperation")
            if not text.strip():
                raise ValueError(f"{what} of the row operation {self.name!r} is empty")
        check_text(self.preamble, "a RowOperation's preamble")

    def _check_names(self) -> None:
        given = [*self.columns, *self.rows, *self.tables, *(each.name for each in self.scalars)]
        names = [*self.result_names, *self.before, *self.row, *given]
        for name in (self.name, *names, *self.write, *self.keep):
            if (
                not isinstance(name, str)
                or not re.fullmatch(r"[a-zA-Z]\w*(?<!_)", name, re.ASCII)
                or keyword.iskeyword(name)
            ):
                raise ValueError(
                    f"a name in a RowOperation is an identifier that does not end with _, not {shown(name)}"
                )
        options = [name for name in given if name in _OPTIONS]
        if options:
            raise ValueError(f"the row operation {self.name!r} would not get row_operation's own argument {options[0]}")
        twice = sorted({name for name in names if names.count(name) > 1 or name in RESERVED})
        outputs = [*self.write, *self.keep]
        twice += sorted({name for name in outputs if outputs.count(name) > 1})
        if twice:
            raise ValueError(f"the row operation {self.name!r} uses {twice[0]!r} for two things")
        unknown = sorted(set(self.fill) - set(self.write))
        if unknown:
            raise ValueError(f"fill of {unknown[0]!r}, which the row operation {self.name!r} does not write")

    def _check_second(self) -> None:
        of_terms = any(each.terms is not None for each in self.reductions)
        for each in self.reductions:
            if each.terms is not None and each.operator.pivot is not None:
                raise ValueError(f"{each.operator.name} needs a row's first element, so it takes no terms")
            if each.operator.two_arrays and (not self.second or self.merge is not None or of_terms):
                raise ValueError(
                    f"{each.operator.name} reads two arrays: that goes with second=True, and not with merge or terms"
                )
        if not self.second:
            for what, text in self._texts().items():
                if not what.startswith(("before", "keep", "row", "length")) and uses(text, "y"):
                    raise ValueError(f"{what} of the row operation {self.name!r} uses y: that needs second=True")


def _typed(group: Mapping[str, str], types: dict[str, str | None]) -> dict[str, str]:
    """Return texts by bare names, and put the type that follows each name, None if none does, into `types`."""
    found: dict[str, str] = {}
    for given, text in group.items():
        if not isinstance(given, str):
            raise TypeError(f"the name of an output is text, not {shown(given)}")
        name, _, dtype = (part.strip() for part in given.partition(":"))
        found[name] = text
        types[name] = numpy_dtype(dtype).name if dtype else None
    return found


def _reduction(names: Any, given: Any) -> RowReduction:
    if not isinstance(names, str):
        raise TypeError(f"the names of results are text, not {shown(names)}")
    results = tuple(name.strip() for name in names.split(","))
    op, terms = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    operator = op if isinstance(op, Reduction) else resolve(op)
    if len(results) != operator.results:
        raise ValueError(f"{operator.name} gives {operator.results} results, which {names!r} does not name")
    if operator.second in ("mask", "first"):
        raise ValueError(f"a row operation reduces without a mask, not {operator.name} with one")
    return RowReduction(operator, terms, results)


def axis_of(axis: Any, axes: int) -> int:
    """Return the number of an axis, counted from the first one, of an array that has as many.

    Raises
    ------
    TypeError, ValueError
        If it is no integer, or there is no such axis.
    """
    if axes == 0:
        raise ValueError("a row operation needs an array of one axis at least")
    number: int = integer(axis, "axis is an integer")
    if not -axes <= number < axes:
        raise ValueError(f"axis {number} is out of bounds for an array of {axes} axes")
    return number % axes


def _parameter(given: Any, what: str) -> Parameter:
    if not isinstance(given, str):
        raise TypeError(f"the name of {what} is text, not {shown(given)}")
    name, _, kind = (part.strip() for part in given.partition(":"))
    if kind not in ("", *PARAMETER_TYPES):
        raise ValueError(f"{what} is a {' or '.join(PARAMETER_TYPES)}, not {shown(kind)}")
    return Parameter(name, kind or "number")

"""What a row operation means in NumPy: the results of the one tree, and the expressions in the same arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel_reduce import tree
from lowlevel_reduce.arguments import instance, not_masked
from lowlevel_reduce.dtypes import element_type, numpy_dtype
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.operators import Array, Fields, Items, Reduction, Types, result_tuple
from lowlevel_reduce.operators.rounding import round_to
from lowlevel_reduce.rowops.operation import RowMeaning, RowOperation, axis_of
from lowlevel_reduce.rowops.parameters import parameter_words
from lowlevel_reduce.rowops.types import RowTypes, result_type, types_of

__all__ = ["row_operation", "to_output"]

_LARGEST_E4M3 = 448.0


def row_operation(
    operation: RowOperation,
    x: npt.ArrayLike,
    *,
    axis: int = -1,
    second: npt.ArrayLike | None = None,
    dtype: Any = None,
    **given: Any,
) -> Any:
    """Apply a row operation along one axis of an array, in NumPy on the host.

    Parameters
    ----------
    operation : RowOperation
        What to do; it has a meaning in NumPy.
    x : array_like
        Rows of float16, bfloat16 (ml_dtypes), float32 or float64.
    axis : int
        Along which rows lie.
    second : array_like, optional
        The second array, broadcast to the shape of `x`, and of its type.
    dtype : dtype or mapping, optional
        Types of the outputs: one for all arrays of rows, or by name.
    **given
        Columns, row inputs (of the shape of the other axes), tables and parameters, by name.

    Returns
    -------
    numpy.ndarray or named tuple
        What a device's call returns: bit for bit where the expressions are of IEEE operations alone, else within the
        bounds that the page on row operations gives.

    Raises
    ------
    UnsupportedError
        If the operation, or an operator of it, has no meaning in NumPy, or a type is not supported.
    TypeError, ValueError
        If an argument is missing, unknown, or of the wrong shape or type.
    """
    instance(operation, RowOperation, "a row operation")
    if operation.numpy is None:
        raise UnsupportedError(
            f"the row operation {operation.name!r} has no NumPy meaning: give it numpy=RowMeaning(…)"
        )
    x = np.asarray(not_masked(x))
    if x.ndim == 0:
        raise ValueError("a row operation needs an array of one axis at least")
    axis = axis_of(axis, x.ndim)
    other = _second(operation, x, second)
    x = np.ascontiguousarray(np.moveaxis(x, axis, -1))
    other = None if other is None else np.ascontiguousarray(np.moveaxis(other, axis, -1))
    inputs = _inputs(operation, x.shape, given)
    dtypes = dtype if isinstance(dtype, Mapping) else dict.fromkeys(operation.write, dtype)
    types = types_of(
        operation,
        x.dtype,
        columns={name: inputs[name].dtype for name in operation.columns},
        rows={name: inputs[name].dtype for name in operation.rows},
        tables={name: inputs[name].dtype for name in operation.tables},
        outputs=dtypes,
    )
    shape, n = x.shape, x.shape[-1]
    matrix = x.reshape(-1, n) if x.size else np.empty((int(np.prod(shape[:-1])), n), x.dtype)
    beside = None if other is None else other.reshape(matrix.shape)
    at_once = max(1, tree.LEAVES_AT_ONCE * types.element.leaf // max(n, 1))
    names = (*operation.write, *operation.keep)
    parts: dict[str, list[Array]] = {name: [] for name in names}
    with np.errstate(all="ignore"):  # overflow and invalid operations have their IEEE results here, as on a GPU
        for first in range(0, max(len(matrix), 1), at_once):
            rows = slice(first, first + at_once)
            found = _Rows(operation, operation.numpy, types, inputs, matrix[rows], beside, rows).write()
            for name in names:
                parts[name].append(found[name])
    results = [np.concatenate(parts[name]) for name in operation.write]
    shaped = [np.ascontiguousarray(np.moveaxis(each.reshape(shape), -1, axis)) for each in results]
    shaped += [np.concatenate(parts[name]).reshape(shape[:-1]) for name in operation.keep]
    return shaped[0] if len(shaped) == 1 else result_tuple(operation.name, names)(*shaped)


def to_output(value: Any, name: str) -> Array:
    """Return numbers as elements of an output's type: `output_of` in cuda_src/rowops/numbers.cuh."""
    value, dtype = np.asarray(value), numpy_dtype(name)
    if name == "float8_e4m3fn":
        if value.dtype == np.float64:
            value = round_to(value, np.dtype(np.float64))
        clamped = np.clip(value, -_LARGEST_E4M3, _LARGEST_E4M3)
        return np.where(np.isnan(value), np.array(np.nan, dtype), clamped.astype(dtype))
    return round_to(value, dtype)


def _second(operation: RowOperation, x: Array, second: Any) -> Array | None:
    if (second is not None) != operation.second:
        raise TypeError(f"{operation.name} takes {'a second array' if operation.second else 'one array'}")
    if second is None:
        return None
    other = np.asarray(not_masked(second))
    if other.dtype != x.dtype:
        raise TypeError(f"the second array of {operation.name} is of {x.dtype}, not of {other.dtype}")
    whole: Array = np.ascontiguousarray(np.broadcast_to(other, x.shape))
    return whole


def _inputs(operation: RowOperation, shape: tuple[int, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    scalars = [each.name for each in operation.scalars]
    wanted = {*operation.columns, *operation.rows, *operation.tables, *scalars}
    for name in sorted(wanted ^ set(given)):
        raise TypeError(f"{operation.name} {'needs' if name in wanted else 'has no'} {name}=")
    words = parameter_words(operation, {name: given[name] for name in scalars})
    found: dict[str, Any] = dict(zip(scalars, words, strict=True))
    for names, target in ((operation.columns, shape[-1:]), (operation.rows, shape[:-1])):
        for name in names:
            array = np.asarray(not_masked(given[name]))
            if array.shape != target:
                raise ValueError(f"{name} of {operation.name} has shape {array.shape}, not {target}")
            found[name] = array
    for name in operation.tables:
        array = found[name] = np.asarray(not_masked(given[name]))
        if array.ndim != 1:
            raise ValueError(f"{name} of {operation.name} has one axis, not shape {array.shape}")
    return found


class _Table:
    """An array that expressions look into: NaN where there is no such element."""

    def __init__(self, array: Array, number: np.dtype[Any]) -> None:
        self._values = np.append(array.astype(number), number.type(np.nan))

    def __getitem__(self, k: Any) -> Array:
        none = len(self._values) - 1
        found: Array = self._values[np.where((np.asarray(k) >= 0) & (np.asarray(k) < none), k, none)]
        return found


class _Rows:
    """Some rows, few enough to be reduced at once, and what an operation makes of them."""

    def __init__(
        self,
        operation: RowOperation,
        meaning: RowMeaning,
        types: RowTypes,
        inputs: Mapping[str, Any],
        x: Array,
        y: Array | None,
        rows: slice,
    ) -> None:
        self.operation, self.meaning, self.types = operation, meaning, types
        self.number = numpy_dtype(types.number)
        self.count, self.n = x.shape
        v = SimpleNamespace(n=np.int64(self.n), number=self.number.type, i=np.arange(self.n, dtype=np.int64)[None, :])
        v.row = np.arange(rows.start, rows.start + self.count, dtype=np.int64)[:, None]
        for name in operation.columns:
            setattr(v, name, inputs[name].astype(self.number)[None, :])
        for name in operation.rows:
            each = inputs[name].reshape(-1)[rows]
            setattr(v, name, (each if each.dtype.kind in "iub" else each.astype(_wide(each.dtype)))[:, None])
        for name in operation.tables:
            setattr(v, name, _Table(inputs[name], self.number))
        for scalar in operation.scalars:
            kind = self.number.type if scalar.kind == "number" else np.int64
            setattr(v, scalar.name, kind(inputs[scalar.name]))
        for name, value in meaning.before(v).items():
            setattr(v, name, self._number_of_rows(value))
        v.x, v.y = x.astype(self.number), None if y is None else y.astype(self.number)
        self.x, self.y = x, y
        if meaning.merge is not None:
            self.x = round_to(np.asarray(meaning.merge(v)), types.element.dtype)
            v.x = self.x.astype(self.number)
        length = v.n if meaning.length is None else meaning.length(v)
        v.length = np.clip(np.broadcast_to(np.asarray(length, np.int64), (self.count, 1)), 0, self.n)
        v.at = self._at
        self.v = v

    def _number_of_rows(self, value: Any) -> Array:
        whole: Array = np.broadcast_to(np.asarray(value), (self.count, 1)).astype(self.number)
        return whole

    def _at(self, k: Any) -> Array:
        k = np.broadcast_to(np.asarray(k), (self.count, 1)).astype(np.int64)
        there = (k >= 0) & (k < self.v.length)
        taken = (
            np.take_along_axis(self.v.x, np.where(there, k, 0), axis=1) if self.n else np.zeros(k.shape, self.number)
        )
        return np.where(there, taken, self.number.type(np.nan))

    def write(self) -> dict[str, Array]:
        """Return all outputs and what is kept, in their types."""
        v = self.v
        for each, types in zip(self.operation.reductions, self.types.reductions, strict=True):
            found = self._reduced(each.operator, each.results[0] if each.terms is not None else None, types)
            own = numpy_dtype(result_type(types, self.types.number))
            for name, result in zip(each.results, found, strict=True):
                setattr(v, name, result.astype(own)[:, None])
        for name, value in self.meaning.row(v).items():
            setattr(v, name, self._number_of_rows(value))
        values = self.meaning.write(v)
        found_outputs = {}
        for name, type_ in zip(self.operation.write, self.types.outputs, strict=True):
            found_outputs[name] = to_output(np.broadcast_to(values[name], self.x.shape), type_)
        for name, type_ in zip(self.operation.keep, self.types.kept, strict=True):
            found_outputs[name] = to_output(np.broadcast_to(values[name], (self.count, 1)), type_)[:, 0]
        return found_outputs

    def _reduced(self, operator: Reduction, of_terms: str | None, types: Types) -> list[Array]:
        """Return one reduction's results for all rows, each over as many elements as the row has."""
        lengths = self.v.length[:, 0]
        results: list[Array] | None = None
        for length in np.unique(lengths):
            chosen = np.flatnonzero(lengths == length)
            made: Any = operator if of_terms is None else self._of_terms(operator, of_terms, chosen)
            second = self.y[chosen, :length] if operator.two_arrays and self.y is not None else None
            found = tree.reduce(self.x[chosen, :length], made, dtype=types.result_dtype, axis=1, second=second)
            each = list(found) if operator.results > 1 else [found]
            if results is None:
                results = [np.empty(self.count, one.dtype) for one in each]
            for whole, one in zip(results, each, strict=True):
                whole[chosen] = one
        return results if results is not None else [np.empty(0, types.result_dtype)] * operator.results

    def _of_terms(self, operator: Reduction, name: str, chosen: Array) -> Reduction:
        """Return the operator over terms in place of the elements; `chosen` rows are reduced, all at once."""
        terms, v = self.meaning.terms[name], self.v
        within = element_type(self.number)

        def map_(items: Items, types: Types) -> Fields:
            own = SimpleNamespace(**vars(v))
            index = items.index.astype(np.int64)
            own.x, own.i = v.x[chosen][:, index], index[None, :]
            own.y = None if v.y is None else v.y[chosen][:, index]
            for each in self.operation.columns:
                setattr(own, each, getattr(v, each)[:, index])
            for each in (*self.operation.rows, *self.operation.before, "row", "length"):
                setattr(own, each, getattr(v, each)[chosen])
            values = np.broadcast_to(np.asarray(terms(own), self.number), items.x.shape)
            return operator.map(items.where(x=values, y=None), types._replace(element=within))

        return replace(
            operator,
            map=map_,
            identity=lambda types: operator.identity(types._replace(element=within)),
            finish=lambda fields, row, types: operator.finish(fields, row, types._replace(element=within)),
        )


def _wide(dtype: np.dtype[Any]) -> Any:
    return np.float64 if dtype == np.float64 else np.float32

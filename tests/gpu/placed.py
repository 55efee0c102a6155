"""Arrays placed in device memory as they lie on the host, reduced there by a plan, and compared with the tree."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.operators.base import Reduction, Types
from lowlevel_reduce.plans.array import Plan
from lowlevel_reduce.strategy import columns
from lowlevel_reduce.strategy.base import RowStrategy, Task
from lowlevel_reduce.strategy.whole import HEADER_BYTES

Array = npt.NDArray[Any]

POISON = 0xA5


def values(dtype: npt.DTypeLike, shape: int | tuple[int, ...], seed: int = 0) -> Array:
    """Return values whose sum depends on the order of the additions; what a mask is made of, for bool."""
    rng = np.random.default_rng(seed)
    dtype = element_type(dtype).dtype
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return np.asarray(rng.integers(limits.min, limits.max, shape, dtype, endpoint=True))
    if dtype.kind == "b":
        return rng.integers(0, 2, shape, np.uint8).view(bool)
    scale = 2.0 ** rng.integers(-6, 5, shape)
    if dtype.kind == "c":
        return np.asarray((rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) * scale).astype(dtype)
    return np.asarray(rng.standard_normal(shape) * scale).astype(dtype)


class Strided:
    """A device array with strides, for `__cuda_array_interface__`."""

    def __init__(
        self,
        base: lr.DeviceArray,
        pointer: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: npt.DTypeLike,
    ) -> None:
        self.base = base
        self.__cuda_array_interface__ = {
            "shape": shape,
            "strides": strides,
            "typestr": np.dtype(dtype).str,
            "data": (pointer, False),
            "version": 3,
            "stream": base.stream.handle or 1,
        }


def span(array: Array) -> tuple[int, int]:
    """Return the bytes from an array's first element to its lowest one, and past its highest."""
    if array.size == 0:
        return 0, 0
    steps = [stride * (size - 1) for size, stride in zip(array.shape, array.strides, strict=True)]
    return sum(min(step, 0) for step in steps), sum(max(step, 0) for step in steps) + array.itemsize


@contextlib.contextmanager
def placed(array: Array, stream: lr.Stream, *, offset: int = 0) -> Iterator[int]:
    """Copy a host array to the device with its strides; give the address of its first element.

    The memory ends with the array, and starts `offset` bytes before it, which nothing ever writes, so that a driver
    that looks sees a byte too far on either side; what lies between the elements is poison.
    """
    low, high = span(array)
    host = np.full(high - low, POISON, np.uint8)
    if array.size:
        itemsize = array.itemsize
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, itemsize)
        places = np.zeros(array.shape, np.int64)
        for i, (size, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
            places += (np.arange(size) * stride).reshape([-1 if k == i else 1 for k in range(array.ndim)])
        host[(places.reshape(-1, 1) - low) + np.arange(itemsize)] = raw
    with lr.Buffer.allocate(max(offset + host.size, 1), stream.context) as memory:
        if host.size:
            lr.Buffer.from_pointer(memory.pointer + offset, host.size, context=stream.context).copy_from(
                host, stream=stream
            )
        yield memory.pointer + offset - low
        stream.synchronize()


def reduced(
    array: Array,
    op: str | Reduction = "sum",
    *,
    stream: lr.Stream,
    offset: int = 0,
    second: Array | None = None,
    second_offset: int = 0,
    where: bool | None = None,
    initial: Any = None,
    lengths: Iterable[int] | None = None,
    repeat: int = 1,
    **options: Any,
) -> Any:
    """Reduce an array as it lies, by a plan; return its results as one array each, two for two of them.

    `second` is broadcast to the array, and `second_offset` what `offset` is to that; `where` tells whether it is a
    mask, by default unless `op` is dot. With `lengths`, the results for each of these lengths, which the device reads
    from its memory, are returned in a list: all from one graph, which is replayed. The workspace must be left as empty
    as it was given: what a launch leaves there, the next one meets.
    """
    if second is not None:
        second = np.broadcast_to(second, array.shape)
    with contextlib.ExitStack() as stack:
        plan = stack.enter_context(
            lr.plan(
                op,
                shape=array.shape,
                dtype=array.dtype,
                strides_bytes=array.strides,
                second_strides_bytes=None if second is None else second.strides,
                initial=initial is not None,
                where=second is not None and op != "dot" if where is None else where,
                context=stream.context,
                **options,
            )
        )
        source = stack.enter_context(placed(array, stream, offset=offset))
        other = () if second is None else (stack.enter_context(placed(second, stream, offset=second_offset)),)
        shape = (plan.results, *plan.result_shape)
        out = np.empty(shape, plan.result_dtype)
        memory = stack.enter_context(lr.Buffer.allocate(max(out.nbytes, 1), stream.context))
        workspace = None
        if plan.has_workspace:
            workspace = stack.enter_context(lr.Buffer.allocate(plan.workspace_bytes, stream.context))
            workspace.fill(0, stream=stream)  # of which a launch by a length may use and clear but a part
        if lengths is None:
            launch = plan.bind(stream, workspace, initial=initial)
            stack.callback(launch.close)
            for _ in range(repeat):  # a second launch meets the workspace as the first one left it
                memory.fill(POISON, stream=stream)
                launch(source, memory.pointer, *other)
            results = _results(plan, memory, out, stream)
            _check_is_empty(workspace, stream)
            return results
        length = stack.enter_context(lr.Buffer.allocate(8, stream.context))
        launch = plan.bind(stream, workspace, initial=initial, length=length.pointer)
        stack.callback(launch.close)
        with lr.Graph.capture(stream) as graph:
            launch(source, memory.pointer, *other)
        found = []
        with graph.instantiate() as executable:
            for each in lengths:
                length.copy_from(np.array([each], np.uint64), stream=stream)
                memory.fill(POISON, stream=stream)
                executable.launch(stream)
                found.append(_results(plan, memory, out.copy(), stream))
                _check_is_empty(workspace, stream)
        return found


def _results(plan: Plan, memory: lr.Buffer, out: Array, stream: lr.Stream) -> Array | tuple[Array, ...]:
    if out.nbytes:
        memory.copy_to(out, stream=stream, size_bytes=out.nbytes)
    stream.synchronize()
    return out[0] if plan.results == 1 else tuple(out)


def _check_is_empty(workspace: lr.Buffer | None, stream: lr.Stream) -> None:
    """Check that no slot of a workspace holds a partial; the grid barrier before them has a bit that each use flips."""
    if workspace is not None:
        found = np.empty(workspace.size_bytes, np.uint8)
        workspace.copy_to(found, stream=stream)
        stream.synchronize()
        assert not found[HEADER_BYTES:].any(), "the launch left something in its workspace"


def assert_same(actual: Any, expected: Any, what: str = "") -> None:
    """Compare results of one or more arrays bit for bit; say where they first differ."""
    if not isinstance(expected, tuple):
        actual, expected = (actual,), (expected,)
    assert len(actual) == len(expected)
    for mine, theirs in zip(actual, map(np.asarray, expected), strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype), what
        if mine.tobytes() != theirs.tobytes():
            one, other = mine.reshape(-1), theirs.reshape(-1)
            first = next(i for i in range(one.size) if one[i].tobytes() != other[i].tobytes())
            place = np.unravel_index(first, mine.shape)
            raise AssertionError(f"{what}: at {place} {one[first]!r} is not {other[first]!r}")


def assert_near(actual: Any, expected: Any, reduction: Reduction, length: int, types: Types, what: str = "") -> None:
    """Compare bit for bit where an operator is exact, else within the bound that it states."""
    if reduction.exact:
        assert_same(actual, expected, what)
        return
    if not isinstance(expected, tuple):
        actual, expected = (actual,), (expected,)
    for mine, theirs in zip(actual, map(np.asarray, expected), strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype), what
        bound = reduction.tolerance(theirs, length, types)
        one, other = mine.astype(np.float64), theirs.astype(np.float64)
        with np.errstate(invalid="ignore"):
            near = (np.abs(one - other) <= bound) | (one == other) | (np.isnan(one) & np.isnan(other))
        assert near.all(), f"{what}: {one[~near][:3]} is not within {bound[~near][:3]} of {other[~near][:3]}"


def prefer_way(monkeypatch: pytest.MonkeyPatch, key: Callable[[columns.Way, columns.Columns], Any]) -> None:
    """Cut columns in the way for which `key(way, of)` is the least, instead of the fastest (`columns.cost`)."""

    def choose(task: Task) -> RowStrategy:
        return columns.strategy_of(*min(_ways(task), key=lambda each: key(*each)))

    monkeypatch.setattr(columns, "choose_columns", choose)


def _ways(task: Task) -> Iterator[tuple[columns.Way, columns.Columns]]:
    """Yield all ways to cut columns, and those in which a block folds few partials, as it does if there are more."""
    few_rows = task.problem.rows <= columns.MOST_FOLDERS
    for way, of in columns.ways(task):
        yield way, of
        if way.folded_by == "warps" and way.parts > 8 and few_rows and of.resident > 2:
            yield way._replace(folded_by="blocks"), of

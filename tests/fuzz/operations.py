"""The operations that are disturbed: each goes through one path of the library, and has one right result."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

import lowlevel_reduce as lr
from lowlevel_reduce.calls import threads
from lowlevel_reduce.driver import Buffer, Context, Event, Graph, Stream
from tests.fuzz.worlds import World

__all__ = ["OPERATIONS", "Operation"]

Operation = Callable[[World], bytes]

_RNG = np.random.default_rng(23)
LINE = _RNG.standard_normal(600).astype(np.float32)
TABLE = _RNG.standard_normal((6, 10)).astype(np.float32)
WHOLE = _RNG.integers(-1000, 1000, 300).astype(np.int32)
OFFSETS = np.array([0, 7, 7, 300, 600], np.int64)
SHARDS = _RNG.standard_normal((2, 1024)).astype(np.float32)
MASK = _RNG.random(LINE.shape) < 0.5


def allocate_and_free(world: World) -> bytes:
    """Memory of each kind, filled and copied."""
    found = np.zeros(512, np.uint8)
    with Buffer.allocate(512, world.context) as plain, Buffer.allocate_async(512, world.stream) as ordered:
        with Buffer.pinned(512, world.context) as pinned:
            plain.fill(7)
            ordered.copy_from(plain, stream=world.stream)
            pinned.copy_from(ordered, stream=world.stream)
            world.stream.synchronize()
            pinned.copy_to(found)
    return found.tobytes()


def sum_of_numpy(world: World) -> bytes:
    """A one-shot call of an array on the host, and its value."""
    return _bytes(lr.sum(LINE, stream=world.stream))


def sum_of_device_array(world: World) -> bytes:
    """The first call, the second one, which is another path, and one into memory of the caller's."""
    stream = world.stream
    x, out = lr.DeviceArray.from_numpy(LINE, stream), lr.DeviceArray.empty((), "float32", stream)
    first, second = lr.sum(x, stream=stream), lr.sum(x, stream=stream)
    return _bytes(first, second, lr.sum(x, stream=stream, out=out))


def rows(world: World) -> bytes:
    """A sum of each row."""
    x = lr.DeviceArray.from_numpy(TABLE, world.stream)
    return _bytes(lr.sum(x, axis=1, stream=world.stream))


def columns(world: World) -> bytes:
    """Two results of each column."""
    x = lr.DeviceArray.from_numpy(TABLE, world.stream)
    return _bytes(*lr.minmax(x, axis=0, stream=world.stream))


def moments(world: World) -> bytes:
    """Mean and variance in one pass."""
    x = lr.DeviceArray.from_numpy(LINE, world.stream)
    return _bytes(*lr.mean_var(x, stream=world.stream))


def mask_and_initial(world: World) -> bytes:
    """A second array, and a value to begin with."""
    stream = world.stream
    x, mask = lr.DeviceArray.from_numpy(LINE, stream), lr.DeviceArray.from_numpy(MASK, stream)
    return _bytes(lr.sum(x, where=mask, initial=2.0, stream=stream))


def segments(world: World) -> bytes:
    """Segments of CSR offsets."""
    stream = world.stream
    values, offsets = lr.DeviceArray.from_numpy(LINE, stream), lr.DeviceArray.from_numpy(OFFSETS, stream)
    return _bytes(lr.segmented_reduce(values, offsets, "sum", stream=stream))


def plan_and_launch(world: World) -> bytes:
    """A plan with a workspace, bound, launched twice and closed."""
    stream, context = world.stream, world.context
    value = np.empty((), np.int64)
    with lr.plan("sum", shape=WHOLE.shape, dtype="int32", context=context, strategy="tiles") as plan:
        source = lr.DeviceArray.from_numpy(WHOLE, stream)
        with Buffer.allocate(plan.result_dtype.itemsize, context) as result:
            bound = plan.bind(stream)
            try:
                bound(source.pointer, result.pointer)
                bound(source.pointer, result.pointer)
                result.copy_to(value, stream=stream)
                stream.synchronize()
            finally:
                bound.close()
    return value.tobytes()


def graph(world: World) -> bytes:
    """A launch that is captured, and launched as a graph."""
    stream = world.stream
    with lr.plan("max", shape=LINE.shape, dtype="float32", context=world.context) as plan:
        x, result = lr.DeviceArray.from_numpy(LINE, stream), lr.DeviceArray.empty((), "float32", stream)
        bound = plan.bind(stream)
        try:
            with Graph.capture(stream) as captured:
                bound(x.pointer, result.pointer)
            with captured, captured.instantiate() as executable:
                executable.launch(stream)
                return _bytes(result)
        finally:
            bound.close()


def partials_and_combine(world: World) -> bytes:
    """An array in chunks, and the fold of their partials."""
    stream, whole = world.stream, SHARDS.reshape(-1)
    x = lr.DeviceArray.from_numpy(whole, stream)
    parts = lr.partials(x, "sum", chunk=1024, stream=stream)
    return _bytes(
        lr.combine_partials(parts, "sum", length=whole.size, chunk=1024, dtype="float32", stream=stream),
    )


def shards(world: World) -> bytes:
    """One array on two devices: the first call, and the repeated one, which is another path."""
    try:
        with Stream.create(world.beside) as there:
            streams = (world.stream, there)
            arrays = [lr.DeviceArray.from_numpy(part, each) for part, each in zip(SHARDS, streams, strict=True)]
            return _bytes(lr.reduce_shards(arrays), lr.reduce_shards(arrays))
    finally:
        threads.here().forget()  # else what was kept in a stream that is closed goes with the next call's


def contexts(world: World) -> bytes:
    """Contexts made and destroyed, of each kind, with things in them."""
    del world
    found = b""
    makers: tuple[Callable[[], Context], ...] = (
        lambda: Context.create(0),
        lambda: Context.primary(1),
        lambda: Context.green(0, 8),
    )
    for make in makers:
        with make() as context, context.pushed(), Stream.create(context) as stream, Event.create(context) as event:
            event.record(stream)
            stream.wait(event)
            with Buffer.allocate(64, context) as memory:
                memory.fill(3, stream=stream)
                host = np.empty(64, np.uint8)
                memory.copy_to(host, stream=stream)
                stream.synchronize()
                found += host.tobytes()
    return found


def _bytes(*results: Any) -> bytes:
    return b"".join(result.numpy().tobytes() for result in results)


def _tree(*values: Any) -> bytes:
    return b"".join(np.asarray(value).tobytes() for value in values)


_SUM = _tree(lr.tree.reduce(LINE))

OPERATIONS: dict[Operation, bytes] = {
    allocate_and_free: bytes([7]) * 512,
    sum_of_numpy: _SUM,
    sum_of_device_array: _SUM * 3,
    rows: _tree(lr.tree.reduce(TABLE, axis=1)),
    columns: _tree(*lr.tree.reduce(TABLE, "minmax", axis=0)),
    moments: _tree(*lr.tree.reduce(LINE, "mean_var")),
    mask_and_initial: _tree(lr.tree.reduce(LINE, where=MASK, initial=2.0)),
    segments: _tree(*(lr.tree.reduce(LINE[a:b]) for a, b in itertools.pairwise(OFFSETS))),
    plan_and_launch: _tree(lr.tree.reduce(WHOLE)),
    graph: _tree(lr.tree.reduce(LINE, "max")),
    partials_and_combine: _tree(lr.tree.reduce(SHARDS.ravel())),
    shards: _tree(lr.tree.reduce(SHARDS.ravel())) * 2,
    contexts: bytes([3]) * 192,
}
"""Each operation, and the bytes that it returns."""

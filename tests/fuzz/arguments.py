"""Public functions and constructors with a bad value in one argument."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from lowlevel_reduce.driver import Library, MemoryPool
from lowlevel_reduce.operators import ElementMap, NumpyMeaning
from lowlevel_reduce.simulator.machine.control.faults import KernelFault
from tests.fuzz.calls import call
from tests.fuzz.tally import Tally
from tests.fuzz.values import Text, bad

__all__ = ["fuzz_arguments"]

_X = np.arange(24, dtype=np.float32)


class _Call(NamedTuple):
    """A function, arguments that it takes, and those that are made bad, each with words of which its error has one."""

    function: Callable[..., Any]
    good: dict[str, Any]
    bad: dict[str, list[str]]
    closes: bool = False


_CODE = ("map",)
"""Arguments whose text is code, which is for others to fuzz."""

_ARRAY = [
    "array",
    "reduced",
    "type",
    "shape",
    "host",
    "masked",
    "broadcast",
    "Python's objects",
    "scalar",
    "dimension",
    "goes with",
]
_DTYPE = ["type", "result", "byte order", "reduced", "accumula", "a chunk of", "Python's objects"]
_COMMON = {
    "op": ["operator"],
    "stream": ["stream", "__cuda_stream__"],
    "nan": ["nan"],
    "last": ["last"],
    "map": ["map"],
    "allocator": ["allocator"],
}
_WHOLE = {
    **_COMMON,
    "x": _ARRAY,
    "axis": ["axis", "axes"],
    "keepdims": ["keepdims"],
    "dtype": _DTYPE,
    "accumulate": ["accumulat"],
    "out": ["out ", *_ARRAY],
    "where": ["mask", "where", *_ARRAY],
    "initial": ["initial", "masked"],
    "second": ["second", *_ARRAY],
    "ddof": ["ddof"],
    "strategy": ["strategy", "strategies"],
}


def _without(words: dict[str, list[str]], *names: str) -> dict[str, list[str]]:
    return {name: value for name, value in words.items() if name not in names}


def _calls(context: lr.Context, stream: lr.Stream, result: lr.DeviceArray) -> dict[str, _Call]:
    x = lr.DeviceArray.from_numpy(_X, stream)
    words = lr.partials(x, chunk=1024)
    offsets = lr.DeviceArray.from_numpy(np.array([0, 4, 24]), stream)
    buffer = lr.Buffer.allocate(96, context)
    launch = lr.plan("sum", shape=24, dtype="float32", context=context).bind(stream)
    event, other = lr.Event.create(context), lr.Event.create(context)
    chunked = {"length": 24, "chunk": 1024, "dtype": "float32"}
    operator = {"name": "mine", "accumulator": "float64", "identity": "0.0", "map": "x", "combine": "a + b"}
    number = ["integer", "int,", "int ", "0 or more", "not "]
    handle: dict[str, Any] = {"handle": 0x1000, "owner": None}
    about_handle = {"handle": ["handle"], "context": ["context"]}
    calls = {
        "reduce": _Call(lr.reduce, {"x": x, "op": "sum"}, _WHOLE),
        "partials": _Call(
            lr.partials,
            {"x": x, "chunk": 1024},
            {
                **_COMMON,
                "x": ["a chunk of", *_ARRAY],
                "chunk": ["chunk"],
                "accumulate": ["accumulat"],
                "where": ["mask", *_ARRAY],
                "second": ["second", *_ARRAY],
                "first": ["first", *_ARRAY],
            },
        ),
        "combine_partials": _Call(
            lr.combine_partials,
            {"partials": words, **chunked},
            {
                **_COMMON,
                "partials": ["partials", *_ARRAY],
                "length": ["length", "bytes", "elements"],
                "chunk": ["chunk"],
                "dtype": _DTYPE,
                "result_dtype": _DTYPE,
                "accumulate": ["accumulat", "partials"],
                "first": ["first", *_ARRAY],
                "initial": ["initial", "masked"],
                "ddof": ["ddof"],
                "out": ["out ", *_ARRAY],
                "where": ["where"],
            },
        ),
        "reduce_shards": _Call(
            lr.reduce_shards,
            {"shards": [x]},
            {
                **_without(_COMMON, "stream", "allocator"),
                "shards": ["shard", *_ARRAY],
                "streams": ["stream"],
                "dtype": _DTYPE,
                "accumulate": ["accumulat"],
                "where": ["mask", "where", "arrays that go with", *_ARRAY],
                "second": ["second", "arrays that go with", *_ARRAY],
                "initial": ["initial", "masked"],
                "ddof": ["ddof"],
            },
        ),
        "segmented_reduce": _Call(
            lr.segmented_reduce,
            {"x": x, "offsets": offsets},
            {
                **_without(_WHOLE, "axis", "keepdims", "where", "second", "strategy"),
                "offsets": ["offsets", *_ARRAY],
                "check": ["check"],
            },
        ),
        "shard_lengths": _Call(
            lr.shard_lengths,
            {"length": 5000, "dtype": "float32", "shards": 2},
            {"length": ["length", "bytes"], "dtype": _DTYPE, "shards": ["shards"], "chunk": ["chunk"]},
        ),
        "chunk_elements": _Call(
            lr.chunk_elements, {"length": 5, "dtype": "int8"}, {"length": ["length", "bytes"], "dtype": _DTYPE}
        ),
        "plan": _Call(
            lr.plan,
            {"op": "sum", "shape": (4, 6), "dtype": "float32", "context": context},
            {
                **_without(_COMMON, "stream", "allocator"),
                "shape": ["shape", "axes", "strides"],
                "dtype": _DTYPE,
                "axis": ["axis", "axes"],
                "strides_bytes": ["strides"],
                "accumulate": ["accumulat"],
                "result_dtype": _DTYPE,
                "context": ["context"],
                "strategy": ["strategy", "strategies"],
                "cluster": ["cluster"],
                "block_threads": ["block", "threads"],
                "ddof": ["ddof"],
                "where": ["where", "mask"],
                "initial": ["initial"],
            },
        ),
        "segmented_plan": _Call(
            lr.segmented_plan,
            {"length": 24, "segments": 2, "dtype": "float32", "context": context},
            {
                **_without(_COMMON, "stream", "allocator"),
                "length": ["length", "bytes"],
                "segments": ["segments", "bytes"],
                "dtype": _DTYPE,
                "offsets_dtype": ["offsets", "type"],
                "accumulate": ["accumulat"],
                "result_dtype": _DTYPE,
                "context": ["context"],
            },
        ),
        "combine_plan": _Call(
            lr.combine_plan,
            {**chunked, "context": context},
            {
                **_without(_COMMON, "stream", "allocator"),
                "length": ["length", "bytes", "elements"],
                "chunk": ["chunk"],
                "dtype": _DTYPE,
                "context": ["context"],
            },
        ),
        "launch": _Call(
            launch,
            {"source": x.pointer, "result": result.pointer},
            {"source": ["source", "address"], "result": ["result", "address"], "second": ["one array"]},
        ),
        "launch.check": _Call(
            launch.check,
            {"source": x.pointer, "result": result.pointer},
            {"source": ["address", "input"], "result": ["address", "result"], "second": ["one array"]},
        ),
        "Operator": _Call(
            lr.Operator,
            operator,
            {
                "accumulator": ["accumulator"],
                "result": ["result", "type"],
                "results": ["results"],
                "numpy": ["numpy", "NumPy"],
                "second": ["second"],
                "result_names": ["result", "name"],
            },
        ),
        "ElementMap": _Call(ElementMap, {"source": "x"}, {"numpy": ["NumPy", "numpy"]}),
        "NumpyMeaning": _Call(NumpyMeaning, {"map": abs, "combine": max}, {}),
        "Stream.create": _Call(
            lr.Stream.create, {"context": context}, {"context": ["context"], "priority": ["priority"]}
        ),
        "Stream.from_handle": _Call(lr.Stream.from_handle, handle, about_handle),
        "Stream.of": _Call(lr.Stream.of, {"obj": stream}, {"obj": ["stream"]}),
        "Stream.wait": _Call(stream.wait, {"event": event}, {"event": ["event", "Event", "stream waits"]}),
        "Stream.record": _Call(stream.record, {"event": event}, {"event": ["recorded", "event", "Event"]}),
        "Stream.follow": _Call(stream.follow, {"other": stream}, {"other": ["stream"]}),
        "Event.create": _Call(lr.Event.create, {"context": context}, {"context": ["context"]}),
        "Event.from_handle": _Call(lr.Event.from_handle, handle, about_handle),
        "Event.record": _Call(event.record, {"stream": stream}, {"stream": ["stream"]}),
        "Event.elapsed_ms": _Call(event.elapsed_ms, {"since": other}, {"since": ["measured from"]}),
        "Context.create": _Call(lr.Context.create, {"device": 0}, {"device": ["device"], "flags": ["flags"]}, True),
        "Context.green": _Call(
            lr.Context.green, {"device": 0, "sm_count": 8}, {"device": ["device"], "sm_count": number}, True
        ),
        "Context.primary": _Call(lr.Context.primary, {"device": 0}, {"device": ["device"]}, True),
        "Context.from_handle": _Call(lr.Context.from_handle, handle, {"handle": ["handle"]}),
        "Device": _Call(lr.Device, {"ordinal": 0}, {"ordinal": ["device"]}),
        "Device.attribute": _Call(lr.Device(0).attribute, {"name": "clock_rate"}, {"name": ["attribute"]}),
        "MemoryPool.from_handle": _Call(MemoryPool.from_handle, handle, {"handle": ["handle"], "device": ["device"]}),
        "Library.load": _Call(Library.load, {"cubin": b"\x7fELF"}, {"cubin": ["cubin"], "name": ["name"]}),
        "Allocator": _Call(lr.Allocator, {"alloc": len, "free": len}, {"alloc": ["alloc"], "free": ["free"]}),
        "DeviceArray": _Call(
            lr.DeviceArray,
            {"buffer": buffer, "dtype": "float32", "shape": 24, "stream": stream},
            {"buffer": ["memory"], "dtype": [*_DTYPE, "needs"], "shape": ["shape", "needs"], "stream": ["stream"]},
        ),
        "DeviceArray.empty": _Call(
            lr.DeviceArray.empty,
            {"shape": (4,), "dtype": "float32", "stream": stream},
            {"shape": ["shape"], "dtype": _DTYPE, "stream": ["stream"], "allocator": ["allocator"]},
        ),
        "DeviceArray.from_numpy": _Call(
            lr.DeviceArray.from_numpy, {"array": _X, "stream": stream}, {"array": _ARRAY, "stream": ["stream"]}
        ),
        "DeviceArray.plane": _Call(x.plane, {"index": 0}, {"index": ["plane"]}),
        "DeviceArray.__array__": _Call(x.__array__, {}, {"dtype": _DTYPE}),
        "DeviceArray.__dlpack__": _Call(
            x.__dlpack__,
            {},
            {"stream": ["stream"], "max_version": ["max_version"], "dl_device": ["dl_device"], "copy": []},
        ),
        "Buffer.allocate": _Call(
            lr.Buffer.allocate,
            {"size_bytes": 16, "context": context},
            {"size_bytes": ["size_bytes"], "context": ["context"]},
        ),
        "Buffer.pinned": _Call(lr.Buffer.pinned, {"size_bytes": 16}, {"size_bytes": ["size_bytes"]}),
        "Buffer.allocate_async": _Call(
            lr.Buffer.allocate_async,
            {"size_bytes": 16, "stream": stream},
            {"size_bytes": ["size_bytes"], "stream": ["stream"], "pool": ["pool"]},
        ),
        "Buffer.from_pointer": _Call(
            lr.Buffer.from_pointer,
            {"pointer": 0x1000, "size_bytes": 16},
            {"pointer": ["address"], "size_bytes": ["size_bytes", "address"], "context": ["context"], "kind": ["kind"]},
        ),
        "Buffer.fill": _Call(buffer.fill, {"byte": 0}, {"byte": ["byte"], "stream": ["stream"]}),
        "Buffer.copy_from": _Call(
            buffer.copy_from,
            {"source": _X},
            {
                "source": ["source", "bytes-like", "contiguous"],
                "stream": ["stream"],
                "size_bytes": ["size_bytes", "bytes"],
            },
        ),
        "Buffer.copy_to": _Call(
            buffer.copy_to,
            {"destination": np.empty(24, np.float32)},
            {"destination": ["destination", "bytes-like", "contiguous"], "size_bytes": ["size_bytes", "bytes"]},
        ),
    }
    more = {"y": ["second", *_ARRAY], "ord": ["ord", "norm"], "correction": ["ddof"], **_without(_WHOLE, "op")}
    for name in lr.functions.__all__:
        function = getattr(lr, name)
        bad = {option: more[option] for option in inspect.signature(function).parameters}
        calls[name] = _Call(function, {"x": x, "y": x} if name == "dot" else {"x": x}, bad)
    return calls


@contextmanager
def _world() -> Iterator[dict[str, _Call]]:
    with simulator.use("H200"), lr.Context.primary(0) as context, context.pushed():
        stream = lr.Stream.legacy(context)
        result = lr.DeviceArray.empty((1,), "float32", stream)  # of which the calls have the address alone
        yield _calls(context, stream, result)


def fuzz_arguments(seed: int, count: int) -> Tally:
    """Make so many calls with one bad value each, on a simulated device; kernels are compiled or found."""
    rng, tally = random.Random(seed), Tally("bad arguments of public functions", seed)
    with _world() as calls:
        for _ in range(count):
            name, made = rng.choice([(name, made) for name, made in calls.items() if made.bad])
            argument = rng.choice([*made.bad])
            value = bad(rng)
            if argument in _CODE and isinstance(value, Text):
                continue
            given = {**made.good, argument: value}

            def make(made: _Call = made, given: dict[str, Any] = given) -> None:
                result = made.function(**given)
                if made.closes:
                    result.close()

            words = f"{name}({argument}={_shown(value)})"
            call(tally, words, make, words=made.bad[argument], allowed=_allowed(name))
    return tally


def _allowed(name: str) -> tuple[type[Exception], ...]:
    if name == "DeviceArray.plane":  # as of a sequence
        return (IndexError,)
    if name == "Buffer.pinned":  # of the simulated driver, for which that is this process's own memory
        return (MemoryError,)
    if name == "launch":  # whose addresses nobody checks
        return (KernelFault,)
    return (BufferError,) if name == "DeviceArray.__dlpack__" else ()


def _shown(value: Any) -> str:
    try:
        return repr(value)[:60]
    except RecursionError:
        return "deeply nested"

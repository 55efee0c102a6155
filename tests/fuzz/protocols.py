"""Producers of arrays and streams that lie by their protocols, or break them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from tests.fuzz.calls import OwnError, call
from tests.fuzz.capsules import FLOAT, Versioned, axes, capsule_of, tensor_of
from tests.fuzz.tally import Tally

__all__ = ["ByCapsule", "device", "fuzz_protocols", "raising", "uses"]

_N = 24
_X = np.arange(_N, dtype=np.float32)
_TOTAL = float(_X.sum())

MISSING = object()
"""In place of a field that is not there."""


def raising(kind: type[Exception]) -> Callable[..., Any]:
    """Return a function that raises an error of a kind, in words that name nothing."""

    def function(*_: Any, **__: Any) -> Any:
        raise kind("not today")

    return function


_RAISING = [raising(kind) for kind in (OwnError, TypeError, ValueError)]
_RAISING_ANYTHING = [*_RAISING, *map(raising, (KeyError, AttributeError, AssertionError, OverflowError, BufferError))]


class _Index:
    """An integer of a class of its own, or one that refuses."""

    def __init__(self, value: int | None) -> None:
        self.value = value

    def __index__(self) -> int:
        if self.value is None:
            raise OwnError
        return self.value


_NUMBERS = [-1, 0, 1, 3, _N, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**200, -(2**63), -(2**64)]
_OTHERS: list[Any] = [
    *(None, True, False, 1.5, float("nan"), "", "x", "\0", "\ud800", b"", b"x", [], (), {}, set(), object(), type),
    *(1j, np.float32(1), np.int8(1), np.zeros(0), np.zeros((2, 2)), range(3), _Index(1), _Index(None), lambda: 1),
]


def _bad(rng: random.Random) -> Any:
    """Return what hardly any field may hold."""
    kind = rng.randrange(4)
    if kind == 0:
        return rng.choice(_NUMBERS)
    if kind == 1:
        return rng.choice(_OTHERS)
    if kind == 2:
        return tuple(rng.choice([*_NUMBERS, *_OTHERS]) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 70])))
    return [rng.choice(_NUMBERS) for _ in range(rng.choice([1, 2, 3]))]


_FIELDS = ("shape", "typestr", "data", "version", "strides", "stream", "mask")
_TYPES = ["<f4", ">f4", "<f8", "|b1", "<i8", "|O", "|V4", "<U3", "<f3", "f4,f4", "(2,f4", "", "\0", "<M8[s]", "|S4"]


def _interface(rng: random.Random, x: lr.DeviceArray) -> tuple[str, Any]:
    """Return an object with an interface of which one field or two are wrong, and what is wrong in words."""
    told: Any = {**x.__cuda_array_interface__, "mask": None}
    changed = []
    for name in rng.sample(_FIELDS, rng.choice([1, 1, 2])):
        value = MISSING if rng.random() < 0.15 else _bad(rng)
        if name == "typestr" and rng.random() < 0.6:
            value = rng.choice(_TYPES)
        if name == "data" and rng.random() < 0.5:
            value = (rng.choice([*_NUMBERS, *_OTHERS]), rng.choice([True, False, 1, None, "x"]))
        changed.append(f"{name}={'missing' if value is MISSING else repr(value)[:80]}")
        if value is MISSING:
            told.pop(name)
        else:
            told[name] = value
    if rng.random() < 0.1:
        told, changed = rng.choice([_bad(rng), property(rng.choice(_RAISING_ANYTHING))]), ["no interface"]
    kind = type("ByInterface", (), {"__cuda_array_interface__": told})
    return f"interface {', '.join(changed)}", kind()


class ByCapsule:
    """An array by DLPack, made by hand."""

    def __init__(self, x: lr.DeviceArray) -> None:
        self.x = x
        self.tensor: Any = tensor_of(x.pointer, (_N,))
        self.name = b"dltensor"
        self.device: Any = (2, 0)
        self.returned: Any = MISSING

    def __dlpack_device__(self) -> Any:
        return self.device() if callable(self.device) else self.device

    def __dlpack__(self, **options: Any) -> Any:
        if callable(self.returned):
            return self.returned()
        return capsule_of(self.tensor, self.name) if self.returned is MISSING else self.returned


def _capsule(rng: random.Random, x: lr.DeviceArray) -> tuple[str, ByCapsule]:
    """Return an array by DLPack of which one thing is wrong, and what in words."""
    made = ByCapsule(x)
    what = rng.choice(["nothing", "return", "name", "device", "tensor", "tensor", "tensor", "version", "function"])
    words = what
    if what == "return":
        made.returned = rng.choice([_bad(rng), rng.choice(_RAISING_ANYTHING)])
        words = f"returns {repr(made.returned)[:80]}"
    elif what == "name":
        made.name = rng.choice([b"used_dltensor", b"", b"x", b"dltensor_", b"arrow_array"])
    elif what == "device":
        bad = (rng.choice([2, 13, 1, 77, *_NUMBERS]), rng.choice(_NUMBERS))
        made.device = rng.choice([_bad(rng), bad, rng.choice(_RAISING_ANYTHING)])
        words = f"device {repr(made.device)[:80]}"
    elif what == "tensor":
        words = _change(rng, made.tensor)
    elif what == "version":
        made.name = b"dltensor_versioned"
        major = rng.choice([0, 1, 2, 3, 2**31, 2**32 - 1])
        flags = rng.choice([0, 0, 1, 2, 2**63])
        made.tensor = Versioned(
            major, 0, None, type(made.tensor.deleter)(), flags, x.pointer, (2, 0), 1, FLOAT, 32, 1, axes((_N,)), None, 0
        )
        words = f"version {major} flags {flags}"
    elif what == "function":
        member = rng.choice(["__dlpack__", "__dlpack_device__"])
        value = rng.choice([None, 5, "x", MISSING, property(rng.choice(_RAISING_ANYTHING))])
        kind: Any = type("ByCapsule", (), {"x": x, "device": (2, 0), **({} if value is MISSING else {member: value})})
        other = "__dlpack__" if member == "__dlpack_device__" else "__dlpack_device__"
        setattr(kind, other, getattr(ByCapsule, other))
        return f"{member} is {'missing' if value is MISSING else value!r}", kind()
    return f"capsule {words}", made


def _change(rng: random.Random, tensor: Any) -> str:
    name = rng.choice(["data", "device", "ndim", "code", "bits", "lanes", "shape", "strides", "byte_offset"])
    value: Any
    if name == "data":
        value = rng.choice([None, 1, 2**47, 2**63, 2**64 - 1])
    elif name == "device":
        value = (rng.choice([0, 1, 2, 3, 13, 77, -1, 2**31 - 1]), rng.choice([-1, 0, 1, 2**31 - 1]))
        tensor.device[:] = value
        return f"{name}={value}"
    elif name == "ndim":
        value = rng.choice([-(2**31), -1, 0, 65, 2**31 - 1])
    elif name in ("shape", "strides"):
        value = rng.choice([None, *_NUMBERS])
        fits = None if value is None else axes((max(-(2**63), min(value, 2**63 - 1)),))
        setattr(tensor, name, fits)
        return f"{name}={value}"
    else:
        value = rng.choice(
            [0, 1, 2, 3, 4, 5, 7, 8, 16, 32, 64, 77, 255] + ([2**63, 2**64 - 1] * (name == "byte_offset"))
        )
    setattr(tensor, name, value)
    return f"{name}={value}"


def _stream(rng: random.Random) -> tuple[str, Any]:
    """Return an object that is asked for its stream and does not give one, and what it gives in words."""
    handle = rng.choice([*_NUMBERS[:1], *_NUMBERS[-6:], *_OTHERS])
    given = rng.choice([_bad(rng), (0, handle), (0, handle), (rng.choice([1, 2, None, "0", True, -1]), 1), MISSING])
    if given is MISSING:
        raises = rng.choice(_RAISING)
        member: Any = rng.choice([None, 5, "x", raises, property(raises)])
    else:
        member = lambda self: given  # noqa: E731 - a method of a class that is made here
    kind = type("ByStream", (), {"__cuda_stream__": member})
    return f"stream {repr(given)[:80]}", kind()


def fuzz_protocols(seed: int, count: int) -> Tally:
    """Hand so many producers to the public functions, on a simulated device; kernels are compiled or found."""
    rng, tally = random.Random(seed), Tally("arrays and streams that lie by their protocols", seed)
    with device() as x:
        ways = uses(x)
        for _ in range(count):
            _one(rng, tally, x, ways)
    return tally


@contextmanager
def device() -> Iterator[lr.DeviceArray]:
    """Yield an array on a simulated device, in whose memory producers may lie."""
    with simulator.use("H200"), lr.Context.primary(0) as context, context.pushed():
        yield lr.DeviceArray.from_numpy(_X, lr.Stream.legacy(context))


class _Alone:
    """A group of one rank."""

    rank, size = 0, 1

    def all_gather(self, message: bytes) -> list[bytes]:
        """Return the message of all ranks."""
        return [bytes(message)]


def uses(x: lr.DeviceArray) -> dict[str, Callable[[Any], Any]]:
    """Return functions that take an array beside `x`, or in its place, by the names of these ways."""
    offsets = np.array([0, 4, _N])
    words = lr.partials(x, chunk=1024)
    whole: dict[str, Any] = {"length": _N, "chunk": 1024, "dtype": "float32"}
    return {
        "sum": lr.sum,
        "out": lambda given: lr.sum(x, out=given),
        "where": lambda given: lr.sum(x, where=given),
        "second": lambda given: lr.dot(x, given),
        "segments": lambda given: lr.segmented_reduce(given, offsets),
        "offsets": lambda given: lr.segmented_reduce(x, given),
        "partials": lambda given: lr.partials(given, chunk=1024),
        "combine": lambda given: lr.combine_partials(given, **whole),
        "combine, out": lambda given: _restored(x, lambda: lr.combine_partials(words, out=given, **whole)),
        "shards": lambda given: lr.reduce_shards([given]),
        "shards, where": lambda given: lr.reduce_shards([x], where=[given]),
        "distributed": lambda given: lr.distributed.sum(given, _Alone(), length=_N),
        "rows": lr.softmax,
        "rows, out": lambda given: _restored(x, lambda: lr.softmax(x, out=given)),
        "rows, weight": lambda given: lr.rms_norm(x, given),
    }


def _restored(x: lr.DeviceArray, function: Callable[[], Any]) -> Any:
    """Call a function that may have written over an array, and give that its values back."""
    try:
        return function()
    finally:
        x._buffer.copy_from(_X)


def _one(rng: random.Random, tally: Tally, x: lr.DeviceArray, ways: dict[str, Callable[[Any], Any]]) -> None:
    kind = rng.choice(["interface", "capsule", "capsule", "stream"])
    if kind == "stream":
        words, producer = _stream(rng)
        call(tally, words, lambda: lr.sum(x, stream=producer), words=["ByStream", "bare integer"])
        return
    words, producer = _interface(rng, x) if kind == "interface" else _capsule(rng, x)
    use = rng.choice(["sum", "sum", *ways])
    later = words.startswith("capsule version") and words.split()[2] not in ("0", "1")
    whole = words in ("capsule nothing", "capsule version 1 flags 0", "capsule version 0 flags 0")

    def right(result: Any) -> bool:
        return not later and (use not in ("sum", "shards", "distributed") or not whole or float(result) == _TOTAL)

    # Where the fields agree with each other, what is refused may be the memory, the type or the shape that they name.
    named = ["By", "shard 0", "the input", "out ", "offsets", "is not aligned", "result", "second input", "shape"]
    named += [
        "x at",
        "x begins at",
        "strides",
        "an array has",
        "an array of one axis",
        "a row has at most",
        "mask",
        "goes with",
        "weight",
        "elements need",
        "a chunk of",
        "second array",
    ]
    call(tally, f"{use} of {words}", lambda: ways[use](producer), words=named, right=right, allowed=(BufferError,))

"""Reads PyTorch's and CuPy's arrays by their attributes, which takes a tenth of the time of their protocols.

Neither library is imported here: if there is an array of one, the program has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from lowlevel_reduce.dtypes import numpy_dtype
from lowlevel_reduce.errors import UnsupportedError

__all__ = ["Producer", "producer_of"]


class Producer:
    """How the arrays of one class are read; there is one for each library.

    Every function takes an array of that class on a GPU. `key` raises for any other array, or one without plain memory.

    Attributes
    ----------
    name : str
        Name of the library.
    key : callable
        Returns what a bound launch depends on: device ordinal, type, shape and strides, hashable.
    known : callable
        Returns what a call depends on: this producer, the device's ordinal, the handle of the stream that the library
        works in there, type, shape and strides, hashable. Raises a TypeError for an array that is not `plain`.
    ordinal : callable
        Returns the device's ordinal alone.
    pointer : callable
        Returns the device address of the first element.
    stream : callable
        ``stream(ordinal)`` returns the handle of the stream that the library works in on that device, 1 for the legacy
        stream.
    facts : callable
        Returns the shape, the strides in bytes and the NumPy dtype.
    plain : callable
        Tells whether the memory contains the values as they are and is the library's own, so that the driver need not
        be asked about it.
    """

    __slots__ = ("facts", "key", "known", "name", "ordinal", "plain", "pointer", "stream")

    def __init__(
        self,
        name: str,
        *,
        key: Callable[[Any], tuple[Any, ...]],
        known: Callable[[Any], tuple[Any, ...]],
        ordinal: Callable[[Any], int],
        pointer: Callable[[Any], int],
        stream: Callable[[int], int],
        facts: Callable[[Any], tuple[tuple[int, ...], tuple[int, ...], Any]],
        plain: Callable[[Any], bool],
    ) -> None:
        self.name = name
        self.key = key
        self.known = known
        self.ordinal = ordinal
        self.pointer = pointer
        self.stream = stream
        self.facts = facts
        self.plain = plain


_MOST_CLASSES = 256


class _Known(dict[type, "Producer | None"]):
    """Producers by the class of their arrays; one that is not known yet is looked for."""

    __slots__ = ()

    def __missing__(self, kind: type) -> Producer | None:
        if len(self) >= _MOST_CLASSES:  # a program may make classes without end
            self.clear()
        producer = self[kind] = _find(kind)
        return producer


_known = _Known()

BOUNDS = {"_known": _MOST_CLASSES}
"""The most entries of what is kept here, by its name: who watches for growth tells it from what has no bound."""

producer_of: Callable[[type], Producer | None] = _known.__getitem__
"""Return how arrays of a class are read, or None if their protocols must be asked. No line of Python is run for a class
that is known: this is a hot path."""


def _find(kind: type) -> Producer | None:
    # Exactly that class: a subclass may interpret its memory differently.
    for module, name, make in (("torch", "Tensor", _torch), ("cupy", "ndarray", _cupy)):
        library = sys.modules.get(module)
        if library is not None and kind is getattr(library, name, None):
            return make(library)
    return None


def _torch(torch: Any) -> Producer:
    tensor = torch.Tensor
    raw: Any = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)

    if raw is None:  # another name in this version

        def raw(ordinal: int) -> Any:
            return torch.cuda.current_stream(ordinal).cuda_stream

    def stream(ordinal: int) -> int:
        return int(raw(ordinal)) or 1

    def key(x: Any) -> tuple[Any, ...]:
        return x.get_device(), x.dtype, x.shape, x.stride()

    dtypes: dict[Any, Any] = {}

    def facts(x: Any) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
        dtype = dtypes.get(x.dtype)
        if dtype is None:
            try:
                dtype = dtypes[x.dtype] = numpy_dtype(str(x.dtype).removeprefix("torch."))
            except TypeError as error:
                raise UnsupportedError(f"{x.dtype} cannot be reduced") from error
        itemsize = dtype.itemsize
        return tuple(x.shape), tuple([step * itemsize for step in x.stride()]), dtype

    def plain(x: Any) -> bool:
        # The memory of a lazily negated or conjugated tensor contains other values.
        return bool(x.is_cuda) and not x.is_neg() and not x.is_conj() and x.layout is torch.strided

    def known(x: Any) -> tuple[Any, ...]:
        # Asking for the strides of what is not strided raises.
        if not x.is_cuda or x.is_neg() or x.is_conj():
            raise TypeError("the memory of the tensor holds other values, or is not on a GPU")
        ordinal = x.get_device()
        return producer, ordinal, raw(ordinal) or 1, x.dtype, x.shape, x.stride()

    producer = Producer(
        "PyTorch", key=key, known=known, ordinal=tensor.get_device, pointer=tensor.data_ptr, stream=stream,
        facts=facts, plain=plain,
    )  # fmt: skip
    return producer


def _cupy(cupy: Any) -> Producer:
    current = cupy.cuda.get_current_stream

    def key(x: Any) -> tuple[Any, ...]:
        return x.device.id, x.dtype, x.shape, x.strides

    def pointer(x: Any) -> int:
        return int(x.data.ptr)

    def stream(ordinal: int) -> int:
        return int(current(ordinal).ptr) or 1  # without the ordinal it would be that of the current device

    def facts(x: Any) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
        return tuple(x.shape), tuple(x.strides), numpy_dtype(x.dtype)

    def plain(x: Any) -> bool:
        # Memory of CuPy's own allocators; borrowed memory may be anything.
        return type(x.data.mem).__name__ in {"Memory", "MemoryAsync", "PooledMemory"}

    def ordinal(x: Any) -> int:
        return int(x.device.id)

    def known(x: Any) -> tuple[Any, ...]:
        if not plain(x):
            raise TypeError("the memory of the array is not of CuPy's own allocators")
        ordinal = x.device.id
        return producer, ordinal, int(current(ordinal).ptr) or 1, x.dtype, x.shape, x.strides

    producer = Producer(
        "CuPy", key=key, known=known, ordinal=ordinal, pointer=pointer, stream=stream, facts=facts, plain=plain
    )
    return producer

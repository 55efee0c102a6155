"""PyTorch's and CuPy's arrays without their protocols: their memory by attributes, in a tenth of the time.

Neither library is imported: an array of one says that it is there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from lowlevel_reduce.dtypes import numpy_dtype
from lowlevel_reduce.errors import UnsupportedError

__all__ = ["Producer", "producer_of"]


class Producer:
    """How the arrays of one class are read; one for each library.

    Every function takes an array of that class on a GPU. `key` raises for what is no such array, or of no plain memory.

    Attributes
    ----------
    name : str
        The library.
    key : callable
        What a bound launch depends on: device ordinal, type, shape and strides, hashable.
    pointer : callable
        The address of the first element.
    stream : callable
        ``stream(ordinal)``: handle of the stream that the library works in on that device, 1 for the legacy one.
    facts : callable
        Shape, strides in bytes and dtype of NumPy.
    plain : callable
        Whether the memory holds the values as they are and is the library's own, so that the driver need not be asked.
    """

    __slots__ = ("facts", "key", "name", "plain", "pointer", "stream")

    def __init__(
        self,
        name: str,
        *,
        key: Callable[[Any], tuple[Any, ...]],
        pointer: Callable[[Any], int],
        stream: Callable[[int], int],
        facts: Callable[[Any], tuple[tuple[int, ...], tuple[int, ...], Any]],
        plain: Callable[[Any], bool],
    ) -> None:
        self.name = name
        self.key = key
        self.pointer = pointer
        self.stream = stream
        self.facts = facts
        self.plain = plain


_known: dict[type, Producer | None] = {}


def producer_of(kind: type) -> Producer | None:
    """Return how arrays of a class are read, or None if their protocols must be asked."""
    try:
        return _known[kind]
    except KeyError:
        producer = _known[kind] = _find(kind)
        return producer


def _find(kind: type) -> Producer | None:
    # The very class: a subclass may mean something else by its values.
    for module, name, make in (("torch", "Tensor", _torch), ("cupy", "ndarray", _cupy)):
        library = sys.modules.get(module)
        if library is not None and kind is getattr(library, name, None):
            return make(library)
    return None


def _torch(torch: Any) -> Producer:
    tensor = torch.Tensor
    raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)

    def stream(ordinal: int) -> int:
        handle = torch.cuda.current_stream(ordinal).cuda_stream if raw is None else raw(ordinal)
        return int(handle) or 1

    def key(x: Any) -> tuple[Any, ...]:
        return x.get_device(), x.dtype, x.shape, x.stride()

    def facts(x: Any) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
        try:
            dtype = numpy_dtype(str(x.dtype).removeprefix("torch."))
        except TypeError as error:
            raise UnsupportedError(f"{x.dtype} cannot be reduced") from error
        return tuple(x.shape), tuple(step * dtype.itemsize for step in x.stride()), dtype

    def plain(x: Any) -> bool:
        # Of a lazily negated or conjugated tensor the memory holds other values.
        return bool(x.is_cuda) and not x.is_neg() and not x.is_conj() and x.layout is torch.strided

    return Producer("PyTorch", key=key, pointer=tensor.data_ptr, stream=stream, facts=facts, plain=plain)


def _cupy(cupy: Any) -> Producer:
    current = cupy.cuda.get_current_stream

    def key(x: Any) -> tuple[Any, ...]:
        return x.device.id, x.dtype, x.shape, x.strides

    def pointer(x: Any) -> int:
        return int(x.data.ptr)

    def stream(ordinal: int) -> int:
        return int(current(ordinal).ptr) or 1  # without a device: of the current one

    def facts(x: Any) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
        return tuple(x.shape), tuple(x.strides), numpy_dtype(x.dtype)

    def plain(x: Any) -> bool:
        # Memory of CuPy's own allocators; what it borrowed may be anything.
        return type(x.data.mem).__name__ in {"Memory", "MemoryAsync", "PooledMemory"}

    return Producer("CuPy", key=key, pointer=pointer, stream=stream, facts=facts, plain=plain)

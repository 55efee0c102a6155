"""Reads PyTorch's, CuPy's, Numba's and JAX's arrays by their attributes, without their protocols.

Of all but the last that takes a tenth of the time. None is imported here: if there is an array of one, the program has
imported it.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from lowlevel_reduce.driver.stream import LEGACY
from lowlevel_reduce.dtypes import numpy_dtype
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.layout import contiguous_strides

__all__ = ["Producer", "producer_of"]


class Producer:
    """How the arrays of one class are read; there is one for each library.

    Every function takes an array of that class on a GPU. `known` raises for any other, or one without plain memory.

    Attributes
    ----------
    name : str
        Name of the library.
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
    read : callable
        Returns the same of what `known` returns after the stream: nothing is asked of an array again.
    plain : callable
        Tells whether the memory contains the values as they are and is the library's own, so that the driver need not
        be asked about it.
    finish : callable or None
        Lets the host wait until the memory contains the values, of a library whose streams nobody can name.
    writable : bool
        Whether results may be written to its arrays.
    in_elements : bool
        Whether the strides that `known` returns count elements, not bytes. Where it returns none, an array is
        contiguous.
    """

    __slots__ = (
        *("facts", "finish", "in_elements", "known", "name", "ordinal", "plain", "pointer", "read", "stream"),
        "writable",
    )

    def __init__(
        self,
        name: str,
        *,
        known: Callable[[Any], tuple[Any, ...]],
        ordinal: Callable[[Any], int],
        pointer: Callable[[Any], int],
        stream: Callable[[int], int],
        facts: Callable[[Any], tuple[tuple[int, ...], tuple[int, ...], Any]],
        read: Callable[..., tuple[tuple[int, ...], tuple[int, ...], Any]],
        plain: Callable[[Any], bool],
        finish: Callable[[Any], Any] | None = None,
        writable: bool = True,
        in_elements: bool = False,
    ) -> None:
        self.name = name
        self.known = known
        self.ordinal = ordinal
        self.pointer = pointer
        self.stream = stream
        self.facts = facts
        self.read = read
        self.plain = plain
        self.finish = finish
        self.writable = writable
        self.in_elements = in_elements


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
    for module, name, make in (
        ("torch", "Tensor", _torch), ("cupy", "ndarray", _cupy),
        ("numba.cuda.cudadrv.devicearray", "DeviceNDArray", lambda _: _numba()),
    ):  # fmt: skip
        library = sys.modules.get(module)
        if library is not None and kind is getattr(library, name, None):
            return make(library)
    jax = sys.modules.get("jax")
    if kind.__name__ == "ArrayImpl" and jax is not None and issubclass(kind, jax.Array):
        # Older ones, which lack some of these, are asked by their protocol.
        names = ("format", "is_deleted", "is_ready", "sharding", "unsafe_buffer_pointer")
        return _jax() if all(hasattr(kind, name) for name in names) else None
    return None


def _torch(torch: Any) -> Producer:
    tensor = torch.Tensor
    raw: Any = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)

    if raw is None:  # another name in this version

        def raw(ordinal: int) -> Any:
            return torch.cuda.current_stream(ordinal).cuda_stream

    def stream(ordinal: int) -> int:
        return int(raw(ordinal)) or 1

    dtypes: dict[Any, Any] = {}

    def read(theirs: Any, shape: Any, steps: Any) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
        dtype = dtypes.get(theirs)
        if dtype is None:
            try:
                dtype = dtypes[theirs] = numpy_dtype(str(theirs).removeprefix("torch."))
            except TypeError as error:
                raise UnsupportedError(f"{theirs} cannot be reduced") from error
        itemsize = dtype.itemsize
        return tuple(shape), tuple([step * itemsize for step in steps]), dtype

    def facts(x: Any) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
        return read(x.dtype, x.shape, x.stride())

    complex_types = {getattr(torch, name, None) for name in ("complex32", "complex64", "complex128")}
    # What a tensor's memory holds follows from its dispatch keys. Whoever asks for these keeps the interpreter's lock,
    # but it takes 0.6 us more than is_neg and is_conj, each of which lets go of the lock: of many threads another one
    # has it then. So the main thread asks these, of which the latter may only be said of complex numbers, and others
    # ask for the keys.
    keys_of: Any = getattr(getattr(torch, "_C", None), "_dispatch_keys", None)
    main, this = threading.main_thread().ident, threading.get_ident
    met: set[int] = set()

    def holds_values(x: Any) -> bool:
        # The memory of a lazily negated or conjugated tensor contains other values.
        found = bool(x.is_cuda) and not x.is_neg() and not x.is_conj()
        if found and keys_of is not None:
            met.add(keys_of(x).raw_repr())
        return found

    def plain(x: Any) -> bool:
        return holds_values(x) and x.layout is torch.strided

    def known(x: Any) -> tuple[Any, ...]:
        # Asking for the strides of what is not strided raises.
        dtype = x.dtype
        if this() == main or keys_of is None:
            is_known = x.is_cuda and not x.is_neg() and (dtype not in complex_types or not x.is_conj())
        else:
            is_known = keys_of(x).raw_repr() in met or holds_values(x)
        if not is_known:
            raise TypeError("the memory of the tensor holds other values, or is not on a GPU")
        ordinal = x.get_device()
        return producer, ordinal, raw(ordinal) or 1, dtype, x.shape, x.stride()

    producer = Producer(
        "PyTorch", known=known, ordinal=tensor.get_device, pointer=tensor.data_ptr, stream=stream, facts=facts,
        read=read, plain=plain, in_elements=True,
    )  # fmt: skip
    return producer


def _read_as_numpys(dtype: Any, shape: Any, strides: Any) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    """Return the facts of an array whose type and strides are NumPy's."""
    return tuple(shape), tuple(strides), numpy_dtype(dtype)


def _facts_as_numpys(x: Any) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    return _read_as_numpys(x.dtype, x.shape, x.strides)


def _cupy(cupy: Any) -> Producer:
    current = cupy.cuda.get_current_stream

    def pointer(x: Any) -> int:
        return int(x.data.ptr)

    def stream(ordinal: int) -> int:
        return int(current(ordinal).ptr) or 1  # without the ordinal it would be that of the current device

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
        "CuPy", known=known, ordinal=ordinal, pointer=pointer, stream=stream, facts=_facts_as_numpys,
        read=_read_as_numpys, plain=plain,
    )  # fmt: skip
    return producer


def _numba() -> Producer:
    """Return how Numba's arrays are read: those in memory of its own that are bound to no stream.

    Numba works in the legacy stream where it is told none, in the primary context, the only one that it takes.
    """

    def plain(x: Any) -> bool:
        # An OwnedPointer is memory of Numba's own manager; others are borrowed, or of a manager that was plugged in.
        return type(x.gpu_data).__name__ == "OwnedPointer" and not x.stream

    def pointer(x: Any) -> int:
        return int(x.gpu_data.device_ctypes_pointer.value or 0)

    def ordinal(x: Any) -> int:
        return int(x.gpu_data.context.device.id)

    def known(x: Any) -> tuple[Any, ...]:
        if not plain(x):
            raise TypeError("the array is bound to a stream, or not in memory of Numba's own")
        return producer, ordinal(x), LEGACY, x.dtype, x.shape, x.strides

    producer = Producer(
        "Numba", known=known, ordinal=ordinal, pointer=pointer, stream=lambda _: LEGACY, facts=_facts_as_numpys,
        read=_read_as_numpys, plain=plain,
    )  # fmt: skip
    return producer


_NOWHERE = -1


def _jax() -> Producer:
    """Return how JAX's arrays are read: those of one device, computed, in its memory and in C order.

    Nobody can name the streams that JAX works in, so that only an array that is computed already is read like this: of
    any other, JAX orders its work before a stream by its protocol. Nothing is waited for then, and what reads the array
    does so in the legacy stream.
    """

    def ordinal(x: Any) -> int:
        return _ordinal_of(x.sharding)

    def in_order(x: Any) -> bool:
        return bool(x.format.layout.major_to_minor == tuple(range(x.ndim)))

    def where(x: Any) -> int:
        # A deleted array must not be asked anything else: some versions end the process.
        if x.is_deleted():
            return _NOWHERE
        device = ordinal(x)
        return device if device != _NOWHERE and x.is_ready() and in_order(x) else _NOWHERE

    def plain(x: Any) -> bool:
        return where(x) != _NOWHERE

    def known(x: Any) -> tuple[Any, ...]:
        device = where(x)
        if device == _NOWHERE:
            raise TypeError("the array is deleted, not computed yet, not in C order or not on one GPU")
        return producer, device, LEGACY, x.dtype, x.shape

    def pointer(x: Any) -> int:
        return int(x.unsafe_buffer_pointer())

    def read(theirs: Any, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
        dtype = numpy_dtype(theirs)
        return shape, contiguous_strides(shape, dtype.itemsize), dtype

    def facts(x: Any) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
        return read(x.dtype, x.shape)

    def finish(x: Any) -> None:
        if not x.is_deleted():  # else whoever reads it says so
            x.block_until_ready()

    producer = Producer(
        "JAX", known=known, ordinal=ordinal, pointer=pointer, stream=lambda _: LEGACY, facts=facts, read=read,
        plain=plain, finish=finish, writable=False,
    )  # fmt: skip
    return producer


@functools.lru_cache(256)
def _ordinal_of(sharding: Any) -> int:
    """Return the CUDA ordinal of the one device in whose memory an array lies, or `_NOWHERE`."""
    if len(sharding.device_set) != 1 or sharding.memory_kind not in (None, "device"):
        return _NOWHERE
    (device,) = sharding.device_set
    is_here = device.platform == "gpu" and "cuda" in device.client.platform_version.lower()
    return int(device.local_hardware_id) if is_here else _NOWHERE

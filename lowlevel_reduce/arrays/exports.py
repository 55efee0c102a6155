"""How an array on the device is handed to other libraries: DLPack and the CUDA array interface, in stream order."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lowlevel_reduce.arguments import integer, shown
from lowlevel_reduce.arrays.exchange import exported_stream, home_of, known_home, order_consumer
from lowlevel_reduce.arrays.foreign import only_nvidias_memory

if TYPE_CHECKING:
    import numpy as np

    from lowlevel_reduce.driver import Context, Stream

__all__ = ["Exported"]

_CUDA = 2  # kDLCUDA
_DLPACK_1 = (1, 0)
_NO_SYNCHRONIZATION = -1  # what DLPack takes for "do not order the streams"


class Exported:
    """The protocols of a `DeviceArray`.

    Neither makes a driver call where the consumer works in the array's own stream, but for one that asks whether the
    memory's context still lives, if others may end that.
    """

    __slots__ = ()

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    stream: Stream
    _home: int | None

    if TYPE_CHECKING:  # what `DeviceArray` has

        @property
        def pointer(self) -> int:
            """Device address of the first element."""

        @property
        def context(self) -> Context:
            """The context of the memory."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface, version 3; the consumer must order itself after ``stream``.

        Consumers take the number of a default stream for one of the primary context. So for a default stream of another
        context, the primary context's legacy stream is given, after it was made to wait for the array's by an event.
        """
        code = _code(self.dtype)
        if code is None:
            raise AttributeError(f"{self.dtype.name} has no code in __cuda_array_interface__; use __dlpack__")
        return {
            "shape": self.shape,
            "typestr": code,
            "data": (self.pointer, False),
            "strides": None,
            "version": 3,
            "stream": exported_stream(self.stream, self._home),
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return (kDLCUDA, ordinal)."""
        return (_CUDA, (known_home(self._home) or home_of(self.context, self._home))[0])

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export the memory; it lives until the consumer lets go of it.

        Parameters
        ----------
        stream : int, optional
            The consumer's stream, which is made to wait for this array's by an event. None or 1 is the legacy default
            stream of the device's primary context, 2 the calling thread's default stream there, -1 asks for no
            ordering. If nobody has retained the primary context, default streams are those of the array's context. 0 is
            ambiguous, and refused, as the array API standard asks.
        max_version, dl_device, copy : optional
            As the array API standard defines them. Copies and exports to other devices are refused.

        Raises
        ------
        BufferError
            If a copy or another device is asked for, or DLPack has no such type.
        TypeError, ValueError
            If what is asked for is not of its type, or the stream's number 0 or no handle.
        UnsupportedError
            If the memory is not of NVIDIA's driver, but a simulated one's.
        """
        ordinal, is_primary = known_home(self._home) or home_of(self.context, self._home)
        # What most ask for is seen at once. An array compares element by element.
        if copy is not None or dl_device is not None or type(max_version) is not tuple or max_version != _DLPACK_1:
            _check_asked(copy, dl_device, max_version, ordinal)
        if type(stream) is not int and stream is not None:
            stream = integer(stream, "the consumer's stream is an integer")
        if stream == 0:
            raise ValueError("the consumer's stream 0 is ambiguous: 1 is the legacy default stream, 2 the thread's own")
        pointer = self.pointer  # raises where there is no memory any more
        if stream != _NO_SYNCHRONIZATION:
            order_consumer(stream or 1, self.stream, is_primary=is_primary)
        only_nvidias_memory()
        versioned = max_version is not None and max_version[0] >= 1
        return _capsule_of()(self, pointer, self.shape, self.dtype, ordinal, versioned=versioned)


@functools.lru_cache(maxsize=64)  # it takes NumPy as long as all the rest
def _code(dtype: np.dtype[Any]) -> str | None:
    """Return a type's code; None for one of ml_dtypes, whose codes mean something else or nothing to others."""
    return dtype.str if dtype.isbuiltin == 1 else None


@functools.cache  # an import statement in a hot path takes 0.2 us, and one at the import 0.1 ms
def _capsule_of() -> Callable[..., Any]:
    from lowlevel_reduce.arrays.capsules import capsule_of  # noqa: PLC0415 - few export

    return capsule_of


def _check_asked(copy: Any, dl_device: Any, max_version: Any, ordinal: int) -> None:
    """Refuse what a consumer asks of DLPack and is not to be had, or not well asked."""
    if copy:
        raise BufferError("a device array is exported without a copy")
    for what, pair in (("dl_device", dl_device), ("max_version", max_version)):
        if pair is not None and not (isinstance(pair, tuple) and len(pair) == 2):
            raise TypeError(f"{what} is two integers, not {shown(pair)}")
        for number in pair or ():
            integer(number, f"{what} is two integers")
    if dl_device is not None and dl_device != (_CUDA, ordinal):
        raise BufferError(f"the array is on device {(_CUDA, ordinal)}, not on {shown(dl_device)}")

"""Memory for NumPy's arrays that cannot be had: by an allocator of ours, at any place between two calls of the driver.

NumPy takes the memory of arrays past Python's allocators, from one that its C API exchanges (NEP 49). Calls of the
driver are spared, as in `memory_faults`: the simulated one's arrays stand for memory that is not NumPy's.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.fuzz.aftermath import again, ended, places
from tests.fuzz.operations import OPERATIONS, Operation
from tests.fuzz.tally import Tally
from tests.fuzz.worlds import Machine, World, bare, nothing, quiet, where, world

__all__ = ["asking", "counted", "fuzz_arrays"]

# The places of PyDataMem_SetHandler and PyDataMem_GetHandler in the table of NumPy's C API, since 1.22.
_SET_HANDLER, _GET_HANDLER = 304, 305
_VERSION = 1  # of the handler's structure
_CAPSULE = b"mem_handler"
_ALWAYS = 10**9

_Pointer, _Size = ctypes.c_void_p, ctypes.c_size_t
_MALLOC = ctypes.PYFUNCTYPE(_Pointer, _Pointer, _Size)
_CALLOC = ctypes.PYFUNCTYPE(_Pointer, _Pointer, _Size, _Size)
_REALLOC = ctypes.PYFUNCTYPE(_Pointer, _Pointer, _Pointer, _Size)
_FREE = ctypes.PYFUNCTYPE(None, _Pointer, _Pointer, _Size)

Asked = Callable[[], bool]


class _Handler(ctypes.Structure):
    """NumPy's ``PyDataMem_Handler``."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", _Pointer),
        ("malloc", _MALLOC),
        ("calloc", _CALLOC),
        ("realloc", _REALLOC),
        ("free", _FREE),
    )


class _Allocator:
    """NumPy's own allocator, but that it asks before each allocation whether there is memory.

    Arrays that it gave memory may be freed at any time, also after another allocator was set: it is kept for good.
    """

    def __init__(self) -> None:
        table = _api()
        self.set = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER])
        current = ctypes.PYFUNCTYPE(ctypes.py_object)(table[_GET_HANDLER])()
        given = _Handler.from_address(_pointer_of(current, _CAPSULE))
        malloc, calloc, realloc = given.malloc, given.calloc, given.realloc
        self.has_memory: Asked = lambda: True
        self._handler = _Handler(
            b"that of a fuzzer",
            _VERSION,
            given.context,
            _MALLOC(lambda context, size: malloc(context, size) if self.has_memory() else None),
            _CALLOC(lambda context, count, size: calloc(context, count, size) if self.has_memory() else None),
            _REALLOC(lambda context, at, size: realloc(context, at, size) if self.has_memory() else None),
            given.free,  # as it is: NumPy frees while an error is under way, in which no Python may be called
        )
        new = ctypes.pythonapi.PyCapsule_New
        new.argtypes, new.restype = (_Pointer, ctypes.c_char_p, _Pointer), ctypes.py_object
        self.capsule = new(ctypes.addressof(self._handler), _CAPSULE, None)


def _api() -> Any:
    """Return the table of NumPy's C API."""
    try:
        module = importlib.import_module("numpy._core._multiarray_umath")
    except ImportError:  # NumPy 1
        module = importlib.import_module("numpy.core._multiarray_umath")
    return (_Pointer * (_GET_HANDLER + 1)).from_address(_pointer_of(module._ARRAY_API, None))


def _pointer_of(capsule: Any, name: bytes | None) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.argtypes, get.restype = (ctypes.py_object, ctypes.c_char_p), _Pointer
    return int(get(capsule, name))


_made: list[_Allocator] = []


@contextlib.contextmanager
def asking(has_memory: Asked) -> Iterator[None]:
    """Ask before each allocation of an array of this thread whether there is memory."""
    if not _made:
        _made.append(_Allocator())
    ours = _made[0]
    before = ours.set(ours.capsule)
    try:
        ours.has_memory = has_memory
        yield
    finally:
        ours.has_memory = lambda: True
        ours.set(before)


class _Starved:
    """Refuses the memory of arrays from a given allocation on, so many times; counts those outside the driver."""

    def __init__(self, first: int, times: int) -> None:
        self.asked = self.refused = self._inside = 0
        self._first, self._times = first, times

    def has_memory(self) -> bool:
        """Tell whether there is memory for one more array."""
        if self._inside:
            return True
        self.asked += 1
        if not self._first <= self.asked - 1 < self._first + self._times:
            return True
        self.refused += 1
        return False

    def begin(self) -> None:
        """Let the driver have its memory."""
        self._inside += 1

    def end(self) -> None:
        """Go on after a call of the driver."""
        self._inside -= 1

    def run(self, one: World, operation: Operation) -> tuple[bytes | BaseException, str]:
        """Return what the operation returns or raises, and in the second case where."""
        one.valve.begin, one.valve.end = self.begin, self.end
        try:
            with asking(self.has_memory):
                return operation(one), ""
        except Exception as error:  # noqa: BLE001 - looked at by the caller
            place = where(error)
            return bare(error), place
        finally:
            one.valve.begin = one.valve.end = nothing


def counted(machine: Machine, operation: Operation) -> int:
    """Return how many arrays an undisturbed operation allocates outside the driver."""
    with world(machine) as one:
        starved = _Starved(_ALWAYS, 0)
        found, place = starved.run(one, operation)
        assert found == OPERATIONS[operation], f"{operation.__name__}{place}: {found!r}"
        return starved.asked


def fuzz_arrays(seed: int, count: int, machine: Machine | None = None) -> Tally:
    """Refuse the memory of one array of an operation, or of all from one on; `count` times, each place in turn."""
    tally, draw, machine = (
        Tally("arrays of NumPy's that had no memory", seed),
        random.Random(seed),
        machine or Machine(),
    )
    with quiet():
        machine.warm()
        _, kept = places(machine)
        everywhere = [(operation, k) for operation in OPERATIONS for k in range(counted(machine, operation))]
        while tally.tried < count:
            for operation, k in draw.sample(everywhere, min(len(everywhere), count - tally.tried)):
                times = draw.choice((1, _ALWAYS))
                what = f"{operation.__name__}, array {k} of NumPy's, {'once' if times == 1 else 'and all from it on'}"
                with world(machine) as one:
                    starved = _Starved(k, times)
                    found, place = starved.run(one, operation)
                    ended(tally, operation, found, what + place, _of_numpy)
                    again(tally, one, operation, kept[operation], what + place)
    return tally


def _of_numpy(error: BaseException) -> bool:
    """Tell whether CPython says that a function of NumPy's has failed and not said why, as casts to a scalar do."""
    return isinstance(error, SystemError)

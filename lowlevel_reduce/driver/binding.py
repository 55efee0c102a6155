"""The one module that decides which driver is used: it selects and initialises it, and calls its functions by name.

All layers above use ``call("cuMemAlloc", size_bytes)``. They never look at a result code, never ask whether the driver
was initialised, and do not know whether it is NVIDIA's or another implementation that was registered here.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lowlevel_reduce.errors import WITHOUT_GPU, CudaError, NoDriverError, ReduceError, UnsupportedError, check

__all__ = [
    "VARIABLE",
    "Implementation",
    "after_fork",
    "available",
    "bindings_version",
    "call",
    "function",
    "native",
    "prebuilt",
    "raise_for",
    "register",
    "selected",
    "use",
    "version",
    "why_unavailable",
    "written_int",
]

VARIABLE = "LOWLEVEL_REDUCE_DRIVER"
"""Environment variable that names the implementation; read once, when a driver is first needed."""

# What cuInit answers on a machine without a usable driver, and a message that says what to do.
_NO_DRIVER = {
    "CUDA_ERROR_NO_DEVICE": "the NVIDIA driver is installed but finds no GPU: make one visible to this process "
    "(CUDA_VISIBLE_DEVICES, or the container's --gpus option)",
    "CUDA_ERROR_STUB_LIBRARY": "the libcuda that was loaded is the toolkit's stub: put the NVIDIA driver's own "
    "libcuda.so.1 first on the library path",
    "CUDA_ERROR_SYSTEM_NOT_READY": "the NVIDIA driver is installed but its services are not running: start the "
    "fabric manager and the persistence daemon",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": "the CUDA compatibility package does not support this GPU: install a "
    "newer NVIDIA driver instead",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "the NVIDIA kernel module and libcuda are of different versions: reboot, or "
    "reinstall the NVIDIA driver",
}
_FORKED = (
    "this process was forked after its parent had initialised the CUDA driver, which cannot be used in such a child: "
    'start processes by the method "spawn" (multiprocessing.get_context("spawn")), or fork before the first use'
)
# cuInit answers this in such a child if the parent initialised the driver, but not through this package.
_NO_DRIVER["CUDA_ERROR_NOT_INITIALIZED"] = _FORKED
_OF_THE_THREAD = ("cuCtxGetCurrent", "cuCtxGetId", "cuCtxPopCurrent", "cuCtxPushCurrent")
_NO_LIBRARY = "no NVIDIA driver was found (libcuda could not be loaded): install the NVIDIA display driver"


class Implementation:
    """A driver. It is initialised at its first call.

    Parameters
    ----------
    name : str
        The name that it was registered under.
    offers : object
        Module-like: has the driver's functions by name, each of which returns the result code followed by its values.

    Attributes
    ----------
    kept : dict
        What the layers above keep for as long as this driver is registered, such as loaded kernels, each under its own
        key. Replacing the registration empties it.
    forked : bool
        Whether this process was forked after the driver was initialised: every call raises `NoDriverError`.
    """

    __slots__ = ("__weakref__", "_lock", "_offers", "_ready", "forked", "kept", "name")

    def __init__(self, name: str, offers: Any) -> None:
        self.name = name
        self._offers = offers
        self._ready = False
        self._lock = threading.RLock()  # reentrant: a signal's handler may need the driver during cuInit
        self.forked = False
        self.kept: dict[Any, Any] = {}

    def note_fork(self) -> None:
        """Refuse every later call if the driver was initialised; for a child that was just forked."""
        self._lock = threading.RLock()  # another thread of the parent may have held it
        self.forked, self._ready = self.forked or self._ready, False
        if self.forked:
            self.kept = {}  # its locks and handles are the parent's

    @property
    def image(self) -> str:
        """The kind of image that it loads: "cubin", or "ptx" for a driver whose attribute ``IMAGE`` says so."""
        return str(getattr(self._offers, "IMAGE", "cubin"))

    def call(self, name: str, *args: Any, by: Callable[..., Any] | None = None) -> Any:
        """Call the driver's function `name` and return its values, or raise the error that its result code means.

        With `by`, that is called with the function and a tuple of the arguments, and returns what the function returns.
        """
        routine = self.function(name)
        try:
            result = routine(*args) if by is None else by(routine, args)
        except RuntimeError as error:
            if not _says_missing(error):
                raise
            raise self._lacks(name) from error
        return check(name, result, self._offers.cuGetErrorString)

    def function(self, name: str) -> Callable[..., Any]:
        """Return the raw function `name` of the initialised driver; the caller must check its result code."""
        if not self._ready:
            self._initialise()
        if (routine := getattr(self._offers, name, None)) is None:
            raise UnsupportedError(f"{name} is not offered by the {self.name!r} driver ({bindings_version()})")
        return routine  # type: ignore[no-any-return]

    def prebuilt(self, name: str, *args: Any) -> Callable[[], int]:
        """Return a function that calls `name` with these arguments and returns the result code as an integer.

        Parameters
        ----------
        name : str
            A driver function that takes only addresses, returns only its result code, and exists since CUDA 12.0 or
            earlier.
        args
            Its arguments: integers, or objects of the bindings (a structure is passed by its address). The caller must
            keep them alive. For a ``ctypes.c_uint64``, each call passes the value that it has at that time.
        """
        routine = self.function(name)
        if self._offers is not _cuda():
            return lambda: int(routine(*map(_now, args))[0])
        # NVIDIA's own function by its address, with arguments converted once: 0.2 µs less than through the bindings.
        # The GIL is released, as a launch waits while the stream's queue is full, but not for what tells of the calling
        # thread alone: others would take it then, and be waited for.
        kind = ctypes.PYFUNCTYPE if name in _OF_THE_THREAD else ctypes.CFUNCTYPE
        address = self.call("cuGetProcAddress", name.encode(), 12000, 0)[0]
        if not address:
            raise self._lacks(name)
        return functools.partial(kind(ctypes.c_int)(int(address)), *map(_by_address, args))

    def prebuilt_number(self, name: str, *args: int, written: int = 1, at: int = 0) -> Callable[[], int]:
        """Return a function that calls `name` with these arguments and returns a number that the driver writes.

        Parameters
        ----------
        name : str
            A driver function that takes handles, writes non-negative numbers, and exists since CUDA 12.0 or earlier.
        args : int
            The handles.
        written, at : int
            How many numbers it writes, to its last arguments, and which of them is returned.

        Returns
        -------
        callable
            It returns the negated result code if the driver refuses. Only one thread at a time may call it.
        """
        if self._offers is not _cuda():
            routine = self.function(name)
            return lambda: -int(answer[0]) if (answer := routine(*args))[0] else int(answer[1 + at])
        numbers = (ctypes.c_uint64 * written)()
        call = self.prebuilt(name, *args, *(ctypes.addressof(numbers) + 8 * k for k in range(written)))
        return lambda: -code if (code := call()) else numbers[at]

    def written_int(self, name: str, *args: Any) -> int:
        """Return the 32-bit integer that `name` writes to its first argument; `args` are its other arguments.

        For functions whose result some bindings get wrong: NVIDIA's own function is called with memory of ours.
        """
        if self._offers is not _cuda():
            return int(self.call(name, *args))
        number = ctypes.c_int(0)
        self.raise_for(name, self.prebuilt(name, ctypes.addressof(number), *args)())
        return number.value

    def raise_for(self, name: str, code: int) -> None:
        """Raise `CudaError` for the result `code` of the function `name`; return if it is success."""
        check(name, (native().CUresult(code),), self._offers.cuGetErrorString)

    def _initialise(self) -> None:
        if self.forked:
            raise NoDriverError(_FORKED)
        with self._lock:
            if self._ready:
                return
            try:
                check("cuInit", self._offers.cuInit(0), self._offers.cuGetErrorString)
            except RuntimeError as error:  # the bindings look for libcuda at their first call
                raise NoDriverError(f"{_NO_LIBRARY} ({error})", WITHOUT_GPU) from error
            except CudaError as error:
                reason = _NO_DRIVER.get(error.name)
                if reason is None:
                    raise
                raise NoDriverError(f"{reason} ({error})", "" if reason is _FORKED else WITHOUT_GPU) from error
            self._ready = True

    def _lacks(self, name: str) -> UnsupportedError:
        major, minor = _decode(self.call("cuDriverGetVersion"))
        return UnsupportedError(
            f"the installed driver (CUDA {major}.{minor}) has no {name}: install a newer NVIDIA driver"
        )


@functools.cache  # an import statement looks the module up anew each time, and hot paths come by here
def _cuda() -> Any:
    from cuda.bindings import driver  # noqa: PLC0415 - 60 ms, paid by those who touch a driver

    return driver


# The registry, and what was made from it. Process-wide on purpose: handles of two drivers do not mix.
_factories: dict[str, Callable[[], Any]] = {"cuda": _cuda}
_made: dict[str, Implementation] = {}
_replaced: weakref.WeakSet[Implementation] = weakref.WeakSet()
_selected: Implementation | None = None
_registry_lock = threading.RLock()
_fork_hooks: list[Callable[[], None]] = []


def after_fork(hook: Callable[[], None]) -> None:
    """Have `hook` called in every child that this process forks, after the drivers have noticed it."""
    _fork_hooks.append(hook)


def _in_child() -> None:
    global _registry_lock  # noqa: PLW0603 - another thread of the parent may have held it
    _registry_lock = threading.RLock()
    for implementation in (*_made.values(), *_replaced):
        implementation.note_fork()
    for hook in _fork_hooks:
        hook()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_in_child)


def register(name: str, factory: Callable[[], Any]) -> None:
    """Offer another implementation of the driver under `name`.

    Parameters
    ----------
    name : str
        The name for `use` and the environment variable. A second registration of a name replaces the first.
    factory : callable
        Takes nothing, returns a module-like object with the driver's functions; called when the name is first used.
    """
    with _registry_lock:
        _factories[name] = factory
        replaced = _made.pop(name, None)
    if replaced is not None:
        replaced.kept.clear()
        _replaced.add(replaced)  # handles of it may live on


def selected() -> Implementation:
    """Return the implementation that calls go to. A handle keeps it, to be released by the one that made it."""
    global _selected  # noqa: PLW0603 - one process, one driver
    chosen = _selected  # looked at once: another thread's `use` may end, and nothing be selected again
    if chosen is None:
        with _registry_lock:
            chosen = _selected
            if chosen is None:
                chosen = _selected = _implementation(os.environ.get(VARIABLE) or "cuda", f"{VARIABLE}: ")
    return chosen


@contextmanager
def use(name: str) -> Iterator[Implementation]:
    """Send the calls of the whole process, every thread of it, to the implementation `name` inside the block.

    Raises
    ------
    ValueError
        If nothing is registered under `name`.
    """
    global _selected  # noqa: PLW0603 - one process, one driver
    with _registry_lock:
        before, _selected = _selected, _implementation(name)
        chosen = _selected
    try:
        yield chosen
    finally:
        with _registry_lock:
            _selected = before


def call(name: str, *args: Any) -> Any:
    """Call the driver's function `name` and return its values: None, one value, or a tuple of them.

    The driver is initialised before the first call of the process.

    Raises
    ------
    CudaError
        If the result code is not success.
    NoDriverError
        If there is no usable driver.
    UnsupportedError
        If the driver has no such function.
    """
    return selected().call(name, *args)


def function(name: str) -> Callable[..., Any]:
    """Return the driver's raw function, for hot paths that look at the result code themselves."""
    return selected().function(name)


def prebuilt(name: str, *args: Any) -> Callable[[], int]:
    """Return a function that calls `name` with these arguments, for hot paths; see `Implementation.prebuilt`."""
    return selected().prebuilt(name, *args)


def written_int(name: str, *args: Any) -> int:
    """Return the integer that the driver's function writes to its first argument; see `Implementation.written_int`."""
    return selected().written_int(name, *args)


def raise_for(name: str, code: int) -> None:
    """Raise `CudaError` for the result `code` of the function `name`; return if it is success."""
    selected().raise_for(name, code)


def native() -> Any:
    """Return the module with the driver's types and enumerations; it needs no driver, and is used with every one."""
    return _cuda()


def version() -> tuple[int, int]:
    """Return the (major, minor) CUDA version that the driver supports, e.g. ``(13, 0)``."""
    return _decode(call("cuDriverGetVersion"))


def bindings_version() -> str:
    """Return the name and version of the installed bindings, for messages."""
    import cuda.bindings  # noqa: PLC0415 - only needed by an error message

    return f"cuda-bindings {cuda.bindings.__version__}"


def available() -> bool:
    """Tell whether the selected driver can be used; does not raise if there is none."""
    return why_unavailable() is None


def why_unavailable() -> str | None:
    """Return one sentence that says why the selected driver cannot be used, or None if it can."""
    try:
        count = call("cuDeviceGetCount")
    except (ReduceError, ImportError) as error:
        return getattr(error, "reason", str(error))
    return None if count else _NO_DRIVER["CUDA_ERROR_NO_DEVICE"]


def _implementation(name: str, named_by: str = "") -> Implementation:
    if name not in _made:
        if name not in _factories:
            known = ", ".join(sorted(_factories))
            raise ValueError(f"{named_by}no driver is registered as {name!r}; registered: {known}")
        _made[name] = Implementation(name, _factories[name]())
    return _made[name]


def _now(argument: Any) -> Any:
    """Return what a call passes for an argument: of a variable its value."""
    return argument.value if isinstance(argument, ctypes.c_uint64) else argument


def _by_address(argument: Any) -> Any:
    """Return what ctypes passes fastest for an argument of pointer size: a reference where there is an address."""
    if isinstance(argument, ctypes.c_uint64):
        return argument
    # A handle of the bindings has a getPtr too, but that is where the handle lies.
    address = int(argument) if hasattr(argument, "__int__") else argument.getPtr()
    return ctypes.byref(ctypes.c_char.from_address(address)) if address else None


def _decode(number: int) -> tuple[int, int]:
    return number // 1000, number % 1000 // 10


def _says_missing(error: RuntimeError) -> bool:
    # The bindings raise FunctionNotFoundError("function cuX is not found"), which they keep in a private module;
    # older ones raise a plain RuntimeError with the same words.
    text = str(error).lower()
    return type(error).__name__ == "FunctionNotFoundError" or ("function" in text and "not found" in text)

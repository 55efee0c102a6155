"""The one module that decides which driver is spoken to: it selects, initialises, and calls by name.

Everything above says ``call("cuMemAlloc", size_bytes)`` and never looks at a result code, never asks whether the
driver was initialised, and never knows whether it is NVIDIA's or another implementation that was registered here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lowlevel_reduce.errors import CudaError, NoDriverError, ReduceError, UnsupportedError, check

__all__ = [
    "VARIABLE",
    "Implementation",
    "available",
    "bindings_version",
    "call",
    "function",
    "native",
    "raise_for",
    "register",
    "selected",
    "use",
    "version",
    "why_unavailable",
]

VARIABLE = "LOWLEVEL_REDUCE_DRIVER"
"""Environment variable that names the implementation; read once, when a driver is first needed."""

# What cuInit answers on a machine without a usable driver, and the sentence that helps.
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
_NO_LIBRARY = "no NVIDIA driver was found (libcuda could not be loaded): install the NVIDIA display driver"


class Implementation:
    """A driver, initialised when it is first called.

    Parameters
    ----------
    name : str
        The name that it was registered under.
    offers : object
        Module-like: the driver's functions by name, each returning the result code and then its values.
    """

    __slots__ = ("_lock", "_offers", "_ready", "name")

    def __init__(self, name: str, offers: Any) -> None:
        self.name = name
        self._offers = offers
        self._ready = False
        self._lock = threading.Lock()

    @property
    def image(self) -> str:
        """What it loads: "cubin", or "ptx" for a driver that says so in an attribute ``IMAGE``."""
        return str(getattr(self._offers, "IMAGE", "cubin"))

    def call(self, name: str, *args: Any) -> Any:
        """Return the values of the driver's function `name`, or raise what its result code means."""
        routine = self.function(name)
        try:
            result = routine(*args)
        except RuntimeError as error:
            if not _says_missing(error):
                raise
            raise self._lacks(name) from error
        return check(name, result, self._offers.cuGetErrorString)

    def function(self, name: str) -> Callable[..., Any]:
        """Return the raw function `name` of an initialised driver; its result code is the caller's to look at."""
        if not self._ready:
            self._initialise()
        routine = getattr(self._offers, name, None)
        if routine is None:
            raise UnsupportedError(f"{name} is not offered by the {self.name!r} driver ({bindings_version()})")
        return routine  # type: ignore[no-any-return]

    def raise_for(self, name: str, code: Any) -> None:
        """Raise `CudaError` for the result `code` of the function `name`; return if it is success."""
        check(name, (code,), self._offers.cuGetErrorString)

    def _initialise(self) -> None:
        with self._lock:
            if self._ready:
                return
            try:
                check("cuInit", self._offers.cuInit(0), self._offers.cuGetErrorString)
            except RuntimeError as error:  # the bindings look for libcuda at their first call
                raise NoDriverError(f"{_NO_LIBRARY} ({error})") from error
            except CudaError as error:
                if error.name in _NO_DRIVER:
                    raise NoDriverError(f"{_NO_DRIVER[error.name]} ({error})") from error
                raise
            self._ready = True

    def _lacks(self, name: str) -> UnsupportedError:
        major, minor = _decode(self.call("cuDriverGetVersion"))
        return UnsupportedError(
            f"the installed driver (CUDA {major}.{minor}) has no {name}: install a newer NVIDIA driver"
        )


def _cuda() -> Any:
    from cuda.bindings import driver  # noqa: PLC0415 - 60 ms, paid by those who touch a driver

    return driver


# The registry, and what was made from it. Process-wide on purpose: handles of two drivers do not mix.
_factories: dict[str, Callable[[], Any]] = {"cuda": _cuda}
_made: dict[str, Implementation] = {}
_selected: Implementation | None = None
_registry_lock = threading.RLock()


def register(name: str, factory: Callable[[], Any]) -> None:
    """Offer another implementation of the driver under `name`.

    Parameters
    ----------
    name : str
        What `use` and the environment variable call it. A second registration of a name replaces the first.
    factory : callable
        Takes nothing, returns a module-like object with the driver's functions; called when the name is first used.
    """
    with _registry_lock:
        _factories[name] = factory
        _made.pop(name, None)


def selected() -> Implementation:
    """Return the implementation that calls go to; a handle keeps it, to be released by whoever made it."""
    global _selected  # noqa: PLW0603 - one process, one driver
    if _selected is None:
        with _registry_lock:
            if _selected is None:
                _selected = _implementation(os.environ.get(VARIABLE) or "cuda")
    return _selected


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


def raise_for(name: str, code: Any) -> None:
    """Raise `CudaError` for the result `code` of the function `name`; return if it is success."""
    selected().raise_for(name, code)


def native() -> Any:
    """Return the module with the driver's types and enumerations; it needs no driver and serves every one."""
    return _cuda()


def version() -> tuple[int, int]:
    """Return the (major, minor) CUDA version that the driver supports, e.g. ``(13, 0)``."""
    return _decode(call("cuDriverGetVersion"))


def bindings_version() -> str:
    """Return the name and version of the installed bindings, for messages."""
    import cuda.bindings  # noqa: PLC0415 - only needed by an error message

    return f"cuda-bindings {cuda.bindings.__version__}"


def available() -> bool:
    """Tell whether the selected driver can be used; never raises for want of one."""
    return why_unavailable() is None


def why_unavailable() -> str | None:
    """Return one sentence that says why the selected driver cannot be used, or None if it can."""
    try:
        count = call("cuDeviceGetCount")
    except (ReduceError, ImportError) as error:
        return str(error)
    return None if count else _NO_DRIVER["CUDA_ERROR_NO_DEVICE"]


def _implementation(name: str) -> Implementation:
    if name not in _made:
        if name not in _factories:
            raise ValueError(f"no driver is registered as {name!r}; registered: {', '.join(sorted(_factories))}")
        _made[name] = Implementation(name, _factories[name]())
    return _made[name]


def _decode(number: int) -> tuple[int, int]:
    return number // 1000, number % 1000 // 10


def _says_missing(error: RuntimeError) -> bool:
    # The bindings raise FunctionNotFoundError("function cuX is not found"), which they keep in a private module;
    # older ones raise a plain RuntimeError with the same words.
    text = str(error).lower()
    return type(error).__name__ == "FunctionNotFoundError" or ("function" in text and "not found" in text)

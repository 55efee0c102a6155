"""Launching: a kernel, its configuration and a stream bound once, and then one driver call a launch."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

from lowlevel_reduce.driver import binding
from lowlevel_reduce.driver.attributes import AccessPolicyWindow, LaunchCompletionEvent, ProgrammaticEvent
from lowlevel_reduce.driver.checks import check_cluster, check_cooperative, check_kernel, check_launch
from lowlevel_reduce.driver.config import LaunchConfig, native_config
from lowlevel_reduce.driver.context import Context, current_handle
from lowlevel_reduce.driver.library import Kernel
from lowlevel_reduce.driver.stream import Stream

__all__ = [
    "AccessPolicyWindow",
    "BoundKernel",
    "LaunchCompletionEvent",
    "LaunchConfig",
    "ProgrammaticEvent",
    "check_cluster",
    "check_cooperative",
    "check_kernel",
    "check_launch",
    "launch",
    "native_config",
]

# One 8-byte slot an argument: the driver reads as many bytes of a slot as the kernel's parameter has, from its start.
_SLOT = {"Q": "Q", "q": "q", "d": "d", "I": "I4x", "i": "i4x", "f": "f4x"}


class BoundKernel:
    """A kernel bound to a configuration, a stream and the types of its arguments; calling it launches once.

    Everything is checked and built here, so that a call packs the arguments and makes one driver call: no allocation,
    no synchronisation, no query. It can be captured. The call returns when the launch is in the stream.

    Kernel, library and stream are kept alive. What the arguments point to, and events among the attributes, are the
    caller's to keep until the launch has run.

    Not re-entrant: the arguments of a call lie in memory of this object until the driver has copied them, so threads
    that launch at the same time need one each.

    Parameters
    ----------
    kernel : Kernel
        What to launch.
    config : LaunchConfig
        How.
    stream : Stream
        Where, or an object with ``__cuda_stream__``. A default stream stands for the context that is current now.
    signature : str
        One letter an argument, as in `struct`: "Q" for a pointer or a uint64, "q" int64, "I" uint32, "i" int32,
        "d" double, "f" float.
    constants : sequence of numbers
        Values of the last arguments, the same in every launch: they are packed here, and a call passes the others.

    Raises
    ------
    ValueError
        If a handle is closed, the signature has other letters or too few for the constants, the kernel cannot have such
        blocks, or a cooperative grid does not fit.
    UnsupportedError
        If the device or the bindings lack what the configuration asks.
    """

    __slots__ = (
        "_context",
        "_function",
        "_launch",
        "_library",
        "_native",
        "_pack",
        "_pointers",
        "_pointers_address",
        "_slots",
        "_stream",
        "config",
        "kernel",
        "signature",
    )

    def __init__(
        self,
        kernel: Kernel,
        config: LaunchConfig,
        stream: Stream,
        signature: str,
        *,
        constants: Sequence[float] = (),
    ) -> None:
        self.kernel = kernel
        self.config = config
        self.signature = signature
        self._stream = stream = Stream.of(stream)
        context = stream.context
        check_launch(kernel, config, context)
        # The driver takes the context from the stream, save for a default one, which stands for the current context.
        self._context: Context | None = context if stream.is_default else None
        self._library = kernel.library
        self._function = kernel.function
        self._native = native_config(config, stream.handle)
        count = len(signature)
        passed = count - len(constants)
        if passed < 0:
            raise ValueError(f"signature {signature!r} has {count} letters, fewer than the {len(constants)} constants")
        self._slots = (ctypes.c_uint64 * count)()
        struct.pack_into(_layout(signature[passed:]), self._slots, 8 * passed, *constants)
        self._pack = struct.Struct(_layout(signature[:passed])).pack_into
        first = ctypes.addressof(self._slots)
        self._pointers = (ctypes.c_void_p * count)(*(first + 8 * i for i in range(count)))
        self._pointers_address = ctypes.addressof(self._pointers) if count else 0
        self._launch = binding.function("cuLaunchKernelEx")

    @property
    def stream(self) -> Stream:
        """The stream that it launches into."""
        return self._stream

    def __call__(self, *values: float) -> None:
        """Launch with these arguments, one for each letter of the signature that has no constant, pointers as integers.

        Raises
        ------
        ValueError
            If the library or the stream was closed.
        struct.error
            If the arguments are too many, too few, or not of the signature's types; nothing is launched.
        CudaError
            If the driver refuses the launch, or a sticky error of an earlier one surfaces.
        """
        # Private attributes, not the properties that raise: this is the hot path, 3 µs with the driver's own 2.9.
        if self._library._handle is None or self._stream._handle is None:
            self._refuse()
        self._pack(self._slots, 0, *values)
        if self._context is not None:
            self._launch_in(self._context)
            return
        code = self._launch(self._native, self._function, self._pointers_address, 0)[0]
        if code:
            binding.raise_for("cuLaunchKernelEx", code)

    def _launch_in(self, context: Context) -> None:
        if current_handle() == context.handle:
            code = self._launch(self._native, self._function, self._pointers_address, 0)[0]
        else:
            with context.pushed():
                code = self._launch(self._native, self._function, self._pointers_address, 0)[0]
        binding.raise_for("cuLaunchKernelEx", code)

    def _refuse(self) -> None:
        # The properties say which of the two is closed.
        _ = self.kernel.handle, self._stream.handle

    def prebuilt(self) -> tuple[memoryview, Callable[..., Any], tuple[Any, ...]]:
        """Return what a call is made of, for a caller to whom a Python method call more is too much.

        Returns
        -------
        (memoryview, callable, tuple)
            The argument slots, one 64-bit unsigned integer each; the driver's function; and its arguments, this
            object's own: keep it alive. Its first result is falsy for success, else for `binding.raise_for`.

        Raises
        ------
        ValueError
            On a default stream: a launch there needs its context to be current, which a call sees to.
        """
        if self._context is not None:
            raise ValueError("a launch on a default stream cannot be taken apart: its context must be current")
        slots = memoryview(self._slots).cast("B").cast("Q")
        return slots, self._launch, (self._native, self._function, self._pointers_address, 0)

    def __repr__(self) -> str:
        return f"<BoundKernel {self.kernel.name!r} grid={self.config.grid} block={self.config.block}>"


def launch(kernel: Kernel, config: LaunchConfig, stream: Stream, signature: str, *values: Any) -> None:
    """Launch once: bind, then call. For more than one keep the `BoundKernel`, whose call is ten times cheaper."""
    BoundKernel(kernel, config, stream, signature)(*values)


def _layout(signature: str) -> str:
    unknown = sorted(set(signature) - set(_SLOT))
    if unknown:
        raise ValueError(
            f"signature {signature!r} has {', '.join(map(repr, unknown))}; an argument is one of {', '.join(_SLOT)}"
        )
    return "=" + "".join(_SLOT[letter] for letter in signature)

"""Launching: a kernel, its configuration and a stream bound once, and then one driver call a launch."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from lowlevel_reduce.driver import binding
from lowlevel_reduce.driver.checks import check_launch
from lowlevel_reduce.driver.config import LaunchConfig, native_config
from lowlevel_reduce.driver.context import Context
from lowlevel_reduce.driver.current import current_handle
from lowlevel_reduce.driver.library import Kernel
from lowlevel_reduce.driver.stream import Stream
from lowlevel_reduce.driver.turns import Turn

__all__ = ["BoundKernel", "launch"]

_T = TypeVar("_T")

# One 8-byte slot an argument: the driver reads as many bytes of a slot as the kernel's parameter has, from its start.
_SLOT = {"Q": "Q", "q": "q", "d": "d", "I": "I4x", "i": "i4x", "f": "f4x"}


class BoundKernel:
    """A kernel bound to a configuration, a stream and the types of its arguments; calling it launches once.

    Everything is checked and built here, so that a call packs the arguments and makes one driver call: no allocation,
    no synchronisation, no query. It can be captured. The call returns when the launch is in the stream.

    Kernel, library and stream are kept alive. What the arguments point to, and events among the attributes, are the
    caller's to keep until the launch has run.

    One thread at a time: the arguments of a call lie in memory of this object until the driver has copied them. A call
    that begins while another one is under way is refused, and so is closing the stream, the library or the context;
    threads that launch at the same time need a bound launch each.

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
    as_struct : bool
        Whether the kernel takes all of them as one struct, passed by value, whose fields are 8 bytes each.

    Raises
    ------
    ValueError
        If a handle is closed, the signature has other letters or too few for the constants, the kernel cannot have such
        blocks, or a cooperative grid does not fit.
    UnsupportedError
        If the device or the bindings lack what the configuration asks.
    """

    __slots__ = (
        "__weakref__",
        "_context",
        "_function",
        "_launch",
        "_library",
        "_native",
        "_pack",
        "_pointers",
        "_pointers_address",
        "_shares",
        "_slots",
        "_stream",
        "_turn",
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
        as_struct: bool = False,
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
        self._function = kernel.function_in(context)
        self._native = native_config(config, stream.handle)
        count = len(signature)
        passed = count - len(constants)
        if passed < 0:
            raise ValueError(f"signature {signature!r} has {count} letters, fewer than the {len(constants)} constants")
        self._slots = (ctypes.c_uint64 * count)()
        struct.pack_into(_layout(signature[passed:]), self._slots, 8 * passed, *constants)
        self._pack = struct.Struct(_layout(signature[:passed])).pack_into
        first = ctypes.addressof(self._slots)
        arguments = 1 if as_struct else count
        self._pointers = (ctypes.c_void_p * arguments)(*(first + 8 * i for i in range(arguments)))
        self._pointers_address = ctypes.addressof(self._pointers) if count else 0
        self._launch = binding.prebuilt("cuLaunchKernelEx", self._native, self._function, self._pointers_address, 0)
        self._shares = False
        self._join(Turn(functools.partial(_view, self._slots)))

    def _join(self, turn: Turn) -> None:
        self._turn = turn
        for handle in (self._stream, self._library, self.context):
            handle.serve(turn)

    @property
    def stream(self) -> Stream:
        """The stream that it launches into."""
        return self._stream

    @property
    def context(self) -> Context:
        """The context that it launches in; of a default stream what was current when it was bound, if it has none."""
        return self._context or self._stream.context

    @property
    def turn(self) -> Turn:
        """What a call takes, and who closes something that it needs."""
        return self._turn

    def share(self, turn: Turn) -> None:
        """Take another one's turn from now on, of a launch of several kernels; no call may be under way.

        Raises
        ------
        ValueError
            If the library, the stream or its context was closed.
        """
        if turn is not self._turn:
            self._shares = True
            self._join(turn)

    def __call__(self, *values: float) -> None:
        """Launch with these arguments, one for each letter of the signature that has no constant, pointers as integers.

        Raises
        ------
        ValueError
            If the library, the stream or its context was closed.
        ReduceError
            If another call of this object is under way.
        struct.error
            If the arguments are too many, too few, or not of the signature's types; nothing is launched.
        CudaError
            If the driver refuses the launch, or a sticky error of an earlier one surfaces.
        """
        try:
            item = self._turn.idle.pop()
        except IndexError:
            item = self._turn.retake(self)
        try:
            self._pack(self._slots, 0, *values)
            code = self._launch() if self._context is None else self._launch_in(self._context)
        finally:
            self._turn.idle.append(item)
        if code:
            binding.raise_for("cuLaunchKernelEx", code)

    def put(self, *values: float) -> None:
        """Launch as a call does, for who has the turn."""
        self._pack(self._slots, 0, *values)
        code = self._launch() if self._context is None else self._launch_in(self._context)
        if code:
            binding.raise_for("cuLaunchKernelEx", code)

    def _launch_in(self, context: Context) -> int:
        if current_handle() == context.handle:
            return self._launch()
        with context.pushed():
            return self._launch()

    def packed_for(self, use: Callable[[int], _T], *values: float) -> _T:
        """Return what `use` does of the address of a table of these arguments' addresses, which are in place meanwhile.

        It is what the driver takes as ``kernelParams``, e.g. of a graph node, which copies the arguments at once. No
        call can begin before `use` ends; after that the arguments are there until the next one.

        Raises
        ------
        ValueError, ReduceError, struct.error
            As a call.
        """
        # No context manager: its end is code, to which an interrupt can come first.
        try:
            item = self._turn.idle.pop()
        except IndexError:
            item = self._turn.retake(self)
        try:
            self._pack(self._slots, 0, *values)
            used = use(self._pointers_address)
        finally:
            self._turn.idle.append(item)
        return used

    def prebuilt(self, *, in_context: bool = False) -> tuple[Turn, Callable[[], int]]:
        """Return what a call is made of, for a caller to whom a Python method call more is too much.

        Parameters
        ----------
        in_context : bool
            Whether the caller sees to it that a default stream's context is current.

        Returns
        -------
        (Turn, callable)
            The item of the turn is the argument slots, one 64-bit unsigned integer each: how it is taken and given
            back, the class says. The callable is the driver call, which returns its result code: 0, or one for
            `binding.raise_for`. Both are this object's own: keep it alive.

        Raises
        ------
        ValueError
            On a default stream, unless `in_context`; of a kernel that shares another one's turn.
        """
        if self._shares:
            raise ValueError("a kernel among several cannot be taken apart: the turn, and its slots, are another one's")
        if self._context is not None and not in_context:
            raise ValueError("a launch on a default stream cannot be taken apart: its context must be current")
        return self._turn, self._launch

    def __repr__(self) -> str:
        return f"<BoundKernel {self.kernel.name!r} grid={self.config.grid} block={self.config.block}>"


def launch(kernel: Kernel, config: LaunchConfig, stream: Stream, signature: str, *values: Any) -> None:
    """Launch once: bind, then call. For more than one keep the `BoundKernel`, whose call is ten times cheaper."""
    BoundKernel(kernel, config, stream, signature)(*values)


def _view(slots: ctypes.Array[ctypes.c_uint64]) -> memoryview:
    return memoryview(slots).cast("B").cast("Q")


def _layout(signature: str) -> str:
    unknown = sorted(set(signature) - set(_SLOT))
    if unknown:
        raise ValueError(
            f"signature {signature!r} has {', '.join(map(repr, unknown))}; an argument is one of {', '.join(_SLOT)}"
        )
    return "=" + "".join(_SLOT[letter] for letter in signature)

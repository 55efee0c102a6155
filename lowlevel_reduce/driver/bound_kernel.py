"""Launching: a kernel, its configuration and a stream are bound once; then each launch is one driver call."""

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

# One 8-byte slot per argument: the driver reads as many bytes of a slot as the kernel's parameter has, from its start.
_SLOT = {"Q": "Q", "q": "q", "d": "d", "I": "I4x", "i": "i4x", "f": "f4x"}


class BoundKernel:
    """A kernel bound to a configuration, a stream and the types of its arguments; calling it launches once.

    Everything is checked and built here, so that a call only packs the arguments and makes one driver call: no
    allocation, no synchronisation, no query. A call can be captured. It returns when the launch is in the stream.

    Kernel, library and stream are kept alive. The caller must keep what the arguments point to, and events among the
    attributes, until the launch has run.

    For one thread at a time: the arguments of a call are in memory of this object until the driver has copied them.
    While a call is in progress, another call is refused, and so is closing the stream, the library or the context.
    Threads that launch at the same time need one bound launch each.

    Parameters
    ----------
    kernel : Kernel
        The kernel to launch.
    config : LaunchConfig
        Grid, block and launch attributes.
    stream : Stream
        The stream, or an object with ``__cuda_stream__``. A default stream without a context is that of the context
        that is current now.
    signature : str
        One letter for each argument, as in `struct`: "Q" for a pointer or a uint64, "q" int64, "I" uint32, "i" int32,
        "d" double, "f" float.
    constants : sequence of numbers
        Values of the last arguments, the same in every launch: they are packed here, and a call passes only the others.
    as_struct : bool
        Whether the kernel takes all of them as one struct, passed by value, whose fields are 8 bytes each.

    Raises
    ------
    ValueError
        If a handle is closed, the signature has unknown letters or fewer than there are constants, the kernel cannot
        have such blocks, or a cooperative grid does not fit.
    UnsupportedError
        If the device or the bindings do not support what the configuration asks for.

    Attributes
    ----------
    alignments : tuple of int
        What the first arguments, which are addresses, must be multiples of; calls and nodes with others are refused.
        Empty unless whoever made it sets it.
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
        "alignments",
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
        self.alignments: tuple[int, ...] = ()
        self.signature = signature
        self._stream = stream = Stream.of(stream)
        context = stream.context
        # The driver takes the context from the stream, save for a default one, which stands for the current context.
        self._context: Context | None = context if stream.is_default else None
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
        self._aim(kernel, config)
        self._shares = False
        self._join(Turn(functools.partial(_view, self._slots)))

    def _aim(self, kernel: Kernel, config: LaunchConfig) -> None:
        """Make calls launch this kernel, with the arguments that there are."""
        check_launch(kernel, config, self.context)
        self.kernel = kernel
        self.config = config
        self._library = kernel.library
        self._function = kernel.function_in(self.context)
        self._native = native_config(config, self._stream.handle)
        self._launch = binding.prebuilt("cuLaunchKernelEx", self._native, self._function, self._pointers_address, 0)

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
        """The context that it launches in; for a default stream without one, the context current when it was bound."""
        return self._context or self._stream.context

    @property
    def turn(self) -> Turn:
        """The turn that a call takes, as does closing something that a call needs."""
        return self._turn

    def share(self, turn: Turn) -> None:
        """Use the turn of another kernel from now on, for a launch of several kernels; no call may be in progress.

        Raises
        ------
        ValueError
            If the library, the stream or its context was closed.
        """
        if turn is not self._turn:
            self._shares = True
            self._join(turn)

    def __call__(self, *values: float) -> None:
        """Launch with these arguments: one for each letter of the signature without a constant; pointers are integers.

        Raises
        ------
        ValueError
            If the library, the stream or its context was closed, or an address does not suit `alignments`.
        ReduceError
            If another call of this object is in progress.
        struct.error
            If there are too many or too few arguments, or they do not have the signature's types; nothing is launched.
        CudaError
            If the driver refuses the launch, or reports a sticky error of an earlier one.
        """
        try:
            item = self._turn.idle.pop()
        except IndexError:
            item = self._turn.retake(self)
        try:
            if self.alignments:
                self._check_alignments(values)
            self._pack(self._slots, 0, *values)
            code = self._launch() if self._context is None else self._launch_in(self._context)
        finally:
            self._turn.idle.append(item)
        if code:
            binding.raise_for("cuLaunchKernelEx", code)

    def _check_alignments(self, values: Sequence[float]) -> None:
        for value, alignment in zip(values, self.alignments):  # noqa: B905 - the other arguments are no addresses
            if int(value) % alignment:
                raise ValueError(
                    f"{self.kernel.name} takes addresses at multiples of {alignment} bytes, not {int(value):#x}: "
                    "kernels_for of the launch returns one that takes it"
                )

    def regrid(self, blocks: int, threads: int) -> None:
        """Launch so many blocks of so many threads from now on, for a caller that has the turn.

        It must know that the kernel can have such blocks. `config` stays as it is. The grid must be one that the
        cluster divides, and not that of a cooperative launch; with either, blocks must be as they are.
        """
        self._native.gridDimX = blocks
        self._native.blockDimX = threads

    def put(self, *values: float) -> None:
        """Launch as a call does, for a caller that already has the turn."""
        self._pack(self._slots, 0, *values)
        code = self._launch() if self._context is None else self._launch_in(self._context)
        if code:
            binding.raise_for("cuLaunchKernelEx", code)

    def _launch_in(self, context: Context) -> int:
        if current_handle() == context.handle:
            return self._launch()
        with context.pushed():
            return self._launch()

    def again(self, *, in_context: bool = False) -> int:
        """Launch with the arguments in place, for a caller that has the turn; return the driver's result code.

        `in_context` is as for `prebuilt`.
        """
        return self._launch() if in_context or self._context is None else self._launch_in(self._context)

    def sibling(self, kernel: Kernel, config: LaunchConfig) -> BoundKernel:
        """Return another kernel bound to the same stream, arguments and turn: only one of them is in a call at a time.

        Raises
        ------
        ValueError, UnsupportedError
            As the constructor.
        """
        other = object.__new__(BoundKernel)
        for name in ("_context", "_pack", "_pointers", "_pointers_address", "_slots", "_stream", "signature"):
            setattr(other, name, getattr(self, name))
        other.alignments = ()
        other._aim(kernel, config)
        other._shares = True
        other._join(self._turn)
        return other

    def packed_for(self, use: Callable[[int], _T], *values: float) -> _T:
        """Put these arguments in place, and return what `use` returns for the address of the table of their addresses.

        The driver takes that address as ``kernelParams``, for example of a graph node, and copies the arguments at
        once. No call can begin before `use` ends; afterwards the arguments stay in place until the next call.

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
            self._check_alignments(values)
            self._pack(self._slots, 0, *values)
            used = use(self._pointers_address)
        finally:
            self._turn.idle.append(item)
        return used

    def prebuilt(self, *, in_context: bool = False) -> tuple[Turn, Callable[[], int]]:
        """Return the parts of a call, for a caller that cannot afford one more Python method call.

        Parameters
        ----------
        in_context : bool
            Whether the caller makes sure that a default stream's context is current.

        Returns
        -------
        (Turn, callable)
            The item of the turn is the argument slots, one 64-bit unsigned integer each; `Turn` says how it is taken
            and given back. The callable makes the driver call and returns its result code: 0, or one for
            `binding.raise_for`. Both belong to this object: keep it alive.

        Raises
        ------
        ValueError
            For a default stream, unless `in_context`; for a kernel that shares another one's turn.
        """
        if self._shares:
            raise ValueError("a kernel among several cannot be taken apart: the turn, and its slots, are another one's")
        if self._context is not None and not in_context:
            raise ValueError("a launch on a default stream cannot be taken apart: its context must be current")
        return self._turn, self._launch

    def __repr__(self) -> str:
        where = f"grid={self.config.grid} block={self.config.block} on {self._stream!r}"
        return f"<BoundKernel {self.kernel.name!r}{' closed' if self._library.is_closed else ''} {where}>"


def launch(kernel: Kernel, config: LaunchConfig, stream: Stream, signature: str, *values: Any) -> None:
    """Launch once: bind, then call. To launch repeatedly, keep a `BoundKernel`: its call is ten times cheaper."""
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

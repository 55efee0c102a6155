"""Bound launches: a reduction that lacks only its addresses, and the check of such addresses."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lowlevel_reduce.arguments import integer, shown
from lowlevel_reduce.driver import Buffer, Stream, binding
from lowlevel_reduce.driver.pointers import check_pointer
from lowlevel_reduce.driver.turns import Reason, Turn
from lowlevel_reduce.errors import ReduceError

if TYPE_CHECKING:
    from lowlevel_reduce.driver import BoundKernel, Context, Kernel, LaunchConfig

__all__ = ["BoundReduction", "DirectReduction", "Extents", "check_addresses"]


class Extents(NamedTuple):
    """Which bytes a launch touches, as offsets from the addresses that it is given.

    Attributes
    ----------
    low, high : int
        First byte of the first array and the one past its last, relative to its address. Negative strides make `low`
        negative.
    second_low, second_high : int
        The same for the second array; both 0 if there is none.
    has_second : bool
        Whether the operator takes a second array.
    alignment, second_alignment : int
        What the first and the second array's address must be multiples of: 1, but for partials and for the offsets of
        segments, which lie at multiples of their words' size.
    result_bytes, result_alignment : int
        Bytes of all results together, and what their address must be a multiple of.
    vector_bytes, second_vector_bytes : int
        What the first and the second array's address must be multiples of for the kernels for aligned arrays.
    aligned_only : bool
        Whether there are no other kernels, so that other addresses are refused.
    """

    low: int
    high: int
    result_bytes: int
    result_alignment: int
    has_second: bool = False
    second_low: int = 0
    second_high: int = 0
    second_alignment: int = 1
    vector_bytes: int = 1
    second_vector_bytes: int = 1
    aligned_only: bool = False
    alignment: int = 1

    def overlap(self, begin: int, end: int, result: int) -> bool:
        """Tell whether results at the address `result` overlap the bytes from address `begin` to `end`."""
        return begin < result + self.result_bytes and result < end


class BoundReduction:
    """A plan bound to a stream. Calling it launches: one driver call (two for `two_pass` and segments), nothing else.

    A call allocates nothing, does not synchronise, and can be captured into a graph. Launches in one stream run one
    after the other and may share a workspace. A bound launch is for one thread at a time: while a call is in progress,
    another call is refused, and so is closing the bound launch, its stream or its context.

    Attributes
    ----------
    kernels : tuple of BoundKernel
        What a call launches, in order, if the arrays are aligned, as `kernels_for` says; empty if there are no results.
    stream : Stream
        Where it runs.
    context : Context
        The stream's context when it was bound.
    workspace : Buffer
        Memory for partials; of zero bytes if the strategy needs none.
    extents : Extents
        Which bytes a call touches, relative to the addresses that it is given.
    mask : int
        The bits that the first array's address lacks where `kernels` are launched; 0 if they take any address.
    """

    __slots__ = (
        *("_closed", "_kept", "_load_twins", "_second_mask", "_turn", "_twins", "_unfinished"),
        *("context", "extents", "kernels", "mask", "stream", "workspace"),
    )

    def __init__(
        self,
        kernels: Sequence[BoundKernel],
        stream: Stream,
        workspace: Buffer,
        extents: Extents,
        load_twins: Callable[[], Sequence[tuple[Kernel, LaunchConfig]]] | None = None,
    ) -> None:
        self.kernels = tuple(kernels)
        self._kept: dict[Kernel, None] | None = None
        self._load_twins = load_twins
        differ = extents.aligned_only or load_twins is not None
        self._twins: tuple[BoundKernel, ...] | None = None if differ else self.kernels
        self.mask = self._second_mask = 0  # all addresses are alike to kernels without twins
        if differ:
            self.mask, self._second_mask = extents.vector_bytes - 1, extents.second_vector_bytes - 1
            for kernel in self.kernels:
                kernel.alignments = (extents.vector_bytes, 1, extents.second_vector_bytes)
        # One for all kernels: a call of several is under way from before the first to after the last.
        self._turn = self.kernels[0].turn if kernels else Turn(set)
        for kernel in self.kernels[1:]:
            kernel.share(self._turn)
        self._unfinished = False  # whether a call of several kernels ended before the last, by an error or an interrupt
        self.stream = stream
        self.context = stream.context
        self.workspace = workspace
        self.extents = extents
        self._prepare()

    def _prepare(self) -> None:
        """Build what the calls of a subclass need."""

    def __call__(self, source: Any, result: Any, second: Any = None) -> None:
        """Put the reduction into the stream.

        Parameters
        ----------
        source, result : int or array
            Device addresses of the first element, at any alignment, and of the first result, aligned to its size. They
            are not checked; `check` does that, at the cost of driver calls. A `DeviceArray`, or an array of PyTorch or
            CuPy, stands for the address of its first element, and must reach as far as the launch. Its type is not
            looked at, and as with addresses, the order after the work of other streams is the caller's.
        second : int or array, optional
            The same of the second array; required for operators that take one, refused for others. For segments, of
            the offsets, aligned to their size.

        Raises
        ------
        TypeError, ValueError
            If an address is not an unsigned 64-bit integer, or the second one is missing or not expected, or an array
            is too small; nothing is launched.
        ValueError
            If the bound launch, the stream or its context was closed.
        ReduceError
            If another thread is in a call of it.
        CudaError
            If the driver refuses the launch, or reports an error of an earlier one.
        """
        if (second is None) == self.extents.has_second:
            raise TypeError(f"this reduction takes {'two arrays' if self.extents.has_second else 'one array'}")
        if type(source) is not int or type(result) is not int or second is not None:
            source, result, second = _addresses_of(self.extents, source, result, second)
        try:
            item = self._turn.idle.pop()
        except IndexError:
            item = self._turn.retake(self)
        try:
            if self._unfinished:  # the first kernel may have left in the workspace what the last one takes out of it
                with self.context.pushed():  # which a default stream without a context stands for
                    self.workspace.fill(0, stream=self.stream)
            kernels = self.kernels_for(source, second) if self.mask else self.kernels
            self._unfinished = len(kernels) > 1
            for kernel in kernels:
                kernel.put(source, result, second or 0)
            self._unfinished = False
        except (TypeError, struct.error):
            _check_addresses(source=source, result=result, second=0 if second is None else second)
            raise
        finally:
            self._turn.idle.append(item)

    def kernels_for(self, source: int, second: int | None = None) -> tuple[BoundKernel, ...]:
        """Return what a call with these addresses launches, in order; empty if there are no results.

        They are `kernels` for arrays that begin at multiples of 16 bytes (a mask at one of as many bytes as a vector of
        16 bytes has elements), else kernels for arrays at any address, which are loaded, and if need be compiled, when
        they are first asked for. For ``Graph.add_kernel`` and ``GraphExec.set_kernel``: each takes ``(source, result,
        second)``, with 0 if there is no second array.

        Raises
        ------
        TypeError
            If an address is not an integer.
        ValueError
            If the plan was made for aligned arrays alone, and these are not.
        CompileError, NoCompilerError, CacheError, CudaError
            From loading a kernel.
        """
        try:
            aligned = not (source & self.mask or (second or 0) & self._second_mask)
        except TypeError:
            raise TypeError(f"a device address is an integer, not {shown(source)} or {shown(second)}") from None
        if aligned:
            return self.kernels
        if self._twins is None:
            self._twins = self._bound_twins()
        return self._twins

    def _bound_twins(self) -> tuple[BoundKernel, ...]:
        if self.extents.aligned_only:
            raise ValueError(self._only_aligned())
        pairs = self._load_twins() if self._load_twins else ()
        if self._kept is not None:
            self._kept.update((kernel, None) for kernel, _ in pairs)
        return tuple(each.sibling(kernel, config) for each, (kernel, config) in zip(self.kernels, pairs, strict=True))

    def _only_aligned(self) -> str:
        first, second = self.extents.vector_bytes, self.extents.second_vector_bytes
        both = f", and the second at one of {second}," if self.extents.has_second else ""
        return f"the plan was made with alignment={first}: an array begins at a multiple of {first} bytes{both} here"

    def keep_loaded(self, kept: dict[Kernel, None]) -> None:
        """Put its kernels into a dictionary that keeps them loaded, those that are loaded later as well."""
        self._kept = kept
        kept.update(dict.fromkeys(each.kernel for each in (*self.kernels, *(self._twins or ()))))

    def check(self, source: Any, result: Any, second: Any = None) -> None:
        """Refuse addresses, or arrays, that a launch must not be given; launches nothing.

        Raises
        ------
        TypeError
            If one is not an integer, or the second one is missing or not expected.
        ValueError
            If one is not device memory, or of another device or context; if its allocation is too short; if the result
            or the offsets are misaligned, or an array where the plan has kernels for aligned ones alone; if the result
            overlaps an input. If the bound launch, the stream or its
            context was closed.
        """
        self._turn.refuse()
        extents = self.extents
        source, result, second = _addresses_of(extents, source, result, second)
        if extents.aligned_only and (source & self.mask or (second or 0) & self._second_mask):
            raise ValueError(self._only_aligned())
        check_addresses(extents, self.context, source, result, second)

    @property
    def is_free(self) -> bool:
        """Whether a call would be accepted now: none is in progress, and nothing that it needs was closed."""
        return self._turn.is_free

    def close(self) -> None:
        """Free the workspace, if the bound launch allocated it; a second call does nothing.

        All launches must have run before.

        Raises
        ------
        ReduceError
            If another thread is in a call of it; nothing is changed.
        """
        if self.workspace.is_closed:
            return
        reason = Reason("the bound launch is closed")
        if not self._turn.halt(reason):
            raise ReduceError("the bound launch cannot be closed: another thread is in a call of it")
        self._closed = reason
        # An interrupt here leaves a launch that refuses, and is to be closed once more.
        self.workspace.close()

    def __repr__(self) -> str:
        names = " ".join(["closed"] * self.workspace.is_closed + [each.kernel.name for each in self.kernels])
        return f"<{type(self).__name__} {names} on {self.stream!r}>"


class DirectReduction(BoundReduction):
    """One kernel, one array, a real stream: `BoundKernel`'s call, written out, for a tenth of the launch's time."""

    __slots__ = ("_launch",)

    def _prepare(self) -> None:
        _, self._launch = self.kernels[0].prebuilt()

    def __call__(self, source: Any, result: Any, second: Any = None) -> None:
        """Put the reduction into the stream, as `BoundReduction` does."""
        # The hot path. No property, no method of ours: each would cost as much as all of this. Who closes the stream,
        # its context or the launch takes the slots away, so that finding them says that all of these are open. Whatever
        # an interrupt leaves undone of this, `Turn` finds out and mends.
        if second is not None:
            raise TypeError("this reduction takes one array")
        if type(source) is not int or type(result) is not int:  # an array of one integer would be taken for that
            source, result, _ = _addresses_of(self.extents, source, result, None)
        try:
            slots = self._turn.idle.pop()
        except IndexError:
            slots = self._turn.retake(self)
        try:
            slots[0] = source
            slots[1] = result
            code = self.kernels_for(source)[0].again() if source & self.mask else self._launch()
        except (TypeError, ValueError):
            _check_addresses(source=source, result=result)
            raise
        finally:
            self._turn.idle.append(slots)
        if code:
            binding.raise_for("cuLaunchKernelEx", code)


def _addresses_of(extents: Extents, source: Any, result: Any, second: Any) -> tuple[Any, Any, Any]:
    from lowlevel_reduce.plans.addresses import addresses_of  # noqa: PLC0415 - most launch by addresses

    return addresses_of(extents, source, result, second)


def _check_addresses(**addresses: object) -> None:
    """Say in words which address cannot be one, for whoever met an error that does not."""
    for name, value in addresses.items():
        number = integer(value, f"{name} is a device address, an integer, or an array on the device")
        if not 0 <= number < 1 << 64:
            raise ValueError(f"{name} is a device address of 64 bits, not {number}")


def check_addresses(
    extents: Extents,
    context: Context,
    source: int,
    result: int,
    second: int | None = None,
    *,
    trusted: tuple[bool, bool, bool] = (False, False, False),
) -> None:
    """Refuse addresses that a launch must not be given.

    Parameters
    ----------
    extents : Extents
        Which bytes the launch touches.
    context : Context
        Where it runs.
    source, result, second : int
        The addresses.
    trusted : tuple of bool
        Of source, result and second, whether it is known to be memory of the context, as much as is due: then the
        driver is not asked.

    Raises
    ------
    TypeError, ValueError
        As `BoundReduction.check`.
    """
    if (second is None) == extents.has_second:
        raise TypeError(f"this reduction takes {'two arrays' if extents.has_second else 'one array'}")
    rule = "a device address is an integer"  # of Python's from here on: NumPy's would not add to a negative one
    source, result = integer(source, rule), integer(result, rule)
    spans = [(source + extents.low, source + extents.high, "input", source)]
    alignments = [extents.alignment]
    if second is not None:
        second = integer(second, rule)
        spans.append((second + extents.second_low, second + extents.second_high, "second input", second))
        alignments.append(extents.second_alignment)
    known = (trusted[0], trusted[2])
    for (begin, end, what, _), alignment, is_known in zip(spans, alignments, known):  # noqa: B905 - perhaps one array
        if begin < end and not (is_known and begin % alignment == 0):
            check_pointer(begin, end - begin, context, what=f"the {what}", alignment=alignment)
    size, alignment = extents.result_bytes, extents.result_alignment
    if size and not (trusted[1] and result % alignment == 0):
        check_pointer(result, size, context, what="the result", alignment=alignment)
    for begin, end, what, address in spans:
        if begin < end and extents.overlap(begin, end, result):
            raise ValueError(f"the result at {result:#x} overlaps the {what} at {address:#x}")

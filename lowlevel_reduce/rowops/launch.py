"""A bound row operation: one driver call, and the check of the addresses that it is given."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lowlevel_reduce.arguments import integer
from lowlevel_reduce.driver.pointers import check_pointer

if TYPE_CHECKING:
    from lowlevel_reduce.driver import BoundKernel, Context, Kernel, LaunchConfig, Stream

__all__ = ["ArrayCheck", "RowLaunch", "check_arrays"]


class ArrayCheck(NamedTuple):
    """Which bytes of an array a launch touches, and how.

    Attributes
    ----------
    name : str
        What the array is.
    low, high : int
        First byte and the one past the last, relative to its address.
    alignment : int
        What its address must be a multiple of: an element's size.
    vector : int
        What it must be a multiple of for the kernel for aligned arrays.
    written : bool
        Whether it is written.
    form : tuple
        Equal for two arrays whose elements of the same number lie at the same place, if their addresses are equal.
    """

    name: str
    low: int
    high: int
    alignment: int
    vector: int
    written: bool
    form: tuple[Any, ...]


def check_arrays(
    arrays: Sequence[ArrayCheck], addresses: Sequence[int], context: Context, trusted: Sequence[bool] = ()
) -> None:
    """Refuse addresses as `RowLaunch.check`; the driver is not asked about arrays that are trusted."""
    if len(addresses) != len(arrays):
        raise TypeError(f"this row operation takes {len(arrays)} addresses, not {len(addresses)}")
    spans = []
    for k, (each, given) in enumerate(zip(arrays, addresses, strict=True)):
        address = integer(given, f"{each.name} is a device address, an integer")
        low, high = address + each.low, address + each.high
        is_known = bool(trusted) and trusted[k] and low % each.alignment == 0
        if high > low and not is_known:
            check_pointer(low, high - low, context, what=each.name, alignment=each.alignment)
        spans.append((each, address, low, high))
    for k, (one, address, low, high) in enumerate(spans):
        for other, where, begin, end in spans[:k]:
            if not (one.written or other.written) or low >= end or begin >= high:
                continue
            in_place = one.written != other.written and address == where and one.form == other.form
            if not in_place:
                raise ValueError(
                    f"{one.name} at {address:#x} overlaps {other.name} at {where:#x}; what is written may only "
                    "take the place of an array of rows of the same strides and element size"
                )


class RowLaunch:
    """A row operation bound to a stream. Calling it launches: one driver call, no allocation, no wait; capturable.

    It is for one thread at a time, as a `BoundReduction` is.

    Attributes
    ----------
    stream : Stream
        Where it runs.
    context : Context
        The stream's context.
    arrays : tuple of ArrayCheck
        What a call takes the addresses of, in order.
    """

    __slots__ = ("_kept", "_kernel", "_load_twin", "_masks", "_twin", "arrays", "context", "stream")

    def __init__(
        self,
        kernel: BoundKernel | None,
        stream: Stream,
        arrays: tuple[ArrayCheck, ...],
        load_twin: Callable[[], tuple[Kernel, LaunchConfig]] | None,
    ) -> None:
        self._kernel = kernel
        self._load_twin = load_twin
        self._twin: BoundKernel | None = None
        self._kept: dict[Kernel, None] | None = None
        self._masks = tuple((k, each.vector - 1) for k, each in enumerate(arrays) if each.vector > each.alignment)
        self.arrays = arrays
        self.stream = stream
        self.context = stream.context

    def __call__(self, *addresses: int) -> None:
        """Put the operation into the stream.

        Parameters
        ----------
        *addresses : int
            Device addresses, one for each of `arrays`, each a multiple of an element's size. They are not checked;
            `check` does that, at the cost of driver calls.

        Raises
        ------
        TypeError, ValueError
            If there are too few or too many, or one is not an unsigned 64-bit integer; nothing is launched. If the
            stream or its context was closed.
        ReduceError
            If another thread is in a call of it.
        CudaError
            If the driver refuses the launch, or reports an error of an earlier one.
        """
        kernel = self.kernel_for(*addresses)
        if kernel is None:
            return
        try:
            kernel(*addresses)
        except struct.error:
            for each, address in zip(self.arrays, addresses, strict=True):
                number = integer(address, f"{each.name} is a device address, an integer")
                if not 0 <= number < 1 << 64:
                    raise ValueError(f"{each.name} is a device address of 64 bits, not {number}") from None
            raise

    def kernel_for(self, *addresses: int) -> BoundKernel | None:
        """Return what a call with these addresses launches; None if there are no rows."""
        if len(addresses) != len(self.arrays):
            names = ", ".join(each.name for each in self.arrays)
            raise TypeError(f"this row operation takes {len(self.arrays)} addresses ({names}), not {len(addresses)}")
        if self._load_twin is None or not any(addresses[k] & mask for k, mask in self._masks):
            return self._kernel
        if self._twin is None and self._kernel is not None:
            kernel, config = self._load_twin()
            if self._kept is not None:
                self._kept[kernel] = None
            self._twin = self._kernel.sibling(kernel, config)
        return self._twin

    def check(self, *addresses: int) -> None:
        """Refuse addresses that a launch must not be given; launches nothing.

        Raises
        ------
        TypeError
            If one is not an integer, or there are too few or too many.
        ValueError
            If one is not device memory, of another device or context, too short, or misaligned for its elements; if an
            array that is written overlaps another one, unless it is an input of the same layout at the same address:
            then the operation works in place.
        """
        check_arrays(self.arrays, addresses, self.context)

    @property
    def is_free(self) -> bool:
        """Whether a call would be accepted now."""
        return self._kernel is None or self._kernel.turn.is_free

    def keep_loaded(self, kept: dict[Kernel, None]) -> None:
        """Put its kernels into a dictionary that keeps them loaded, those that are loaded later as well."""
        self._kept = kept
        kept.update((each.kernel, None) for each in (self._kernel, self._twin) if each is not None)

    def close(self) -> None:
        """Do nothing: it has no memory of its own."""

    def __repr__(self) -> str:
        name = self._kernel.kernel.name if self._kernel else "nothing"
        return f"<RowLaunch {name} on {self.stream!r}>"

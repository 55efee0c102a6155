"""A row operation that is prepared in a place: its launch lacks the addresses, its outputs their memory."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lowlevel_reduce.arrays.results import cell_size
from lowlevel_reduce.driver import binding
from lowlevel_reduce.errors import ReduceError
from lowlevel_reduce.operators import result_tuple

if TYPE_CHECKING:
    from lowlevel_reduce.calls.places import Place
    from lowlevel_reduce.driver import BoundKernel
    from lowlevel_reduce.rowops.plan import RowPlan

__all__ = ["PreparedRows"]


class PreparedRows:
    """A plan of a row operation in a place, which only the place's thread uses.

    Attributes
    ----------
    plan : RowPlan
        The plan.
    place : Place
        Where it is launched.
    outputs : tuple
        Of each output the type, the shape that a caller sees, the bytes, and the size of a cell for it.
    """

    __slots__ = ("_kernels", "_mask", "_masks", "_pack", "_tuple", "outputs", "place", "plan")

    def __init__(self, plan: RowPlan, place: Place, whole: tuple[int, ...]) -> None:
        operation = plan.operation
        self.plan = plan
        self.place = place
        shapes = [whole] * len(operation.write) + [plan.shape[:-1]] * len(operation.keep)
        sizes = [math.prod(each) * dtype.itemsize for each, dtype in zip(shapes, plan.output_dtypes, strict=True)]
        self.outputs = tuple(zip(plan.output_dtypes, shapes, sizes, map(cell_size, sizes), strict=True))
        self._tuple = result_tuple(operation.name, (*operation.write, *operation.keep))
        self._pack = struct.Struct(f"={len(plan.addresses)}Q").pack_into
        self._masks = plan.masks
        self._mask = any(self._masks)
        self._kernels: list[BoundKernel | None] = [None, None]  # for aligned arrays, and for others

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to launch."""
        return self.plan.mapping is None

    def kernel(self, addresses: Sequence[int]) -> BoundKernel:
        """Return the kernel for these addresses, bound to the place's stream; it is loaded where it was not yet."""
        is_twin = self._mask and any(map(int.__and__, addresses, self._masks))
        found = self._kernels[is_twin]
        if found is None or not (found.turn.idle or self.place.is_over):
            # One that is in use is that of a call which a signal's handler has interrupted, and goes with this call.
            found = self._kernels[is_twin] = self.plan.bound(self.place.stream, twin=is_twin)
        return found

    def launch(self, addresses: Sequence[int]) -> bool:
        """Put it into the stream, whose context is current if it is a default one; False if that cannot be done now.

        Then nothing was launched: something was closed.
        """
        kernel = self.kernel(addresses)
        turn = kernel.turn
        try:
            words = turn.idle.pop()
        except IndexError:
            return False
        try:
            self._pack(words, 0, *addresses)
            code = kernel.again(in_context=True)
        finally:
            turn.idle.append(words)
        if code:
            binding.raise_for("cuLaunchKernelEx", code)
        return True

    def refuse(self, addresses: Sequence[int]) -> None:
        """Raise why it cannot be launched.

        Raises
        ------
        ValueError, NoDriverError
            As something was closed.
        ReduceError
            As another call is under way.
        """
        self.kernel(addresses).turn.refuse()
        raise ReduceError("a call cannot be made while it is interrupted by another one")

    def results(self, arrays: Sequence[Any]) -> Any:
        """Return several outputs as a named tuple, one as it is."""
        return arrays[0] if len(arrays) == 1 else self._tuple(*arrays)

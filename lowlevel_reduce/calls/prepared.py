"""A problem that is prepared in a place: its launches lack the addresses, its results their memory."""

from __future__ import annotations

import functools
import itertools
import math
import struct
from abc import abstractmethod
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from lowlevel_reduce.arrays.device_array import DeviceArray
from lowlevel_reduce.arrays.results import Cell, Part, cell_size
from lowlevel_reduce.calls.places import Launcher, Place, Workspace, constants_of
from lowlevel_reduce.driver import Buffer, Stream, binding
from lowlevel_reduce.driver.library import kernels_of_graphs
from lowlevel_reduce.dtypes import VECTOR_BYTES
from lowlevel_reduce.errors import ReduceError
from lowlevel_reduce.plans.launch import Extents, check_addresses

if TYPE_CHECKING:
    import numpy as np

    from lowlevel_reduce.arrays.allocator import Allocator
    from lowlevel_reduce.calls.forms import Form
    from lowlevel_reduce.plans.base import BasePlan
    from lowlevel_reduce.plans.mapping import MappedKernel

__all__ = ["Family", "PlacedKernel", "Prepared", "Results", "Step", "arrays_in"]


_numbers = itertools.count(1)
_pack = struct.Struct("=4Q").pack_into  # faster than four items by their places


class Family:
    """What calls of one operator, options and types have in common in a place, whose shapes differ."""

    __slots__ = ()

    place: Place

    @abstractmethod
    def prepared(
        self,
        shape: tuple[int, ...],
        strides_bytes: tuple[int, ...] | None,
        second_strides_bytes: tuple[int, ...] | None,
        initial: Any,
    ) -> Prepared:
        """Return a launch for arrays of one shape and strides."""

    def laid(self, known: Any) -> tuple[Any, Results, Callable[..., object], tuple[Any, ...]] | None:
        """Return what a single launch for an array needs, of which `known_as` returned this; None if it is prepared.

        That is the choice, the results, what puts an argument in place (``put(words, source, result, workspace,
        *fields)``), and its fields.
        """
        return None


class PlacedKernel:
    """A kernel in a place, in blocks and clusters of one size: what all problems that take it share.

    Attributes
    ----------
    entry : MappedKernel
        The kernel, in any grid.
    threads : int
        Threads in a block.
    launchers : list
        The last launcher for aligned arrays, and that for others; None before the first.
    mask : int
        The bits of one array's address by which the latter is taken, as far as it follows from the kernel.
    """

    __slots__ = ("_letters", "_place", "entry", "launchers", "mask", "threads")

    def __init__(self, entry: MappedKernel, letters: str, place: Place) -> None:
        self.entry, self._letters, self._place = entry, letters, place
        self.launchers: list[Launcher | None] = [None, None]
        self.threads = entry.config.block_threads
        self.mask = 0 if entry.twin is None else VECTOR_BYTES - 1

    def launcher(self, *, twin: bool) -> Launcher:
        """Return a launcher of it that no call is using now, as the place has it."""
        found = self.launchers[twin]
        if found is None or not (found.turn.idle or self._place.is_over):
            found = self.launchers[twin] = self._place.launcher(self.entry, self._letters, twin=twin)
        return found


class Step:
    """One launch of a problem: a kernel, and what its launcher holds for it.

    Attributes
    ----------
    kernel : PlacedKernel
        The kernel.
    blocks : int
        Blocks of the grid.
    constants : array
        The argument's words after the workspace.
    number : int
        What tells it from all others; never 0.
    """

    __slots__ = ("blocks", "constants", "kernel", "number")

    def __init__(self, kernel: PlacedKernel, blocks: int, constants: array[int]) -> None:
        self.kernel, self.blocks, self.constants = kernel, blocks, constants
        self.number = next(_numbers)


class Results(NamedTuple):
    """What results of one shape need.

    Attributes
    ----------
    shape : tuple of int
        Shape of each result.
    size_bytes, cell_bytes : int
        The size of all results, and that of a cell for them.
    wrapped : callable
        ``wrapped(cell, stream)`` returns results that lie in a cell, as arrays of a stream.
    """

    shape: tuple[int, ...]
    size_bytes: int
    cell_bytes: int
    wrapped: Callable[[Cell, Stream], Any]

    @classmethod
    def of(cls, plan: BasePlan | Form, shape: tuple[int, ...]) -> Results:
        """Return those of a plan's results, or of a form's."""
        results, dtype = plan.results, plan.result_dtype
        size = results * math.prod(shape) * dtype.itemsize
        make: Callable[[Cell, Stream], Any] = (
            functools.partial(DeviceArray.of_cell, dtype, shape)
            if results == 1
            else functools.partial(arrays_in, plan.result_tuple, results, dtype, shape)
        )
        return cls(shape, size, cell_size(size), make)


class Prepared:
    """A problem in a place, which only the place's thread uses.

    Attributes
    ----------
    plan : BasePlan or Form
        What says how many results there are, and of which type.
    place : Place
        Where it is launched.
    result_shape : tuple of int
        Shape of each result.
    result_bytes, cell_bytes : int
        The size of all results, and that of a cell for them.
    refused, second_refused : int
        Bits that the arrays' addresses must not have.
    wrapped : callable
        ``wrapped(cell, stream)`` returns results that lie in a cell, as arrays of a stream.
    """

    __slots__ = (
        *("_extents", "_idle", "_kept", "_mask", "_own", "_second_mask", "_steps", "_workspace_bytes"),
        *("cell_bytes", "place", "plan", "refused", "result_bytes", "result_shape", "second_refused", "wrapped"),
    )

    def __init__(
        self,
        plan: BasePlan | Form,
        place: Place,
        results: Results,
        steps: tuple[Step, ...],
        touched: Callable[[], Extents],
        masks: tuple[int, int, int, int],
        workspace_bytes: int,
    ) -> None:
        """Take the launches in order; `touched` tells which bytes they touch, when that is first asked.

        `masks` are the bits of both arrays' addresses by which their kernels' twins are launched, and those that they
        must not have; a workspace of 0 bytes is none.
        """
        self.plan, self.place = plan, place
        self.result_shape, self.result_bytes, self.cell_bytes, self.wrapped = results
        self._steps = steps
        self._extents: Extents | Callable[[], Extents] = touched
        self._mask, self._second_mask, self.refused, self.second_refused = masks
        self._workspace_bytes = workspace_bytes
        self._kept: tuple[bool, ...] = ()  # whether its kernels and their twins are loaded for good
        # Between two kernels it holds what only they know of, so it is not that of others; where the second was never
        # launched, nobody uses it again.
        self._own: Workspace | None = None
        if len(steps) > 1:
            self._own = Workspace(place.stream)
            self._idle: list[None] = [None]  # taken during a call of them; lost if that ends early

    @classmethod
    def of_plan(cls, plan: BasePlan, place: Place, initial: Any) -> Prepared:
        """Return a plan's launches in a place of its context; raises what `BasePlan.steps` raises."""
        letters, extents = plan.letters, plan.extents
        steps = tuple(
            Step(PlacedKernel(entry, letters, place), entry.config.grid_blocks, constants_of(fields))
            for entry, fields in plan.steps(initial)
        )
        differ = any(step.kernel.entry.twin for step in steps)
        return cls(
            plan,
            place,
            Results.of(plan, plan.result_shape),
            steps,
            lambda: extents,
            (
                extents.vector_bytes - 1 if differ else 0,
                extents.second_vector_bytes - 1 if differ else 0,
                extents.alignment - 1,
                extents.second_alignment - 1,
            ),
            plan.workspace_bytes if plan.has_workspace else 0,
        )

    @property
    def extents(self) -> Extents:
        """Which bytes a launch touches."""
        found = self._extents
        if not isinstance(found, Extents):
            found = self._extents = found()
        return found

    @property
    def is_nothing(self) -> bool:
        """Whether there are no results, and so nothing to launch."""
        return not self._steps

    @property
    def is_interrupted(self) -> bool:
        """Whether a launch of several kernels is under way, or has ended before the last: it takes no other then."""
        return self._own is not None and not self._idle

    def launch(self, source: int, result: int, second: int = 0) -> bool:
        """Put it into the stream, whose context is current if it is a default one; False if that cannot be done now.

        Then nothing was launched: something was closed, or this is a signal's handler that interrupted such a call.
        """
        own, size = self._own, self._workspace_bytes
        if own is None:
            return self._put(source, result, second, self.place.workspace.at_least(size) if size else 0)
        try:
            token = self._idle.pop()
        except IndexError:
            return False
        if not self._put(source, result, second, own.at_least(size) if size else 0):
            self.refuse()
        self._idle.append(token)
        return True

    def _put(self, source: int, result: int, second: int, workspace: int) -> bool:
        """Launch all steps with these addresses; False at the first that cannot be launched now."""
        # No bool, by which a list is looked into more slowly.
        which = 1 if source & self._mask or second & self._second_mask else 0
        for step in self._steps:
            launcher = step.kernel.launchers[which]
            if launcher is None or not launcher.turn.idle:
                launcher = step.kernel.launcher(twin=which == 1)
            turn = launcher.turn
            try:
                words = turn.idle.pop()
            except IndexError:
                return False
            try:
                if launcher.holds != step.number:
                    launcher.hold(step, words)
                _pack(words, 0, source, result, second, workspace)
                code = launcher.launch()
            finally:
                turn.idle.append(words)
            if code:
                binding.raise_for("cuLaunchKernelEx", code)
        return True

    def launch_with(self, memory: Allocator, source: int, result: int, second: int = 0) -> None:
        """Put it into the stream, with a workspace of this call alone, which is given back in the stream's order."""
        size, stream = self._workspace_bytes, self.place.stream
        if not size:
            if not self._put(source, result, second, 0):
                self.refuse()
            return
        workspace: Buffer = memory.allocate(size, stream, what="the workspace")
        try:
            workspace.fill(0, stream=stream)
            if not self._put(source, result, second, workspace.pointer):
                self.refuse()
        finally:
            workspace.close()

    def keep_loaded(self, source: int, second: int = 0) -> None:
        """Keep the kernels of a launch loaded for good, for a graph."""
        is_twin = bool(source & self._mask or second & self._second_mask)
        if is_twin in self._kept:
            return
        kept = kernels_of_graphs()
        for step in self._steps:
            kept[step.kernel.launcher(twin=is_twin).bound.kernel] = None
        self._kept = (*self._kept, is_twin)

    def refuse(self) -> None:
        """Raise why it cannot be launched.

        Raises
        ------
        ValueError, NoDriverError
            As something was closed.
        ReduceError
            As another call is under way.
        """
        for step in self._steps:
            step.kernel.launcher(twin=False).turn.refuse()
        raise ReduceError("a call cannot be made while it is interrupted by another one")

    def check(self, source: int, result: int, second: int | None, *, trusted: tuple[bool, bool, bool]) -> None:
        """Refuse addresses that a launch must not be given; ask the driver of those that are not trusted."""
        check_addresses(self.extents, self.place.context, source, result, second, trusted=trusted)


def arrays_in(
    make: Callable[..., Any], results: int, dtype: np.dtype[Any], shape: tuple[int, ...], cell: Cell, stream: Stream
) -> Any:
    """Return a tuple, of which `make` is the type, of results that lie one behind the other in a cell."""
    size = math.prod(shape) * dtype.itemsize
    return make(*[DeviceArray.of_cell(dtype, shape, Part(cell, size * k), stream) for k in range(results)])

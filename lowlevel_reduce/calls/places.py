"""A stream as one thread uses it: launchers that are used for one problem after another, a workspace, and results."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lowlevel_reduce.arrays.results import Cell, CellsOfCapture, Pool
from lowlevel_reduce.driver import Buffer, Context, Stream, binding

if TYPE_CHECKING:
    from lowlevel_reduce.calls.prepared import Step
    from lowlevel_reduce.plans.mapping import MappedKernel
    from lowlevel_reduce.strategy.whole import DeviceFacts

__all__ = ["MAX_LAUNCHERS", "Launcher", "Place", "Workspace"]

MAX_LAUNCHERS = 256
"""The most kernels that a place keeps bound; before it exceeds that, it forgets them all. A kernel that is bound stays
loaded, and each operator or map of a user's has its own. Those of the forms that are kept stay with these."""

BOUNDS = {"_launchers": MAX_LAUNCHERS}
"""The most entries of what a place keeps: who watches for growth tells it from what has no bound."""

_LEGACY_HANDLES = (0, 1)


class Launcher:
    """A kernel bound to a stream, whose grid and arguments are those of the step that it launches next.

    Attributes
    ----------
    bound : BoundKernel
        The kernel.
    turn : Turn
        Whose item are the argument's words.
    launch : callable
        Makes the driver call, for who has the turn; a default stream's context must be current.
    holds : int
        The number of the step whose grid and constant words are in place; 0 for none. Not the step, which has this.
    """

    __slots__ = ("bound", "holds", "launch", "turn")

    def __init__(self, entry: MappedKernel, stream: Stream, letters: str, *, twin: bool) -> None:
        from lowlevel_reduce.driver import BoundKernel  # noqa: PLC0415 - with the first kernel

        loaded = entry.load_twin(stream.context) if twin else entry.loaded
        self.bound = BoundKernel(loaded.kernel, entry.config, stream, letters, as_struct=True)
        self.turn, self.launch = self.bound.prebuilt(in_context=True)
        self.holds = 0

    def hold(self, step: Step, words: Any) -> None:
        """Put a step's grid and constant words in place, for who has the turn."""
        self.holds = 0  # as long as both are not there: an interrupt may come in between
        self.bound.regrid(step.blocks, step.kernel.threads)
        words[4:] = step.constants
        self.holds = step.number


class Workspace:
    """Device memory that is zero before a launch and after it, and grows. What it outgrows stays: it may be in use.

    It is at least doubled, so all of it is less than twice the last.
    """

    __slots__ = ("_memory", "pointer", "size_bytes", "stream")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._memory: list[Buffer] = []
        self.pointer = self.size_bytes = 0

    def at_least(self, size_bytes: int) -> int:
        """Return its address, of at least so many bytes; the stream must not be capturing.

        Raises
        ------
        CudaError
            If the driver has no memory.
        """
        if size_bytes > self.size_bytes:
            size = max(size_bytes, 2 * self.size_bytes)
            memory = Buffer.allocate_async(size, self.stream)
            memory.fill(0, stream=self.stream)
            self._memory.append(memory)
            self.pointer, self.size_bytes = memory.pointer, size
        return self.pointer


class Place:
    """A stream, as one thread uses it.

    Attributes
    ----------
    stream : Stream
        The stream, fixed.
    handle : int
        Its handle; of the null stream that of the legacy one, which it is.
    context : Context
        Its context.
    context_id : int
        The context's number in the driver.
    life : Life
        Says whether the context is known to have ended.
    is_default : bool
        Whether its context must be current for a launch.
    may_be_captured : bool
        Whether it can be captured at all: the legacy stream cannot.
    pool : Pool
        Memory for results.
    workspace : Workspace
        That of all calls of one kernel.
    """

    __slots__ = (
        *("_capture", "_captured", "_capturing", "_launchers", "_primary_of", "context", "context_id", "handle"),
        *("_facts", "is_default", "life", "may_be_captured", "pool", "stream", "workspace"),
    )

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.context = stream.context
        self.context_id = self.context.id
        self.life = self.context.life
        self.handle = stream.handle or 1
        self.is_default = stream.is_default
        legacy = stream.handle in _LEGACY_HANDLES
        self.may_be_captured = not legacy
        self._capturing = None if legacy else binding.selected().prebuilt_number("cuStreamIsCapturing", stream.handle)
        self.pool = Pool(stream, self.context)
        self._capture: Callable[[], int] | None = None
        self._captured = CellsOfCapture(self.pool)
        self.workspace = Workspace(stream)
        self._launchers: dict[Any, Launcher] = {}
        self._facts: DeviceFacts | None = None
        self._primary_of: dict[int, bool] = {}

    def launcher(self, entry: MappedKernel, letters: str, *, twin: bool) -> Launcher:
        """Return a launcher of a kernel, in clusters of this size, which no call is using now."""
        config = entry.config
        # Of clusters and of resident grids it is checked that they fit. A kernel is compiled for the largest of its
        # other blocks.
        resident = config.grid if config.cooperative else None
        block = config.block if resident or config.cluster else None
        key = (entry.loaded.kernel, twin, block, config.cluster, resident, letters)
        found = self._launchers.get(key)
        if found is None or not found.turn.idle:
            if len(self._launchers) >= MAX_LAUNCHERS:
                self._launchers.clear()
            # One that is in use is that of a call which a signal's handler has interrupted, and goes with this call.
            found = self._launchers[key] = Launcher(entry, self.stream, letters, twin=twin)
        return found

    @property
    def lasts(self) -> bool:
        """Whether later calls find it again: not if its stream, being captured, has no number yet."""
        return self.is_default or self.stream.has_number

    @property
    def is_over(self) -> bool:
        """Whether its stream or context was closed, by whichever object for the latter."""
        return self.stream._handle is None or self.context._handle is None or self.life.over

    @property
    def is_capturing(self) -> bool:
        """Whether the stream is being captured; the legacy one, which cannot be, is not asked about."""
        if self._capturing is None:
            return False
        state = self._capturing()
        if state < 0:
            binding.raise_for("cuStreamIsCapturing", -state)
        return state != 0

    def cell_of_capture(self, size: int) -> Cell:
        """Return a cell for a result of the capture that the stream is in: memory of the graph, which nobody else uses.

        Raises
        ------
        CudaError
            If the driver has no memory, or the capture is not valid any more.
        """
        if self._capture is None:
            # The status, the number, and the graph, its last nodes and how many these are, of which nobody reads.
            self._capture = binding.selected().prebuilt_number(
                "cuStreamGetCaptureInfo", self.stream.handle, written=5, at=1
            )
        number = self._capture()
        if number < 0:
            binding.raise_for("cuStreamGetCaptureInfo", -number)
        return self._captured.take(number, size, is_alone=not self.lasts)

    @property
    def facts(self) -> DeviceFacts:
        """The device's properties as the context shows them."""
        if self._facts is None:
            from lowlevel_reduce.plans.mapping import facts_of  # noqa: PLC0415 - with the first plan

            self._facts = facts_of(self.context)
        return self._facts

    def is_primary_of(self, ordinal: int) -> bool:
        """Tell whether its context is a device's primary one, in which other libraries work."""
        found = self._primary_of.get(ordinal)
        if found is None:
            # There is an array of a library that works in primary contexts: retaining this one briefly creates nothing.
            with Context.primary(ordinal) as primary:
                found = self._primary_of[ordinal] = primary.handle == self.context.handle
        return found


def constants_of(values: Any) -> array[int]:
    """Return constant words as they are copied into an argument."""
    try:
        return array("Q", values)
    except OverflowError:  # strides may be negative
        return array("Q", [value % (1 << 64) for value in values])

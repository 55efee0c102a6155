"""Graphs: work captured from a stream once, then launched as a whole."""

from __future__ import annotations

import functools
from types import TracebackType

from lowlevel_reduce.driver import binding
from lowlevel_reduce.driver.context import Context
from lowlevel_reduce.driver.handle import Handle, Life
from lowlevel_reduce.driver.stream import Stream

__all__ = ["Graph", "GraphExec"]

_MODES = {
    "global": "CU_STREAM_CAPTURE_MODE_GLOBAL",
    "thread_local": "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL",
    "relaxed": "CU_STREAM_CAPTURE_MODE_RELAXED",
}


class Graph(Handle):
    """Captured work. What its nodes use (libraries, buffers, events) is the caller's to keep alive.

    Examples
    --------
    >>> with Graph.capture(stream) as graph:  # doctest: +SKIP
    ...     bound(source, destination, count)
    >>> executable = graph.instantiate()  # doctest: +SKIP
    >>> executable.launch(stream)  # doctest: +SKIP
    """

    __slots__ = ("_context",)

    _noun = "graph"

    _context: Context

    @classmethod
    def capture(cls, stream: Stream, *, mode: str = "thread_local") -> _Capture:
        """Capture what a ``with`` block puts into `stream`; nothing of it runs.

        The graph that ``as`` names can be used after the block. If the block raises, the capture is ended and thrown
        away, and the stream can be used as before.

        Parameters
        ----------
        stream : Stream
            Any but the legacy default stream, which cannot be captured.
        mode : str
            Which calls are refused meanwhile because a replay would not repeat them, such as allocating memory:
            "thread_local" those of this thread, "global" those of every thread, "relaxed" none.
        """
        if mode not in _MODES:
            raise ValueError(f"mode is one of {', '.join(map(repr, _MODES))}, not {mode!r}")
        stream = Stream.of(stream)
        if stream.handle in (0, 1):
            raise ValueError("the legacy default stream cannot be captured: use one of your own")
        return _Capture(stream, mode)

    @property
    def node_count(self) -> int:
        """How many nodes it has."""
        return int(binding.call("cuGraphGetNodes", self.handle, 0)[1])

    def instantiate(self) -> GraphExec:
        """Make an executable of it, which needs the graph no more."""
        graph = self.handle
        with self._context.pushed():
            handle = int(binding.call("cuGraphInstantiate", graph, 0))
        return GraphExec._of(handle, self._context)

    def _captured(self, handle: int, context: Context) -> None:
        self._context = context
        self._adopt(handle, functools.partial(_destroy, binding.selected(), context.life, "cuGraphDestroy", handle))

    @classmethod
    def _pending(cls) -> Graph:
        self = cls.__new__(cls)
        self._handle = self._owner = self._release = self._finalizer = None
        return self

    @property
    def handle(self) -> int:
        """The driver's handle, an integer.

        Raises
        ------
        ValueError
            If it is closed, or its capture has not ended.
        """
        if self._handle is None and self._release is None:
            raise ValueError("graph is not there: its capture has not ended, or was thrown away")
        return super().handle


class GraphExec(Handle):
    """An executable graph, from ``Graph.instantiate``. Close it only when no launch of it still runs."""

    __slots__ = ("_context",)

    _noun = "executable graph"

    _context: Context

    @classmethod
    def _of(cls, handle: int, context: Context) -> GraphExec:
        self = cls.__new__(cls)
        self._context = context
        self._adopt(handle, functools.partial(_destroy, binding.selected(), context.life, "cuGraphExecDestroy", handle))
        return self

    def launch(self, stream: Stream) -> None:
        """Put one run of the graph into `stream`; returns when it is there."""
        stream = Stream.of(stream)
        with stream.context.pushed():
            binding.call("cuGraphLaunch", self.handle, stream.handle)


class _Capture:
    """One capture, from its beginning to its end or its failure."""

    __slots__ = ("_context", "_graph", "_mode", "_stream")

    def __init__(self, stream: Stream, mode: str) -> None:
        self._stream = stream
        self._context = stream.context
        self._mode = mode
        self._graph = Graph._pending()

    def __enter__(self) -> Graph:
        mode = getattr(binding.native().CUstreamCaptureMode, _MODES[self._mode])
        with self._context.pushed():
            binding.call("cuStreamBeginCapture", self._stream.handle, mode)
        return self._graph

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._context.pushed():
            if kind is None:
                handle = int(binding.call("cuStreamEndCapture", self._stream.handle))
                self._graph._captured(handle, self._context)
            else:
                self._discard()

    def _discard(self) -> None:
        # The raw function: an invalidated capture ends with a result code that says so, and the block's own error,
        # which is under way, says why.
        code, *graph = binding.function("cuStreamEndCapture")(self._stream.handle)
        if not code and int(graph[0]):
            binding.call("cuGraphDestroy", int(graph[0]))


def _destroy(implementation: binding.Implementation, life: Life, name: str, handle: int) -> None:
    if not life.over:
        implementation.call(name, handle)

"""Graphs: work captured from a stream or added node by node once, then launched as a whole."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from types import TracebackType

from lowlevel_reduce.driver import binding, captures
from lowlevel_reduce.driver.bound_kernel import BoundKernel
from lowlevel_reduce.driver.context import Context
from lowlevel_reduce.driver.handle import Handle, within
from lowlevel_reduce.driver.nodes import KernelNode, add_kernel, check_node, kernel_nodes, set_kernel
from lowlevel_reduce.driver.stream import Stream
from lowlevel_reduce.errors import CudaError, ReduceError

__all__ = ["Graph", "GraphExec", "KernelNode"]

_MODES = {
    "global": "CU_STREAM_CAPTURE_MODE_GLOBAL",
    "thread_local": "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL",
    "relaxed": "CU_STREAM_CAPTURE_MODE_RELAXED",
}


class Graph(Handle):
    """Work to be launched as a whole, captured or added.

    What its nodes use (libraries, buffers, events) is the caller's to keep alive.

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
            Which calls are refused meanwhile because a replay would not repeat them, such as allocating memory, and
            waits and queries on the host for whatever stream or event (`Stream.synchronize`, `DeviceArray.numpy`,
            ``float(x)``): "thread_local" those of this thread, "global" those of every thread, "relaxed" none. A
            refused call raises `CudaError` (``CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED``) and spoils the capture, whose
            block then raises one as it ends. In no mode can a stream under capture be waited for, or its context.
        """
        if mode not in _MODES:
            raise ValueError(f"mode is one of {', '.join(map(repr, _MODES))}, not {mode!r}")
        stream = Stream.of(stream)
        if stream.handle in (0, 1):
            raise ValueError("the legacy default stream cannot be captured: use one of your own")
        return _Capture(stream, mode)

    @classmethod
    def create(cls, context: Context | None = None) -> Graph:
        """Create an empty graph, for `add_kernel`.

        Parameters
        ----------
        context : Context, optional
            Where it will run; without one the current context, else the primary one of device 0.
        """
        context = Context.of(context)
        with contextlib.ExitStack() as undo:  # if the inner block's end is refused: no context ends a graph
            with context.pushed():
                handle = int(binding.call("cuGraphCreate", 0))
                self = undo.enter_context(cls._pending())
                self._captured(handle, context)
            undo.pop_all()
        return self

    def add_kernel(self, bound: BoundKernel, *values: float, after: Sequence[KernelNode] = ()) -> KernelNode:
        """Add a node that launches what a bound launch would: its kernel, grid, attributes and arguments.

        Parameters
        ----------
        bound : BoundKernel
            A launch of this graph's context; its stream does not matter. As in a capture, one with
            ``programmatic_stream_serialization`` is joined to the nodes before it by programmatic edges: it may begin
            when they trigger it.
        values : numbers
            The arguments, as for a call of `bound`; they are copied.
        after : sequence of KernelNode
            The nodes of this graph that it follows.

        Raises
        ------
        TypeError, ValueError
            If the launch is of another context or records events, which no node does, or a node is no node of this
            graph.
        struct.error
            If the arguments do not fit the signature.
        UnsupportedError, CudaError
            If bindings, driver or device lack an attribute; the graph is then as it was.
        """
        if bound.context != self._context:
            raise ValueError(f"the launch is of {bound.context!r}, the graph of {self._context!r}")
        with self._context.pushed():
            return add_kernel(self, bound, values, after)

    @property
    def kernel_nodes(self) -> tuple[KernelNode, ...]:
        """Its kernel nodes, captured or added, in the order in which the driver lists them."""
        return kernel_nodes(self)

    @property
    def node_count(self) -> int:
        """How many nodes it has."""
        return int(binding.call("cuGraphGetNodes", self.handle, 0)[1])

    def instantiate(self) -> GraphExec:
        """Make an executable of it, which needs the graph no more."""
        graph = self.handle
        with contextlib.ExitStack() as undo:  # if the inner block's end is refused: no context ends it
            with self._context.pushed():
                handle = int(binding.call("cuGraphInstantiate", graph, 0))
                executable = undo.enter_context(GraphExec._of(handle, self._context, graph))
            undo.pop_all()
        return executable

    def _captured(self, handle: int, context: Context) -> None:
        self._context = context
        self._adopt(handle, context.releasing("cuGraphDestroy", handle, outlives=True))

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

    __slots__ = ("_context", "_graph_handle")

    _noun = "executable graph"

    _context: Context
    _graph_handle: int

    @classmethod
    def _of(cls, handle: int, context: Context, graph_handle: int) -> GraphExec:
        self = cls.__new__(cls)
        self._context = context
        self._graph_handle = graph_handle
        self._adopt(handle, context.releasing("cuGraphExecDestroy", handle, outlives=True))
        return self

    def launch(self, stream: Stream) -> None:
        """Put one run of the graph into `stream`; returns when it is there."""
        stream = Stream.of(stream)
        with stream.context.pushed():
            binding.call("cuGraphLaunch", self.handle, stream.handle)

    def upload(self, stream: Stream) -> None:
        """Put the graph onto the device in the order of `stream`, without running it; returns at once.

        Its first launch is the quicker for it. Due before the first launch of a graph of which device code updates a
        node (see ``LaunchConfig.device_updatable``), and again after each ``set_kernel`` of such a node.
        """
        stream = Stream.of(stream)
        with stream.context.pushed():
            binding.call("cuGraphUpload", self.handle, stream.handle)

    def set_kernel(self, node: KernelNode, bound: BoundKernel, *values: float) -> None:
        """Let one kernel node launch `bound` with these arguments from the next launch on; those under way go on.

        Parameters
        ----------
        node : KernelNode
            A node of the graph that this was instantiated from, which must not be closed.
        bound : BoundKernel
            Kernel, grid and shared memory. The node's attributes (cluster, cooperative, priority) stay as they are.
        values : numbers
            The arguments, as for a call of `bound`; they are copied.

        Raises
        ------
        TypeError, ValueError
            If the node is of another graph or of a closed one, or the launch is of another context.
        struct.error
            If the arguments do not fit the signature.
        CudaError
            If the driver does not take the change.
        """
        check_node(node, self._graph_handle)
        if bound.context != self._context:
            raise ValueError(f"the launch is of {bound.context!r}, the graph of {self._context!r}")
        with self._context.pushed():
            set_kernel(self.handle, node, bound, values)

    def update(self, graph: Graph) -> None:
        """Take all parameters from a graph of the same nodes and edges, such as a second capture of the same calls.

        Raises
        ------
        ValueError
            If the graphs differ in more than parameters; this one is as it was, and ``graph.instantiate()`` is due.
        """
        with self._context.pushed():
            try:
                binding.call("cuGraphExecUpdate", self.handle, graph.handle)
            except CudaError as error:
                if error.name != "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE":
                    raise
                raise ValueError(
                    f"the graphs differ in more than their parameters: instantiate anew ({error})"
                ) from error


class _Capture:
    """One capture, from its beginning to its end or its failure."""

    __slots__ = ("_context", "_graph", "_implementation", "_mode", "_noted", "_stream")

    def __init__(self, stream: Stream, mode: str) -> None:
        self._stream = stream
        self._context = stream.context
        self._implementation, self._noted = binding.selected(), self._context.handle
        self._mode = mode
        self._graph = Graph._pending()

    def __enter__(self) -> Graph:
        captures.begin(self._implementation, self._noted)
        try:
            self._begin()
        except BaseException:
            captures.end(self._implementation, self._noted)
            raise
        return self._graph

    def _begin(self) -> None:
        mode = getattr(binding.native().CUstreamCaptureMode, _MODES[self._mode])
        begun = False
        try:
            with self._context.pushed():
                binding.call("cuStreamBeginCapture", self._stream.handle, mode)
                begun = True
        except ReduceError:  # the block's end was refused: without a graph's owner the stream must not go on capturing
            if begun:
                self._abandon()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._end()
            else:
                self._abandon()
        finally:
            captures.end(self._implementation, self._noted)

    def _end(self) -> None:
        try:
            with self._context.pushed():
                handle = int(binding.call("cuStreamEndCapture", self._stream.handle))
                self._graph._captured(handle, self._context)
        except ReduceError:
            self._abandon()  # one refused call must not leave the stream capturing; where it ended, this does nothing
            self._graph.close()  # now, for no context ends it
            raise

    def _abandon(self) -> None:
        with within(binding.selected(), self._context.handle):
            self._discard()

    def _discard(self) -> None:
        # The raw function: an invalidated capture ends with a result code that says so, one that has ended is refused,
        # and the error that is under way says why.
        code, *graph = binding.function("cuStreamEndCapture")(self._stream.handle)
        if not code and int(graph[0]):
            binding.call("cuGraphDestroy", int(graph[0]))

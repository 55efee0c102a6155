"""Graphs: work captured from a stream or added node by node once, then launched as a whole."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from types import TracebackType

from lowlevel_reduce.arguments import instance
from lowlevel_reduce.driver import binding, captures
from lowlevel_reduce.driver.bound_kernel import BoundKernel
from lowlevel_reduce.driver.context import Context
from lowlevel_reduce.driver.handle import Handle, within
from lowlevel_reduce.driver.held import Held
from lowlevel_reduce.driver.nodes import KernelNode, add_kernel, check_node, kernel_nodes, set_kernel
from lowlevel_reduce.driver.stream import Stream
from lowlevel_reduce.errors import CudaError

__all__ = ["Graph", "GraphExec", "KernelNode"]

_MODES = {
    "global": "CU_STREAM_CAPTURE_MODE_GLOBAL",
    "thread_local": "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL",
    "relaxed": "CU_STREAM_CAPTURE_MODE_RELAXED",
}


class Graph(Handle):
    """Work to be launched as a whole, captured from a stream or added node by node.

    The caller must keep alive what its nodes use (libraries, buffers, events).

    Examples
    --------
    >>> with Graph.capture(stream) as graph:  # doctest: +SKIP
    ...     bound(source, destination, count)
    >>> executable = graph.instantiate()  # doctest: +SKIP
    >>> executable.launch(stream)  # doctest: +SKIP
    """

    __slots__ = ("_context",)

    _noun = "graph"
    _makers = ("capture", "create")

    _context: Context

    @classmethod
    def capture(cls, stream: Stream, *, mode: str = "thread_local") -> _Capture:
        """Capture what a ``with`` block puts into `stream`; none of it runs.

        The graph that ``as`` names can be used after the block. If the block raises, the capture is ended and
        discarded, and the stream can be used as before.

        Parameters
        ----------
        stream : Stream
            Any but the legacy default stream, which cannot be captured.
        mode : str
            Whose calls are refused during the capture if a replay would not repeat them: "thread_local" those of this
            thread, "global" those of every thread, "relaxed" nobody's. Such calls are allocations, and host waits for
            and queries of any stream or event (`Stream.synchronize`, `DeviceArray.numpy`, ``float(x)``). A refused call
            raises `CudaError` (``CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED``) and invalidates the capture, whose block then
            raises `CudaError` as it ends. In no mode can the host wait for a stream under capture, or for its context.
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
                self = undo.enter_context(cls._pending())
                self._take(context, "cuGraphCreate", 0)
            undo.pop_all()
        return self

    def add_kernel(self, bound: BoundKernel, *values: float, after: Iterable[KernelNode] = ()) -> KernelNode:
        """Add a node with the kernel, grid and attributes of a bound launch, and the given arguments.

        Parameters
        ----------
        bound : BoundKernel
            A launch of this graph's context; its stream does not matter. As in a capture, a launch with
            ``programmatic_stream_serialization`` gets programmatic edges from the nodes before it: it may begin when
            they trigger it.
        values : numbers
            The arguments, as for a call of `bound`; they are copied.
        after : iterable of KernelNode
            Nodes of this graph that it depends on.

        Raises
        ------
        TypeError, ValueError
            If the launch is not a `BoundKernel` (a plan's bound launch has them as ``launch.kernels``), is of another
            context, or records events, which a kernel node cannot; or if a node in `after` is not of this graph.
        struct.error
            If the arguments do not fit the signature.
        UnsupportedError, CudaError
            If the bindings, driver or device do not support an attribute; the graph is unchanged.
        """
        instance(bound, BoundKernel, "the launch")
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
        """Make an executable graph, which does not need this one any more."""
        graph = self.handle
        with contextlib.ExitStack() as undo:  # if the inner block's end is refused: no context ends it
            with self._context.pushed():
                held = Held(binding.selected())
                executable = undo.enter_context(GraphExec._of(held, self._context, graph))
                executable._handle = int(held.take("cuGraphInstantiate", graph, 0))
            undo.pop_all()
        return executable

    def _take(self, context: Context, name: str, *args: int) -> None:
        """Own the graph that a driver's call returns."""
        held = Held(binding.selected())
        self._context = context
        self._adopt(None, context.releasing("cuGraphDestroy", held, outlives=True))
        self._handle = int(held.take(name, *args))

    @classmethod
    def _pending(cls) -> Graph:
        self = cls.__new__(cls)
        self._adopt(None, None)
        return self

    @property
    def handle(self) -> int:
        """The driver's handle, an integer.

        Raises
        ------
        ValueError
            If it is closed, or its capture has not ended.
        """
        if self._handle is None and not self._is_owner:
            raise ValueError("this graph does not exist: its capture has not ended, or was thrown away")
        return super().handle


class GraphExec(Handle):
    """An executable graph, from ``Graph.instantiate``. Close it only when none of its launches is still running."""

    __slots__ = ("_context", "_graph_handle")

    _noun = "executable graph"
    _makers = ("Graph.instantiate",)

    _context: Context
    _graph_handle: int

    @classmethod
    def _of(cls, held: Held, context: Context, graph_handle: int) -> GraphExec:
        self = cls.__new__(cls)
        self._context = context
        self._graph_handle = graph_handle
        self._adopt(None, context.releasing("cuGraphExecDestroy", held, outlives=True))
        return self

    def launch(self, stream: Stream) -> None:
        """Put one run of the graph into `stream`; does not wait for it to run."""
        stream = Stream.of(stream)
        with stream.context.pushed():
            binding.call("cuGraphLaunch", self.handle, stream.handle)

    def upload(self, stream: Stream) -> None:
        """Upload the graph to the device in the order of `stream`, without running it; returns at once.

        This makes the first launch faster. It is required before the first launch if device code updates a node of the
        graph (see ``LaunchConfig.device_updatable``), and again after each ``set_kernel`` of such a node.
        """
        stream = Stream.of(stream)
        with stream.context.pushed():
            binding.call("cuGraphUpload", self.handle, stream.handle)

    def set_kernel(self, node: KernelNode, bound: BoundKernel, *values: float) -> None:
        """Make one kernel node launch `bound` with these arguments from the next launch on.

        Launches that are already in a stream are not affected.

        Parameters
        ----------
        node : KernelNode
            A node of the graph that this was instantiated from; that graph must not be closed.
        bound : BoundKernel
            Gives kernel, grid and shared memory. The node's attributes (cluster, cooperative, priority) stay as they
            are.
        values : numbers
            The arguments, as for a call of `bound`; they are copied.

        Raises
        ------
        TypeError, ValueError
            If the node is of another graph or of a closed one, or the launch is no `BoundKernel` or of another context.
        struct.error
            If the arguments do not fit the signature.
        CudaError
            If the driver refuses the change.
        """
        check_node(node, self._graph_handle)
        instance(bound, BoundKernel, "the launch")
        if bound.context != self._context:
            raise ValueError(f"the launch is of {bound.context!r}, the graph of {self._context!r}")
        with self._context.pushed():
            set_kernel(self.handle, node, bound, values)

    def update(self, graph: Graph) -> None:
        """Take all parameters from a graph with the same nodes and edges, such as a second capture of the same calls.

        Raises
        ------
        TypeError
            If it is no `Graph`.
        ValueError
            If the graphs differ in more than parameters. This one is unchanged; use ``graph.instantiate()`` instead.
        """
        instance(graph, Graph, "what an executable is updated from")
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
        begun = Held(self._implementation)
        try:
            with self._context.pushed():
                begun.take("cuStreamBeginCapture", self._stream.handle, mode)
        except BaseException:  # also if the block's end is refused: without a graph's owner the capture must not go on
            if begun.is_held:
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
                self._graph._take(self._context, "cuStreamEndCapture", self._stream.handle)
        except BaseException:
            # One refused call, or an interrupt, must not leave the stream capturing; where it ended, this does nothing.
            self._abandon()
            self._graph.close()  # now, for no context ends it
            raise

    def _abandon(self) -> None:
        within(binding.selected(), self._context.handle, self._discard)

    def _discard(self) -> None:
        ended = Held(binding.selected())
        try:
            # An invalidated capture ends with a result code that says so, one that has ended is refused, and the error
            # that is under way says why.
            with contextlib.suppress(CudaError):
                ended.take("cuStreamEndCapture", self._stream.handle)
        finally:
            if ended.handle:
                ended.give_back("cuGraphDestroy", ended.handle)

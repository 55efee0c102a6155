"""Graphs: captures are begun and ended, executables are instantiated, updated and launched."""

# ruff: noqa: N802, D102 - the names are the driver's, and so is their documentation

from __future__ import annotations

import threading
from typing import Any

from cuda.bindings import driver as cu

from lowlevel_reduce.simulator.driver.captures import capturing, invalidate, stream_of, submit
from lowlevel_reduce.simulator.driver.records import Capture, Executable, Graph, Node
from lowlevel_reduce.simulator.driver.state import State, number, refuse

__all__ = ["Graphs"]

_RELAXED = 2
_LEGACY = 1


class Graphs:
    """Functions of captures and graphs."""

    def __init__(self, state: State) -> None:
        self._state = state

    def cuStreamBeginCapture(self, stream: Any, mode: Any) -> None:
        origin = stream_of(self._state, stream)
        if origin.handle == _LEGACY:
            refuse("STREAM_CAPTURE_UNSUPPORTED")
        if origin.capture is not None:
            refuse("ILLEGAL_STATE")
        capture = Capture(origin, number(mode), threading.get_ident(), self._state.new_id())
        capture.fronts[origin] = frozenset()
        try:
            self._state.captures.append(capture)
            origin.capture = capture
        except BaseException:  # an interrupt: a capture of which nobody knows would forbid others to allocate
            self._state.end_capture(capture)
            raise

    def cuStreamEndCapture(self, stream: Any) -> Any:
        record = stream_of(self._state, stream)
        capture = record.capture or refuse("ILLEGAL_STATE")
        if capture.origin is not record:
            invalidate([capture])
            refuse("STREAM_CAPTURE_UNMATCHED")
        if capture.mode != _RELAXED and capture.thread != threading.get_ident():
            refuse("STREAM_CAPTURE_WRONG_THREAD")
        self._state.end_capture(capture)
        if capture.invalid:
            refuse("STREAM_CAPTURE_INVALIDATED")
        if not capture.joined():
            refuse("STREAM_CAPTURE_UNJOINED")
        graph = self._new_graph()
        handles = [self._state.new_handle() for _ in capture.nodes]
        for handle, node in zip(handles, capture.nodes, strict=True):
            self._state.add_node(graph, node.renamed(handles), handle)
        return cu.CUgraph(graph.handle)

    def cuGraphCreate(self, flags: int) -> Any:
        if flags:
            refuse("INVALID_VALUE")
        return cu.CUgraph(self._new_graph().handle)

    def cuGraphGetNodes(self, graph: Any, count: int = 0) -> tuple[list[Any], int]:
        nodes = self._graph(graph).nodes
        if not count:
            return [], len(nodes)
        handles = [cu.CUgraphNode(handle) for handle in list(nodes)[:count]]
        return handles, len(handles)

    def cuGraphInstantiate(self, graph: Any, flags: int) -> Any:
        record = self._graph(graph)
        if flags:
            refuse("NOT_SUPPORTED")
        handle = self._state.new_handle()
        self._state.keep(Executable(handle, _ordered(record)), handle)
        return cu.CUgraphExec(handle)

    def cuGraphExecUpdate(self, executable: Any, graph: Any) -> Any:
        record, fresh = self._executable(executable), _ordered(self._graph(graph))
        old = list(record.nodes)
        names = dict(zip(fresh, old, strict=False))  # nodes are matched by their order
        same = len(fresh) == len(old) and all(
            node.kind == record.nodes[names[handle]].kind
            and {names[before] for before in node.behind} == record.nodes[names[handle]].behind
            for handle, node in fresh.items()
        )
        if not same:
            refuse("GRAPH_EXEC_UPDATE_FAILURE")
        record.nodes = {names[handle]: node.renamed(names) for handle, node in fresh.items()}
        info = cu.CUgraphExecUpdateResultInfo()
        info.result = cu.CUgraphExecUpdateResult.CU_GRAPH_EXEC_UPDATE_SUCCESS
        return info

    def cuGraphLaunch(self, executable: Any, stream: Any) -> None:
        nodes = dict(self._executable(executable).nodes)
        submit(self._state, stream_of(self._state, stream), Node("graph", lambda: _replay(nodes)))

    def cuGraphUpload(self, executable: Any, stream: Any) -> None:
        self._executable(executable)
        capture = capturing(self._state, stream_of(self._state, stream))
        if capture is not None:
            invalidate([capture])
            refuse("STREAM_CAPTURE_UNSUPPORTED")

    def cuGraphDestroy(self, graph: Any) -> None:
        record = self._graph(graph)
        self._state.turn.soon(lambda: self._end(record))

    def _end(self, record: Graph) -> None:
        for handle in list(record.nodes):
            self._state.drop(handle)
        self._state.drop(record.handle)
        record.nodes.clear()  # their records refer to the graph: in a circle, they would wait for the collector

    def cuGraphExecDestroy(self, executable: Any) -> None:
        record = self._executable(executable)
        self._state.turn.soon(lambda: self._state.drop(record.handle))

    def _new_graph(self) -> Graph:
        graph = Graph(self._state.new_handle())
        return self._state.keep(graph, graph.handle)

    def _graph(self, graph: Any) -> Graph:
        return self._state.get(Graph, graph, "INVALID_VALUE")

    def _executable(self, executable: Any) -> Executable:
        return self._state.get(Executable, executable, "INVALID_VALUE")


def _ordered(graph: Graph) -> dict[int, Node]:
    """Return a graph's nodes in an order in which they may run; refuse a cycle."""
    waiting = {handle: record.node for handle, record in graph.nodes.items()}
    ordered: dict[int, Node] = {}
    while waiting:
        free = [handle for handle, node in waiting.items() if node.behind <= ordered.keys()]
        if not free:
            refuse("INVALID_VALUE")
        for handle in free:
            node = waiting.pop(handle)
            node.check()
            ordered[handle] = node
    return ordered


def _replay(nodes: dict[int, Node]) -> None:
    traces: dict[int, Any] = {}
    for handle, node in nodes.items():
        traces[handle] = node.run_after([traces[before] for before in node.overlapped])

"""Graphs: captures begun and ended, and what was captured run again."""

# ruff: noqa: N802, D102 - the names are the driver's, and so is their documentation

from __future__ import annotations

import threading
from typing import Any

from cuda.bindings import driver as cu

from lowlevel_reduce.simulator.driver.captures import invalidate, stream_of, submit
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
        capture = Capture(origin, number(mode), threading.get_ident())
        capture.fronts[origin] = frozenset()
        origin.capture = capture
        self._state.captures.append(capture)

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
        return cu.CUgraph(self._graph(tuple(capture.nodes)).handle)

    def cuGraphGetNodes(self, graph: Any, count: int = 0) -> tuple[list[Any], int]:
        record = self._state.get(Graph, graph, "INVALID_VALUE")
        if not count:
            return [], len(record.nodes)
        handles = [cu.CUgraphNode(handle) for handle in record.handles[:count]]
        return handles, len(handles)

    def cuGraphInstantiate(self, graph: Any, flags: int) -> Any:
        record = self._state.get(Graph, graph, "INVALID_VALUE")
        if flags:
            refuse("NOT_SUPPORTED")
        handle = self._state.new_handle()
        self._state.keep(Executable(handle, record.nodes), handle)
        return cu.CUgraphExec(handle)

    def cuGraphLaunch(self, executable: Any, stream: Any) -> None:
        nodes = self._state.get(Executable, executable, "INVALID_VALUE").nodes
        submit(self._state, stream_of(self._state, stream), "graph", lambda: _replay(nodes))

    def cuGraphDestroy(self, graph: Any) -> None:
        self._state.drop(self._state.get(Graph, graph, "INVALID_VALUE").handle)

    def cuGraphExecDestroy(self, executable: Any) -> None:
        self._state.drop(self._state.get(Executable, executable, "INVALID_VALUE").handle)

    def _graph(self, nodes: tuple[Node, ...]) -> Graph:
        handles = tuple(self._state.new_handle() for _ in nodes)
        graph = Graph(self._state.new_handle(), nodes, handles)
        return self._state.keep(graph, graph.handle)


def _replay(nodes: tuple[Node, ...]) -> None:
    for node in nodes:
        node.run()

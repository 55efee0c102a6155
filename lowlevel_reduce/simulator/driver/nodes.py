"""Kernel nodes of graphs: functions that add, connect and query them, set attributes, and update executables."""

# ruff: noqa: N802, D102 - the names are the driver's, and so is their documentation

from __future__ import annotations

import dataclasses
from typing import Any

from cuda.bindings import driver as cu

from lowlevel_reduce.simulator.driver.launches import Launches
from lowlevel_reduce.simulator.driver.records import Executable, Graph, Kernel, KernelWork, Node, NodeRecord
from lowlevel_reduce.simulator.driver.request import read_attribute, request_of_node
from lowlevel_reduce.simulator.driver.state import State, number, refuse

__all__ = ["Nodes"]

_TYPES = {
    "kernel": "CU_GRAPH_NODE_TYPE_KERNEL",
    "memcpy": "CU_GRAPH_NODE_TYPE_MEMCPY",
    "memset": "CU_GRAPH_NODE_TYPE_MEMSET",
    "graph": "CU_GRAPH_NODE_TYPE_GRAPH",
    "allocation": "CU_GRAPH_NODE_TYPE_MEM_ALLOC",
    "free": "CU_GRAPH_NODE_TYPE_MEM_FREE",
}
_PROGRAMMATIC = 1  # CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
_UPDATABLE = "DEVICE_UPDATABLE_KERNEL_NODE"
_ATTRIBUTES = frozenset(
    {"ACCESS_POLICY_WINDOW", "COOPERATIVE", "CLUSTER_DIMENSION", "CLUSTER_SCHEDULING_POLICY_PREFERENCE", "PRIORITY"}
    | {"MEM_SYNC_DOMAIN_MAP", "MEM_SYNC_DOMAIN", "PREFERRED_CLUSTER_DIMENSION", _UPDATABLE}
    | {"PREFERRED_SHARED_MEMORY_CARVEOUT", "NVLINK_UTIL_CENTRIC_SCHEDULING", "PORTABLE_CLUSTER_SIZE_MODE"}
    | {"SHARED_MEMORY_MODE"}
)


class Nodes:
    """Functions of graph nodes."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._launches = Launches(state)

    def cuGraphAddKernelNode(self, graph: Any, before: Any, count: int, parameters: Any) -> Any:
        record = self._state.get(Graph, graph, "INVALID_VALUE")
        behind = frozenset(self._node_of(record, node) for node in (before or ())[:count])
        handle = self._state.new_handle()
        self._state.add_node(record, dataclasses.replace(self._kernel_node(parameters), behind=behind), handle)
        return cu.CUgraphNode(handle)

    def cuGraphKernelNodeSetParams(self, node: Any, parameters: Any) -> None:
        record = self._kernel(node)
        record.node = self._kernel_node(parameters, record.node)

    def cuGraphExecKernelNodeSetParams(self, executable: Any, node: Any, parameters: Any) -> None:
        record = self._state.get(Executable, executable, "INVALID_VALUE")
        old = record.nodes.get(number(node))
        if old is None or old.work is None:
            refuse("INVALID_VALUE")
        fresh = self._kernel_node(parameters, old)
        fresh.check()
        record.nodes[number(node)] = fresh

    def cuGraphKernelNodeSetAttribute(self, node: Any, attribute: Any, value: Any) -> None:
        name = attribute.name.removeprefix("CU_LAUNCH_ATTRIBUTE_")
        if name not in _ATTRIBUTES:
            refuse("INVALID_VALUE")
        record = self._kernel(node)
        work = record.node.work
        request = dataclasses.replace(work.request, events=[])
        read_attribute(request, name, value, self._state.device)
        fresh = dataclasses.replace(work, request=request)
        record.node = self._launches.node(fresh, record.node.behind, record.node.overlapped)

    def cuGraphKernelNodeGetAttribute(self, node: Any, attribute: Any) -> Any:
        if attribute.name.removeprefix("CU_LAUNCH_ATTRIBUTE_") != _UPDATABLE:
            refuse("NOT_SUPPORTED")
        record = self._kernel(node)
        value = cu.CUkernelNodeAttrValue()
        if record.node.work.request.captured_only:
            value.deviceUpdatableKernelNode.deviceUpdatable = 1
            value.deviceUpdatableKernelNode.devNode = cu.CUgraphDeviceNode(record.handle)
        return value

    def cuGraphNodeGetType(self, node: Any) -> Any:
        return getattr(cu.CUgraphNodeType, _TYPES[self._record(node).node.kind])

    def cuGraphDestroyNode(self, node: Any) -> None:
        record = self._record(node)
        if record.node.work is not None and record.node.work.request.captured_only:
            refuse("INVALID_VALUE")  # a node that device code may update cannot be removed
        self._state.turn.soon(lambda: self._end(record))

    def _end(self, record: NodeRecord) -> None:
        record.graph.nodes.pop(record.handle, None)
        self._state.drop(record.handle)
        for left in list(record.graph.nodes.values()):
            node, gone = left.node, {record.handle}
            left.node = dataclasses.replace(node, behind=node.behind - gone, overlapped=node.overlapped - gone)

    def cuGraphAddDependencies(self, graph: Any, begins: Any, ends: Any, *rest: Any) -> None:
        record, count = self._state.get(Graph, graph, "INVALID_VALUE"), int(rest[-1])
        edges = (rest[0] if len(rest) > 1 else None) or [None] * count
        for begin, end, edge in zip(begins[:count], ends[:count], edges[:count], strict=True):
            before, after = self._node_of(record, begin), self._node_of(record, end)
            node = record.nodes[after].node
            if before == after or before in node.behind:
                refuse("INVALID_VALUE")
            overlaps = edge is not None and int(edge.type) == _PROGRAMMATIC
            overlapped = node.overlapped | ({before} if overlaps else set())
            record.nodes[after].node = dataclasses.replace(node, behind=node.behind | {before}, overlapped=overlapped)

    cuGraphAddDependencies_v2 = cuGraphAddDependencies  # noqa: N815 - with edge data, as in bindings 12.9

    def _kernel_node(self, parameters: Any, old: Node | None = None) -> Node:
        """Return a new kernel node, or the one that takes the place of an old one behind the same others."""
        kernel = self._state.get(Kernel, parameters.func)
        work = None if old is None else old.work
        request = request_of_node(parameters, self._state.device, work.request if work else None)
        arguments = self._launches.arguments(kernel, parameters.kernelParams)
        device = work.device if work else self._state.device_of(self._state.current())
        fresh = KernelWork(kernel, request, arguments, device)
        return self._launches.node(fresh) if old is None else self._launches.node(fresh, old.behind, old.overlapped)

    def _record(self, node: Any) -> NodeRecord:
        return self._state.get(NodeRecord, node, "INVALID_VALUE")

    def _kernel(self, node: Any) -> Any:
        record = self._record(node)
        return record if record.node.work is not None else refuse("INVALID_VALUE")

    def _node_of(self, graph: Graph, node: Any) -> int:
        record = self._record(node)
        return record.handle if record.graph is graph else refuse("INVALID_VALUE")

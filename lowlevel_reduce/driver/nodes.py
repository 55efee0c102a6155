"""Kernel nodes of graphs: made from a bound launch with all its attributes, and given new arguments afterwards."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

from lowlevel_reduce.driver import binding
from lowlevel_reduce.driver.attributes import native_attributes
from lowlevel_reduce.driver.bound_kernel import BoundKernel
from lowlevel_reduce.driver.config import LaunchConfig
from lowlevel_reduce.driver.handle import Handle

__all__ = ["KernelNode", "add_kernel", "check_node", "kernel_nodes", "set_kernel"]

_ATTRIBUTE_VALUE_BYTES = 64  # the driver's union of attribute values
_PROGRAMMATIC = 1  # both the type of such an edge and the port of the kernel that triggers it
_SERIALIZATION = "PROGRAMMATIC_STREAM_SERIALIZATION"  # of streams: among nodes an edge says it
_UPDATABLE = "DEVICE_UPDATABLE_KERNEL_NODE"


class KernelNode:
    """A kernel node of a graph; it lives and ends with that graph.

    Attributes
    ----------
    handle : int
        The driver's ``CUgraphNode``.
    graph : Graph
        Whose node it is.
    """

    __slots__ = ("graph", "handle")

    def __init__(self, handle: int, graph: Handle) -> None:
        self.handle = handle
        self.graph = graph

    @property
    def device_handle(self) -> int:
        """The ``cudaGraphDeviceNode_t`` by which device code updates this node; 0 if it is not updatable.

        See ``LaunchConfig.device_updatable``.
        """
        check_node(self, self.graph.handle)
        attribute = getattr(binding.native().CUkernelNodeAttrID, f"CU_LAUNCH_ATTRIBUTE_{_UPDATABLE}")
        value = binding.call("cuGraphKernelNodeGetAttribute", self.handle, attribute)
        return int(value.deviceUpdatableKernelNode.devNode)

    def __eq__(self, other: object) -> bool:
        return self.handle == other.handle if isinstance(other, KernelNode) else NotImplemented

    def __hash__(self) -> int:
        return hash((KernelNode, self.handle))

    def __repr__(self) -> str:
        return f"<KernelNode {self.handle:#x}>"


def add_kernel(graph: Handle, bound: BoundKernel, values: Sequence[float], after: Iterable[KernelNode]) -> KernelNode:
    """Add a kernel node with the grid, the attributes and the arguments of a bound launch; see ``Graph.add_kernel``."""
    after = tuple(after)  # a generator would be empty after the first look, and the node would follow nobody
    for node in after:
        check_node(node, graph.handle)
    _check_config(bound.config)
    # An updatable node cannot be destroyed any more, so it becomes one when nothing else can be refused.
    structs = sorted(native_attributes(bound.config), key=lambda struct: _name_of(struct) == _UPDATABLE)
    # Plain edges are given with the node; programmatic ones carry data, and are added to it.
    programmatic = bound.config.programmatic_stream_serialization
    before = [] if programmatic else [_node(node) for node in after]

    def add(pointers: int) -> Any:
        return binding.call("cuGraphAddKernelNode", graph.handle, before, len(before), _parameters(bound, pointers))

    handle = int(bound.packed_for(add, *values))
    node = KernelNode(handle, graph)
    try:
        if programmatic and after:
            _add_programmatic_edges(node, after)
        for struct in structs:
            _set_attribute(handle, struct)
    except BaseException:  # half a node would run with half its attributes
        binding.call("cuGraphDestroyNode", handle)
        raise
    return node


def set_kernel(executable: int, node: KernelNode, bound: BoundKernel, values: Sequence[float]) -> None:
    """Give the node of an executable graph the kernel, the grid and the arguments of a bound launch."""

    def put(pointers: int) -> None:
        binding.call("cuGraphExecKernelNodeSetParams", executable, node.handle, _parameters(bound, pointers))

    bound.packed_for(put, *values)


def kernel_nodes(graph: Handle) -> tuple[KernelNode, ...]:
    """Return the kernel nodes of a graph, in the order in which the driver lists them."""
    count = int(binding.call("cuGraphGetNodes", graph.handle, 0)[1])
    if not count:
        return ()
    kernel = binding.native().CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
    handles = [int(node) for node in binding.call("cuGraphGetNodes", graph.handle, count)[0]]
    return tuple(KernelNode(node, graph) for node in handles if binding.call("cuGraphNodeGetType", node) == kernel)


def check_node(node: Any, graph_handle: int) -> None:
    """Refuse what is no node of the graph of that handle."""
    if not isinstance(node, KernelNode):
        raise TypeError(f"a node is a KernelNode, not {type(node).__name__}")
    if node.graph.handle != graph_handle:
        raise ValueError(f"{node!r} is a node of another graph")


def _add_programmatic_edges(node: KernelNode, after: Sequence[KernelNode]) -> None:
    native = binding.native()
    edge = native.CUgraphEdgeData()
    edge.from_port, edge.type = _PROGRAMMATIC, _PROGRAMMATIC
    count = len(after)
    # Bindings 13 gave the plain name the meaning of the second version, which takes the data of the edges.
    name = "cuGraphAddDependencies_v2" if hasattr(native, "cuGraphAddDependencies_v2") else "cuGraphAddDependencies"
    begins, ends = [_node(one) for one in after], [_node(node)] * count
    binding.call(name, node.graph.handle, begins, ends, [edge] * count, count)


def _parameters(bound: BoundKernel, pointers: int) -> Any:
    """Return the driver's struct of a kernel node, whose arguments the driver copies when it is given it."""
    config = bound.config
    native = binding.native().CUDA_KERNEL_NODE_PARAMS()
    native.func = bound.kernel.function_in(bound.context)
    # After its construction a configuration's extents are triples.
    native.gridDimX, native.gridDimY, native.gridDimZ = config.grid  # type: ignore[misc]
    native.blockDimX, native.blockDimY, native.blockDimZ = config.block  # type: ignore[misc]
    native.sharedMemBytes = config.dynamic_shared_bytes
    native.kernelParams = pointers
    return native


def _set_attribute(node: int, struct: Any) -> None:
    native = binding.native()
    name = _name_of(struct)
    if name == _SERIALIZATION:
        return
    value = native.CUkernelNodeAttrValue()
    ctypes.memmove(int(value.getPtr()), int(struct.value.getPtr()), _ATTRIBUTE_VALUE_BYTES)
    identity = getattr(native.CUkernelNodeAttrID, f"CU_LAUNCH_ATTRIBUTE_{name}")
    binding.call("cuGraphKernelNodeSetAttribute", node, identity, value)


def _name_of(struct: Any) -> str:
    name: str = struct.id.name
    return name.removeprefix("CU_LAUNCH_ATTRIBUTE_")


def _check_config(config: LaunchConfig) -> None:
    for name in ("programmatic_event", "launch_completion_event"):
        if getattr(config, name) is not None:
            raise ValueError(f"{name} is for launches into streams: a kernel node records no event")


def _node(node: KernelNode) -> Any:
    return binding.native().CUgraphNode(node.handle)

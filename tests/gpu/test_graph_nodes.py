"""Graphs node by node: kernel nodes with their attributes, new arguments, and updates of executables."""

import ctypes

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.compiler import Program, compile_program
from lowlevel_reduce.driver import (
    AccessPolicyWindow,
    BoundKernel,
    Buffer,
    Context,
    Event,
    Graph,
    KernelNode,
    LaunchConfig,
    Library,
    Stream,
    binding,
)
from lowlevel_reduce.driver.attributes import native_attributes
from lowlevel_reduce.errors import CudaError

pytestmark = pytest.mark.bindings

SOURCE = r"""
extern "C" __global__ void put(unsigned *out, unsigned value) { out[threadIdx.x] = value; }

extern "C" __global__ void append(unsigned *out, unsigned digit)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;");
#endif
    out[threadIdx.x] = 10 * out[threadIdx.x] + digit;
}

extern "C" __global__ void ranks(unsigned *out)
{
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) out[blockIdx.x] = rank;
}

extern "C" __global__ void meet(unsigned *arrived)
{
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1u);
        while (atomicAdd(arrived, 0u) < gridDim.x) { }
    }
}
"""


@pytest.fixture(scope="module")
def library(device):
    if device.compute_capability < (9, 0):
        pytest.skip("these kernels use thread-block clusters, which came with sm_90")
    program = Program(name="nodes", source=SOURCE)
    code = compile_program(program, device.architecture, output=binding.selected().image)
    with Library.load(code.data, name="nodes") as library:
        yield library


@pytest.fixture
def words(context):
    with Buffer.allocate(32 * 4, context) as words:
        words.fill(0)
        yield words


@pytest.fixture
def graph(context):
    with Graph.create(context) as graph:
        yield graph


@pytest.fixture
def bind(library, stream):
    def bind(name, signature="QI", grid=1, constants=(), **options):
        config = LaunchConfig(grid, 32, **options)
        return BoundKernel(library.kernel(name), config, stream, signature, constants=constants)

    return bind


def run(graph, stream):
    with graph.instantiate() as executable:
        executable.launch(stream)
        stream.synchronize()


def read(words, stream):
    stream.synchronize()
    array = np.empty(32, np.uint32)
    words.copy_to(array)
    return array


def test_nodes_run_in_the_order_of_their_edges(graph, bind, words, stream):
    append = bind("append")
    node = None
    for digit in (1, 2, 3, 4):
        node = graph.add_kernel(append, words.pointer, digit, after=[node] if node else [])
    assert graph.node_count == 4
    assert set(graph.kernel_nodes) >= {node}
    assert (read(words, stream) == 0).all(), "adding a node runs nothing"
    run(graph, stream)
    assert (read(words, stream) == 1234).all(), "each node has the arguments that it was given"


@pytest.mark.parametrize("programmatic", [False, True])
def test_the_nodes_before_may_come_from_a_generator(graph, bind, words, stream, monkeypatch, programmatic):
    from lowlevel_reduce.driver import nodes

    call, edges = binding.call, []

    def noting(name, *args):
        if name == "cuGraphAddKernelNode":
            edges.append(args[2])
        if name.startswith("cuGraphAddDependencies"):
            edges.append(args[-1])
        return call(name, *args)

    append = bind("append", programmatic_stream_serialization=programmatic)
    added = [graph.add_kernel(append, words.pointer, 1)]
    monkeypatch.setattr(nodes.binding, "call", noting)
    added.append(graph.add_kernel(append, words.pointer, 2, after=(node for node in added)))
    monkeypatch.undo()
    assert sum(edges) == 1
    run(graph, stream)
    assert (read(words, stream) == 12).all()


def test_programmatic_edges_keep_the_order(graph, bind, words, stream, monkeypatch):
    from lowlevel_reduce.driver import nodes

    call, edges = binding.call, []

    def noting(name, *args):
        if name.startswith("cuGraphAddDependencies"):
            edges.extend((edge.type, edge.from_port, edge.to_port) for edge in args[3])
        return call(name, *args)

    monkeypatch.setattr(nodes.binding, "call", noting)
    append = bind("append", programmatic_stream_serialization=True)
    node = graph.add_kernel(bind("append"), words.pointer, 1)
    for digit in (2, 3, 4):
        node = graph.add_kernel(append, words.pointer, digit, after=[node])
    monkeypatch.undo()
    run(graph, stream)
    programmatic = binding.native().CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
    assert edges == [(programmatic, 1, 0)] * 3, "from the port of the trigger"
    assert (read(words, stream) == 1234).all()


def test_constants_of_a_bound_launch_are_the_nodes_too(graph, bind, words, stream):
    graph.add_kernel(bind("put", constants=(77,)), words.pointer)
    run(graph, stream)
    assert (read(words, stream) == 77).all()


def test_a_cluster_is_a_nodes_too(graph, bind, words, stream):
    graph.add_kernel(bind("ranks", "Q", grid=16, cluster=4, priority=-1), words.pointer)
    run(graph, stream)
    assert list(read(words, stream)[:16]) == [0, 1, 2, 3] * 4


def test_a_cooperative_grid_is_a_nodes_too(graph, bind, words, stream, context):
    blocks = context.multiprocessor_count
    graph.add_kernel(bind("meet", "Q", grid=blocks, cooperative=True), words.pointer)
    run(graph, stream)
    assert read(words, stream)[0] == blocks


@pytest.mark.parametrize(
    "options",
    [
        {"priority": -1},
        {"cluster_scheduling": "spread"},
        {"memory_sync_domain": "remote"},
        {"memory_sync_domain_map": (0, 1)},
        {"shared_memory_carveout": 100},
        {"access_policy_window": AccessPolicyWindow(0, 0, 0.5, "streaming", "normal")},
    ],
    ids=lambda options: list(options)[-1],
)
def test_an_attribute_of_a_launch_is_its_nodes(graph, bind, words, stream, monkeypatch, options):
    from lowlevel_reduce.driver import nodes

    call, given = binding.call, {}

    def noting(name, *args):
        if name == "cuGraphKernelNodeSetAttribute":
            given[int(args[1])] = ctypes.string_at(int(args[2].getPtr()), 64)
        return call(name, *args)

    bound = bind("ranks", "Q", grid=2, cluster=2, **options)
    monkeypatch.setattr(nodes.binding, "call", noting)
    graph.add_kernel(bound, words.pointer)
    monkeypatch.undo()
    wanted = {int(one.id): ctypes.string_at(int(one.value.getPtr()), 64) for one in native_attributes(bound.config)}
    assert given == wanted
    run(graph, stream)
    assert list(read(words, stream)[:2]) == [0, 1]


def test_new_arguments_for_a_captured_node(bind, words, stream, context):
    put = bind("put")
    with Graph.capture(stream) as graph:
        put(words.pointer, 5)
    with graph, graph.instantiate() as executable, Buffer.allocate(128, context) as other:
        (node,) = graph.kernel_nodes
        executable.launch(stream)
        executable.set_kernel(node, put, other.pointer, 6)
        executable.launch(stream)
        assert (read(words, stream) == 5).all()
        assert (read(other, stream) == 6).all()


@pytest.mark.parametrize("strategy", ["block", "cluster", "tiles", "two_pass", "cooperative"])
def test_the_launch_of_a_plan_is_a_node(graph, context, stream, strategy):
    first, second = np.random.default_rng(5).standard_normal((2, 20_000)).astype(np.float32)
    x, y = lr.DeviceArray.from_numpy(first, stream), lr.DeviceArray.from_numpy(second, stream)
    result = lr.DeviceArray.empty((), "float32", stream)
    with lr.plan("sum", shape=first.shape, dtype="float32", context=context, strategy=strategy) as plan:
        launch = plan.bind(stream)
        nodes = []
        for kernel in launch.kernels:
            nodes.append(graph.add_kernel(kernel, x.pointer, result.pointer, 0, after=nodes[-1:]))
        assert len(nodes) == graph.node_count == len(plan.launches)
        with graph.instantiate() as executable:
            executable.launch(stream)
            assert result.numpy().tobytes() == lr.tree.reduce(first).tobytes()
            for node, kernel in zip(nodes, launch.kernels, strict=True):
                executable.set_kernel(node, kernel, y.pointer, result.pointer, 0)
            executable.launch(stream)
            assert result.numpy().tobytes() == lr.tree.reduce(second).tobytes()


def test_update_takes_the_arguments_of_a_second_capture(bind, words, stream):
    put, append = bind("put"), bind("append")
    with Graph.capture(stream) as first:
        put(words.pointer, 5)
        append(words.pointer, 1)
    with Graph.capture(stream) as second:
        put(words.pointer, 6)
        append(words.pointer, 2)
    with first, second, first.instantiate() as executable:
        executable.update(second)
        executable.launch(stream)
        assert (read(words, stream) == 62).all()


def test_an_update_by_another_topology_is_refused_and_changes_nothing(bind, words, stream):
    put = bind("put")
    with Graph.capture(stream) as one:
        put(words.pointer, 5)
    with Graph.capture(stream) as two:
        put(words.pointer, 6)
        put(words.pointer, 7)
    with one, two, one.instantiate() as executable:
        with pytest.raises(ValueError, match="differ in more than their parameters"):
            executable.update(two)
        executable.launch(stream)
        assert (read(words, stream) == 5).all()


def test_nodes_of_another_graph_or_none(graph, bind, words, stream, context):
    put = bind("put")
    with Graph.create(context) as other:
        stranger = other.add_kernel(put, words.pointer, 1)
        with pytest.raises(ValueError, match="another graph"):
            graph.add_kernel(put, words.pointer, 2, after=[stranger])
        graph.add_kernel(put, words.pointer, 3)
        with graph.instantiate() as executable:
            with pytest.raises(ValueError, match="another graph"):
                executable.set_kernel(stranger, put, words.pointer, 4)
            with pytest.raises(TypeError, match="KernelNode, not int"):
                executable.set_kernel(stranger.handle, put, words.pointer, 4)
    assert graph.node_count == 1
    with pytest.raises(ValueError, match="graph is closed"):
        graph.add_kernel(put, words.pointer, 2, after=[stranger])


def test_a_node_of_a_closed_graph(bind, words, stream):
    put = bind("put")
    with Graph.capture(stream) as graph:
        put(words.pointer, 1)
    with graph:
        executable, (node,) = graph.instantiate(), graph.kernel_nodes
    with executable, pytest.raises(ValueError, match="graph is closed"):
        executable.set_kernel(node, put, words.pointer, 2)


def test_a_launch_that_is_no_nodes(graph, bind, words, stream, context, device, library):
    with Event.create(context, timing=False) as event, pytest.raises(ValueError, match="records no event"):
        graph.add_kernel(bind("put", launch_completion_event=event), words.pointer, 1)
    with Context.create(device) as created, Stream.create(created) as elsewhere:
        foreign = BoundKernel(library.kernel("put"), LaunchConfig(1, 32), elsewhere, "QI")
        with pytest.raises(ValueError, match="the graph of"):
            graph.add_kernel(foreign, words.pointer, 1)
        assert graph.node_count == 0
        assert graph.kernel_nodes == ()
        node = graph.add_kernel(bind("put"), words.pointer, 7)
        with graph.instantiate() as executable:
            with pytest.raises(ValueError, match="the graph of"):
                executable.set_kernel(node, foreign, words.pointer, 8)
            executable.launch(stream)
            assert (read(words, stream) == 7).all()


def test_what_is_no_launch_of_a_kernel(graph, context, stream):
    """A plan's bound launch may be of several kernels: each of them is a node."""
    x, result = lr.DeviceArray.empty((4,), "float32", stream), lr.DeviceArray.empty((), "float32", stream)
    with lr.plan("sum", shape=4, dtype="float32", context=context) as plan:
        launch = plan.bind(stream)
        node = graph.add_kernel(launch.kernels[0], x.pointer, result.pointer, 0)
        with graph.instantiate() as executable:
            for wrong in (launch, None):
                with pytest.raises(TypeError, match="the launch is a BoundKernel, not"):
                    graph.add_kernel(wrong, x.pointer, result.pointer, 0)
                with pytest.raises(TypeError, match="the launch is a BoundKernel, not"):
                    executable.set_kernel(node, wrong, x.pointer, result.pointer, 0)
            with pytest.raises(TypeError, match="is a Graph, not GraphExec"):
                executable.update(executable)
    assert graph.node_count == 1


def test_a_node_that_is_interrupted_leaves_the_graph_as_it_was(graph, bind, words, monkeypatch):
    from lowlevel_reduce.driver import nodes

    call = binding.call

    def interrupted(name, *args):
        if name == "cuGraphKernelNodeSetAttribute":
            raise KeyboardInterrupt
        return call(name, *args)

    bound = bind("ranks", "Q", grid=16, cluster=4)
    monkeypatch.setattr(nodes.binding, "call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        graph.add_kernel(bound, words.pointer)
    monkeypatch.undo()
    assert graph.node_count == 0


def test_a_refused_attribute_leaves_the_graph_as_it_was(graph, bind, words, monkeypatch):
    from lowlevel_reduce.driver import nodes

    call = binding.call

    def refusing(name, *args):
        if name == "cuGraphKernelNodeSetAttribute":
            binding.raise_for(name, int(binding.native().CUresult.CUDA_ERROR_INVALID_VALUE))
        return call(name, *args)

    bound = bind("ranks", "Q", grid=16, cluster=4)
    monkeypatch.setattr(nodes.binding, "call", refusing)
    with pytest.raises(CudaError, match="cuGraphKernelNodeSetAttribute"):
        graph.add_kernel(bound, words.pointer)
    monkeypatch.undo()
    assert graph.node_count == 0


def test_a_node_that_device_code_may_update(graph, bind, words, stream):
    plain = graph.add_kernel(bind("put"), words.pointer, 1)
    node = graph.add_kernel(bind("put", device_updatable=True), words.pointer, 2, after=[plain])
    assert plain.device_handle == 0
    assert node.device_handle
    with graph.instantiate() as executable:
        executable.upload(stream)
        stream.synchronize()
        executable.launch(stream)
        assert (read(words, stream) == 2).all()
    graph.close()
    with pytest.raises(ValueError, match="graph is closed"):
        _ = node.device_handle


def test_a_refused_updatable_node_leaves_the_graph_as_it_was(graph, bind, words, monkeypatch):
    """Once it is updatable a node stays, so nothing may be left to be refused then."""
    from lowlevel_reduce.driver import nodes

    call = binding.call

    def refusing(name, *args):
        if name == "cuGraphKernelNodeSetAttribute" and args[1].name.endswith("CARVEOUT"):
            binding.raise_for(name, int(binding.native().CUresult.CUDA_ERROR_INVALID_VALUE))
        return call(name, *args)

    bound = bind("put", device_updatable=True, shared_memory_carveout=50)
    monkeypatch.setattr(nodes.binding, "call", refusing)
    with pytest.raises(CudaError, match="cuGraphKernelNodeSetAttribute"):
        graph.add_kernel(bound, words.pointer, 1)
    monkeypatch.undo()
    assert graph.node_count == 0


def test_closed_graphs_and_wrong_arguments(context, bind, words):
    graph = Graph.create(context)
    with pytest.raises(Exception, match="pack"):
        graph.add_kernel(bind("put"), words.pointer)
    assert graph.node_count == 0
    graph.close()
    with pytest.raises(ValueError, match="closed"):
        graph.add_kernel(bind("put"), words.pointer, 1)
    assert KernelNode(1, graph) == KernelNode(1, graph)


def test_a_launch_in_a_default_stream_is_of_the_context_in_which_it_was_bound(device, graph, library, words, stream):
    """Whatever is current when a node is made of it."""
    bound = BoundKernel(library.kernel("put"), LaunchConfig(1, 32), Stream.legacy(), "QI")
    with Context.create(device) as other, other.pushed(), Graph.create(other) as elsewhere:
        node = graph.add_kernel(bound, words.pointer, 7)
        with graph.instantiate() as executable:
            executable.set_kernel(node, bound, words.pointer, 8)
            executable.launch(stream)
            assert (read(words, stream) == 8).all()
        with pytest.raises(ValueError, match="the graph of"):
            elsewhere.add_kernel(bound, words.pointer, 7)
        assert elsewhere.node_count == 0

"""The simulated driver's green contexts, memory pools and kernel nodes, with the checks of a real one."""

import ctypes

import pytest
from cuda.bindings import driver as cu
from test_simulator_driver import ERROR, config, good, launch, load, simulated

SM = cu.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
ATTRIBUTES = cu.CUlaunchAttributeID


@pytest.fixture
def driver():
    driver = simulated()
    good(driver.cuInit(0))
    good(driver.cuCtxPushCurrent(good(driver.cuDevicePrimaryCtxRetain(0))))
    return driver


def green(driver, least=16):
    whole = good(driver.cuDeviceGetDevResource(0, SM))
    groups, count, _ = good(driver.cuDevSmResourceSplitByCount(1, whole, 0, least))
    assert count == len(groups) == 1
    share = good(driver.cuGreenCtxCreate(good(driver.cuDevResourceGenerateDesc(groups, 1)), 0, 1))
    return share, good(driver.cuCtxFromGreenCtx(share))


@pytest.mark.parametrize(
    ("device", "least", "each", "rest"), [("H200", 1, 8, 124), ("H200", 17, 24, 108), ("A100", 5, 6, 102)]
)
def test_a_split_rounds_up_and_tells_what_remains(device, least, each, rest):
    driver = simulated(device)
    good(driver.cuInit(0))
    whole = good(driver.cuDeviceGetDevResource(0, SM))
    groups, count, remaining = good(driver.cuDevSmResourceSplitByCount(1, whole, 0, least))
    assert ([group.sm.smCount for group in groups], count, remaining.sm.smCount) == ([each], 1, rest)
    assert good(driver.cuDevSmResourceSplitByCount(99, whole, 0, least))[1] == whole.sm.smCount // each
    refused = driver.cuDevSmResourceSplitByCount(1, whole, 0, whole.sm.smCount + 1)
    assert refused == (ERROR.CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, None, None, None)


def test_a_green_context_has_its_share_and_the_primary_ones_memory(driver):
    share, context = green(driver)
    assert good(driver.cuCtxGetDevResource(context, SM)).sm.smCount == 16
    assert good(driver.cuGreenCtxGetDevResource(share, SM)).sm.smCount == 16
    function = load(driver)
    stream = good(driver.cuGreenCtxStreamCreate(share, 1, 0))
    assert int(good(driver.cuStreamGetGreenCtx(stream))) == int(share)
    assert int(good(driver.cuStreamGetGreenCtx(0))) == 0
    pointer = int(good(driver.cuMemAlloc(16)))
    good(driver.cuMemsetD8Async(pointer, 0, 16, stream))
    good(launch(driver, config(grid=48, block=512, stream=stream, COOPERATIVE=1), function, pointer, 1, 1))
    large = config(grid=49, block=512, stream=stream, COOPERATIVE=1)
    assert launch(driver, large, function, pointer, 1, 1)[0] == ERROR.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
    good(driver.cuCtxPushCurrent(context))
    clusters = config(grid=8, block=512, CLUSTER_DIMENSION=8)
    assert good(driver.cuOccupancyMaxActiveClusters(function, clusters)) == 16 * 3 // 8
    good(driver.cuMemFree(good(driver.cuMemAlloc(16))))


def test_a_green_contexts_streams_are_detached_and_left(driver):
    share, context = green(driver)
    stream = good(driver.cuGreenCtxStreamCreate(share, 1, 0))
    assert driver.cuGreenCtxStreamCreate(share, 0, 0)[0] == ERROR.CUDA_ERROR_INVALID_VALUE
    assert driver.cuCtxDestroy(context)[0] == ERROR.CUDA_ERROR_INVALID_CONTEXT
    good(driver.cuGreenCtxDestroy(share))
    assert driver.cuGreenCtxDestroy(share)[0] == ERROR.CUDA_ERROR_INVALID_VALUE
    assert driver.cuCtxPushCurrent(context)[0] == ERROR.CUDA_ERROR_CONTEXT_IS_DESTROYED
    assert driver.cuStreamSynchronize(stream)[0] != ERROR.CUDA_SUCCESS
    assert driver.leaks() == {"contexts": 1, "streams": 1}
    good(driver.cuStreamDestroy(stream))
    good(driver.cuDevicePrimaryCtxRelease(0))
    assert driver.leaks() == {}


def test_a_pool_has_a_limit_and_is_counted(driver):
    properties = cu.CUmemPoolProps()
    properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.maxSize = 1024
    pool = good(driver.cuMemPoolCreate(properties))
    pointer = good(driver.cuMemAllocFromPoolAsync(1000, pool, 0))
    assert driver.cuMemAllocFromPoolAsync(100, pool, 0)[0] == ERROR.CUDA_ERROR_OUT_OF_MEMORY
    used = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
    assert int(good(driver.cuMemPoolGetAttribute(pool, used))) == 1000
    assert driver.cuMemPoolSetAttribute(pool, used, cu.cuuint64_t(0))[0] == ERROR.CUDA_ERROR_INVALID_VALUE
    good(driver.cuDeviceSetMemPool(0, pool))
    assert int(good(driver.cuDeviceGetMemPool(0))) == int(pool)
    assert driver.leaks()["memory pools"] == 1
    good(driver.cuMemPoolDestroy(pool))
    default = good(driver.cuDeviceGetDefaultMemPool(0))
    assert int(good(driver.cuDeviceGetMemPool(0))) == int(default)
    assert driver.cuMemPoolDestroy(default)[0] == ERROR.CUDA_ERROR_INVALID_VALUE
    good(driver.cuMemFreeAsync(pointer, 0))
    assert driver.leaks() == {"contexts": 1}
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_INVALID
    assert driver.cuMemPoolCreate(properties)[0] == ERROR.CUDA_ERROR_INVALID_VALUE


class Slots:
    """The arguments of ``add``, as a kernel node takes them."""

    def __init__(self, *values):
        self.values = (ctypes.c_uint64 * 3)(*values)
        first = ctypes.addressof(self.values)
        self.table = (ctypes.c_void_p * 3)(first, first + 8, first + 16)


def parameters(function, slots, grid=1):
    made = cu.CUDA_KERNEL_NODE_PARAMS()
    made.func = function
    made.gridDimX, made.gridDimY, made.gridDimZ = grid, 1, 1
    made.blockDimX, made.blockDimY, made.blockDimZ = 32, 1, 1
    made.kernelParams = ctypes.addressof(slots.table)
    return made


def read(driver, pointer):
    back = (ctypes.c_uint32 * 1)()
    good(driver.cuMemcpyAsync(ctypes.addressof(back), pointer, 4, 0))
    return back[0]


def test_kernel_nodes_are_copied_updated_and_refused(driver):
    function, pointer = load(driver), int(good(driver.cuMemAlloc(16)))
    good(driver.cuMemsetD8Async(pointer, 0, 16, 0))
    graph = good(driver.cuGraphCreate(0))
    slots = Slots(pointer, 1, 5)
    first = good(driver.cuGraphAddKernelNode(graph, [], 0, parameters(function, slots)))
    second = good(driver.cuGraphAddKernelNode(graph, [first], 1, parameters(function, slots)))
    slots.values[2] = 100
    assert good(driver.cuGraphNodeGetType(second)) == cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
    executable = good(driver.cuGraphInstantiate(graph, 0))
    good(driver.cuGraphLaunch(executable, 0))
    assert read(driver, pointer) == 10, "the arguments are those of when the nodes were added"
    good(driver.cuGraphExecKernelNodeSetParams(executable, second, parameters(function, slots)))
    good(driver.cuGraphLaunch(executable, 0))
    assert read(driver, pointer) == 115
    good(driver.cuGraphExecUpdate(executable, graph))
    good(driver.cuGraphLaunch(executable, 0))
    assert read(driver, pointer) == 125
    assert driver.cuGraphAddDependencies(graph, [first], [second], 1)[0] == ERROR.CUDA_ERROR_INVALID_VALUE
    good(driver.cuGraphAddDependencies(graph, [second], [first], [cu.CUgraphEdgeData()], 1))
    assert driver.cuGraphInstantiate(graph, 0)[0] == ERROR.CUDA_ERROR_INVALID_VALUE, "a circle"
    good(driver.cuGraphDestroyNode(second))
    good(driver.cuGraphInstantiate(graph, 0))
    assert driver.cuGraphExecUpdate(executable, graph)[0] == ERROR.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
    good(driver.cuGraphDestroy(graph))
    assert driver.cuGraphNodeGetType(first)[0] == ERROR.CUDA_ERROR_INVALID_VALUE


def test_a_nodes_attributes_are_checked_when_it_is_instantiated(driver):
    graph = good(driver.cuGraphCreate(0))
    slots = Slots(int(good(driver.cuMemAlloc(16))), 1, 5)
    node = good(driver.cuGraphAddKernelNode(graph, [], 0, parameters(load(driver), slots, grid=6)))
    value = cu.CUkernelNodeAttrValue()
    value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = 4, 1, 1
    good(driver.cuGraphKernelNodeSetAttribute(node, ATTRIBUTES.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value))
    assert driver.cuGraphInstantiate(graph, 0)[0] == ERROR.CUDA_ERROR_INVALID_CLUSTER_SIZE
    value.clusterDim.x = 2
    good(driver.cuGraphKernelNodeSetAttribute(node, ATTRIBUTES.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value))
    good(driver.cuGraphInstantiate(graph, 0))
    policy = ATTRIBUTES.CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
    assert driver.cuGraphKernelNodeSetAttribute(node, policy, value)[0] == ERROR.CUDA_ERROR_INVALID_VALUE


def test_pinned_memory_can_be_filled_and_foreign_memory_cannot(driver):
    pointer = good(driver.cuMemHostAlloc(16, 0))
    good(driver.cuMemsetD8Async(pointer, 7, 16, 0))
    assert ctypes.string_at(pointer, 16) == b"\x07" * 16
    assert driver.cuMemsetD8Async(pointer, 7, 17, 0)[0] == ERROR.CUDA_ERROR_INVALID_VALUE
    other = (ctypes.c_uint8 * 16)()
    assert driver.cuMemsetD8Async(ctypes.addressof(other), 7, 16, 0)[0] == ERROR.CUDA_ERROR_INVALID_VALUE

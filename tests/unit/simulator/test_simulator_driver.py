"""The simulated driver's functions by themselves, called as the bindings' are; a stand-in for the machine runs."""

import ctypes
import re
import struct
from collections import Counter
from dataclasses import dataclass, field

import pytest
from cuda.bindings import driver as cu
from in_threads import in_threads

from lowlevel_reduce.driver import binding
from lowlevel_reduce.errors import ReduceError, UnsupportedError
from lowlevel_reduce.simulator.devices import DEVICES, by_name, device_names
from lowlevel_reduce.simulator.driver import Engine, SimulatedDriver
from lowlevel_reduce.simulator.driver.occupancy import estimated_registers, most_threads

ERROR = cu.CUresult
OK = ERROR.CUDA_SUCCESS
PTX = b"""//
.version 8.0
.target sm_75
.entry add(8 4 4) .shared 1024 .maxntid 512 .minnctapersm 2
.entry wrong(8 4 4) .shared 0 .maxntid 1024 .minnctapersm 0
"""
_ENTRY = re.compile(r"\.entry (\w+)\(([\d ]*)\) \.shared (\d+) \.maxntid (\d+) \.minnctapersm (\d+)")


class StandInFaultError(ReduceError):
    pass


@dataclass
class Parameter:
    size: int
    offset: int


@dataclass
class Code:
    name: str
    parameters: tuple
    static_shared_bytes: int
    max_threads: int
    min_blocks: int
    local_bytes: int = 0
    registers: dict = field(default_factory=lambda: {f"%r{i}": "b32" for i in range(640)} | {"%p1": "pred"})


@dataclass
class Module:
    kernels: dict


@dataclass
class Allocation:
    base: int
    size_bytes: int
    freed: bool = False
    data: bytearray = None


class Memory:
    def __init__(self):
        self.next, self.allocations = 0x7000_0000_0000, []

    def allocate(self, size_bytes, *, alignment=256):
        base = self.next
        self.next += -(-size_bytes // alignment) * alignment + alignment
        self.allocations.append(Allocation(base, size_bytes, data=bytearray(size_bytes)))
        return base

    def find(self, address):
        return next((a for a in self.allocations if a.base <= address < a.base + a.size_bytes), None)

    def free(self, address):
        self.find(address).freed = True

    def reserve(self, size_bytes, owner, *, alignment=256):
        address = self.allocate(size_bytes, alignment=alignment)
        self.free(address)
        return address

    def revive(self, address):
        self.find(address).freed = False

    def read(self, address, size):
        found = self.find(address)
        return bytes(found.data[address - found.base :][:size])

    def write(self, address, data):
        found = self.find(address)
        start = address - found.base
        found.data[start : start + len(data)] = data

    def fill(self, address, byte, size):
        self.write(address, bytes([byte]) * size)

    def copy(self, dst, src, size):
        self.write(dst, self.read(src, size))


def parse(text):
    kernels = {}
    for name, sizes, shared, threads, blocks in _ENTRY.findall(text):
        offset, parameters = 0, []
        for size in map(int, sizes.split()):
            parameters.append(Parameter(size, offset))
            offset += size
        kernels[name] = Code(name, tuple(parameters), int(shared), int(threads), int(blocks))
    return Module(kernels)


def run(launch, memory):
    """``add(pointer, count, increment)`` adds to that many uint32; ``wrong`` goes wrong."""
    if launch["kernel"].name == "wrong":
        raise StandInFaultError("out of bounds")
    pointer, count, increment = struct.unpack("<QII", launch["arguments"])
    values = struct.unpack(f"<{count}I", memory.read(pointer, 4 * count))
    memory.write(pointer, struct.pack(f"<{count}I", *(value + increment for value in values)))
    return Counter(launches=1, blocks=launch["grid"][0], resident=launch["resident_blocks"])


ENGINE = Engine(parse, Memory, dict, run)


def simulated(name="H200"):
    return SimulatedDriver(by_name(name), engine=ENGINE)


def good(result):
    code, *values = result
    assert code == OK, code
    return values[0] if len(values) == 1 else tuple(values)


@pytest.fixture
def driver():
    driver = simulated()
    good(driver.cuInit(0))
    good(driver.cuCtxCreate(0, 0))
    return driver


def load(driver, name=b"add"):
    library = good(driver.cuLibraryLoadData(PTX, None, None, 0, None, None, 0))
    return cu.CUfunction(int(good(driver.cuLibraryGetKernel(library, name))))


def config(grid=1, block=32, shared=0, stream=0, **attributes):
    made = cu.CUlaunchConfig()
    made.gridDimX, made.gridDimY, made.gridDimZ = grid, 1, 1
    made.blockDimX, made.blockDimY, made.blockDimZ = block, 1, 1
    made.sharedMemBytes, made.hStream = shared, cu.CUstream(int(stream))
    structs = []
    for name, value in attributes.items():
        attribute = cu.CUlaunchAttribute()
        attribute.id = getattr(cu.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")
        if name == "CLUSTER_DIMENSION":
            attribute.value.clusterDim.x = value
            attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1
        elif name == "COOPERATIVE":
            attribute.value.cooperative = value
        structs.append(attribute)
    if structs:
        made.attrs = structs
    made.numAttrs = len(structs)
    return made


def launch(driver, asked, function, *values):
    slots = (ctypes.c_uint64 * 3)(*values)
    first = ctypes.addressof(slots)
    table = (ctypes.c_void_p * 3)(first, first + 8, first + 16)
    return driver.cuLaunchKernelEx(asked, function, ctypes.addressof(table), 0)


# the driver, its device, what it lacks


def test_nothing_works_before_init():
    driver = simulated()
    assert driver.cuDeviceGetCount() == (ERROR.CUDA_ERROR_NOT_INITIALIZED, None)
    good(driver.cuInit(0))
    assert good(driver.cuDeviceGetCount()) == 1
    assert good(driver.cuDriverGetVersion()) == 13000
    assert driver.calls["cuDeviceGetCount"] == 2


def test_errors_have_texts():
    driver = simulated()
    assert good(driver.cuGetErrorName(ERROR.CUDA_ERROR_OUT_OF_MEMORY)) == b"CUDA_ERROR_OUT_OF_MEMORY"
    assert all(good(driver.cuGetErrorString(code)) for code in ERROR)


def test_what_is_not_simulated_is_not_found(driver):
    assert hasattr(cu, "cuMemcpyPeer")
    with pytest.raises(RuntimeError, match="function cuMemcpyPeer is not found"):
        driver.cuMemcpyPeer(1, 2)
    with pytest.raises(AttributeError, match="cuNever"):
        _ = driver.cuNever
    binding.register("simulated lacks", simulated)
    with binding.use("simulated lacks"):
        with pytest.raises(UnsupportedError, match="cuMemcpyPeer"):
            binding.call("cuMemcpyPeer", 1, 2)


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.key)
def test_devices_are_found_by_name_and_make_sense(device):
    assert by_name(device.key.lower()) is device
    assert by_name(device.name) is device
    attributes = device.attributes()
    assert all(hasattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}") for name in attributes)
    assert attributes["CLUSTER_LAUNCH"] == bool(device.gpc_multiprocessors)
    assert sum(device.gpc_multiprocessors) in (0, device.multiprocessors)
    assert device.shared_per_block_optin + device.shared_reserved_per_block <= device.shared_per_multiprocessor
    driver = SimulatedDriver(device.key, engine=ENGINE)
    good(driver.cuInit(0))
    assert good(driver.cuDeviceTotalMem(0)) == device.memory_bytes
    assert len(bytes(good(driver.cuDeviceGetUuid(0)).bytes)) == 16


def test_an_unknown_device_is_refused_with_the_names():
    with pytest.raises(ValueError, match=", ".join(device_names())):
        by_name("GTX 480")


def test_no_false_zeros(driver):
    attribute = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH
    assert driver.cuDeviceGetAttribute(attribute, 0)[0] == ERROR.CUDA_ERROR_NOT_SUPPORTED
    assert driver.cuDeviceGet(1)[0] == ERROR.CUDA_ERROR_INVALID_DEVICE


# contexts


def test_the_stack_is_exact():
    driver = simulated()
    good(driver.cuInit(0))
    assert int(good(driver.cuCtxGetCurrent())) == 0
    assert driver.cuCtxPopCurrent()[0] == ERROR.CUDA_ERROR_INVALID_CONTEXT
    first = good(driver.cuCtxCreate(0, 0))
    second = good(driver.cuCtxCreate(None, 0, 0))  # as in bindings 13
    assert int(good(driver.cuCtxGetCurrent())) == int(second)
    good(driver.cuCtxPushCurrent(first))
    good(driver.cuCtxSetCurrent(second))  # replaces the top
    assert [int(good(driver.cuCtxPopCurrent())) for _ in range(3)] == [int(second), int(second), int(first)]
    good(driver.cuCtxSetCurrent(first))  # on an empty stack it pushes
    good(driver.cuCtxSetCurrent(None))  # and null pops
    good(driver.cuCtxSetCurrent(None))
    assert driver.cuCtxPopCurrent()[0] == ERROR.CUDA_ERROR_INVALID_CONTEXT
    assert driver.cuCtxPushCurrent(0x1234)[0] == ERROR.CUDA_ERROR_INVALID_CONTEXT


def test_destroying_pops_here_and_is_met_elsewhere():
    driver = simulated()
    good(driver.cuInit(0))
    context = good(driver.cuCtxCreate(0, 0))
    good(driver.cuCtxPushCurrent(context))
    good(driver.cuStreamCreateWithPriority(0, 0))
    good(driver.cuMemAlloc(16))
    good(driver.cuCtxDestroy(context))
    assert driver.leaks() == {}
    assert int(good(driver.cuCtxGetCurrent())) == int(context)  # only the top was taken off
    assert driver.cuMemAlloc(16)[0] == ERROR.CUDA_ERROR_CONTEXT_IS_DESTROYED
    assert driver.cuCtxGetId(context)[0] == ERROR.CUDA_ERROR_CONTEXT_IS_DESTROYED
    good(driver.cuCtxPopCurrent())
    assert not int(good(driver.cuCtxGetCurrent()))


def test_threads_have_stacks_of_their_own(driver):
    assert in_threads(lambda: int(good(driver.cuCtxGetCurrent()))) == [0]


def test_primary_contexts_count_their_owners():
    driver = simulated()
    good(driver.cuInit(0))
    first, second = good(driver.cuDevicePrimaryCtxRetain(0)), good(driver.cuDevicePrimaryCtxRetain(0))
    assert int(first) == int(second)
    identity = good(driver.cuCtxGetId(first))
    good(driver.cuDevicePrimaryCtxRelease(0))
    assert driver.leaks() == {"contexts": 1}
    assert driver.cuCtxDestroy(first)[0] == ERROR.CUDA_ERROR_INVALID_CONTEXT
    good(driver.cuDevicePrimaryCtxRelease(0))
    assert driver.leaks() == {}
    assert driver.cuDevicePrimaryCtxRelease(0)[0] == ERROR.CUDA_ERROR_INVALID_CONTEXT
    assert good(driver.cuCtxGetId(good(driver.cuDevicePrimaryCtxRetain(0)))) != identity


# streams, events


def test_special_streams_mean_the_current_context(driver):
    context = int(good(driver.cuCtxGetCurrent()))
    assert {int(good(driver.cuStreamGetCtx(special))) for special in (0, 1, 2)} == {context}
    assert good(driver.cuStreamGetId(0)) == good(driver.cuStreamGetId(1)) != good(driver.cuStreamGetId(2))
    good(driver.cuCtxSetCurrent(None))
    assert driver.cuStreamSynchronize(0)[0] == ERROR.CUDA_ERROR_INVALID_CONTEXT


def test_there_is_no_time(driver):
    stream = good(driver.cuStreamCreateWithPriority(1, -9))
    assert good(driver.cuStreamGetPriority(stream)) == -5
    start, end, untimed = (good(driver.cuEventCreate(flags)) for flags in (0, 0, 2))
    good(driver.cuEventRecord(start, stream))
    assert driver.cuEventElapsedTime(start, end)[0] == ERROR.CUDA_ERROR_INVALID_HANDLE  # not recorded
    good(driver.cuEventRecord(end, stream))
    assert driver.cuEventElapsedTime(start, end)[0] == ERROR.CUDA_ERROR_NOT_SUPPORTED
    good(driver.cuEventRecord(untimed, stream))
    assert driver.cuEventElapsedTime(start, untimed)[0] == ERROR.CUDA_ERROR_INVALID_HANDLE


def test_an_event_belongs_to_its_context(driver):
    event = good(driver.cuEventCreate(0))
    good(driver.cuCtxCreate(0, 0))
    stream = good(driver.cuStreamCreateWithPriority(0, 0))
    assert driver.cuEventRecord(event, stream)[0] == ERROR.CUDA_ERROR_INVALID_HANDLE
    good(driver.cuStreamDestroy(stream))
    assert driver.cuStreamDestroy(stream)[0] == ERROR.CUDA_ERROR_INVALID_HANDLE


# memory


def test_copies_go_every_way_and_end_where_they_shall(driver):
    device, other = int(good(driver.cuMemAlloc(64))), int(good(driver.cuMemAlloc(64)))
    pinned = good(driver.cuMemHostAlloc(64, 1))
    source, back = (ctypes.c_uint8 * 64)(*range(64)), (ctypes.c_uint8 * 64)()
    good(driver.cuMemsetD8Async(device, 0xEE, 64, 0))
    good(driver.cuMemcpyAsync(device + 8, ctypes.addressof(source) + 8, 16, 0))  # host to device
    good(driver.cuMemcpyAsync(cu.CUdeviceptr(other), cu.CUdeviceptr(device), 64, 0))  # within the device
    good(driver.cuMemcpyAsync(pinned, other, 64, 0))  # device to pinned
    good(driver.cuMemcpyAsync(ctypes.addressof(back), pinned, 64, 0))  # host to host
    assert bytes(back) == b"\xee" * 8 + bytes(range(8, 24)) + b"\xee" * 40


def test_copies_out_of_bounds_are_refused(driver):
    device, host = int(good(driver.cuMemAlloc(64))), (ctypes.c_uint8 * 256)()
    pinned = good(driver.cuMemHostAlloc(64, 1))
    for destination, size in ((device, 65), (device + 60, 8), (device + 64, 1), (device - 4, 1), (pinned + 1, 64)):
        assert driver.cuMemcpyAsync(destination, ctypes.addressof(host), size, 0)[0] == ERROR.CUDA_ERROR_INVALID_VALUE
    assert driver.cuMemsetD8Async(ctypes.addressof(host), 0, 8, 0)[0] == ERROR.CUDA_ERROR_INVALID_VALUE
    good(driver.cuMemFree(device))
    assert driver.cuMemcpyAsync(device, ctypes.addressof(host), 8, 0)[0] == ERROR.CUDA_ERROR_INVALID_VALUE
    assert driver.cuMemFree(device)[0] == ERROR.CUDA_ERROR_INVALID_VALUE
    assert driver.cuMemFreeHost(device)[0] == ERROR.CUDA_ERROR_INVALID_VALUE


def test_memory_ends(driver):
    assert driver.cuMemAlloc(0)[0] == ERROR.CUDA_ERROR_INVALID_VALUE
    assert driver.cuMemAlloc(1 << 40)[0] == ERROR.CUDA_ERROR_OUT_OF_MEMORY
    good(driver.cuMemAlloc(1000))
    free, total = good(driver.cuMemGetInfo())
    assert total - free == 1000


def test_pool_memory_is_of_no_context(driver):
    pointer = good(driver.cuMemAllocAsync(64, 0))
    names = ("CONTEXT", "MEMORY_TYPE", "RANGE_SIZE", "DEVICE_ORDINAL")
    asked = [getattr(cu.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}") for name in names]
    assert [int(value) for value in good(driver.cuPointerGetAttributes(4, asked, int(pointer) + 4))] == [0, 2, 64, 0]
    good(driver.cuCtxDestroy(good(driver.cuCtxGetCurrent())))
    assert driver.leaks() == {"allocations": 1}


# libraries, occupancy, launches


def test_only_ptx_is_loaded(driver):
    for data, code in (
        (b"\x7fELF" + bytes(60), "NO_BINARY_FOR_GPU"),
        (b"hello", "INVALID_IMAGE"),
        (b".version 8.0\n.target sm_100\n", "INVALID_PTX"),
        (b".version 8.0\n.target sm_80a\n", "INVALID_PTX"),
    ):
        result = driver.cuLibraryLoadData(data, None, None, 0, None, None, 0)
        assert result == (getattr(ERROR, f"CUDA_ERROR_{code}"), None)
    library = good(driver.cuLibraryLoadData(PTX + b"\0", None, None, 0, None, None, 0))
    assert good(driver.cuLibraryGetKernelCount(library)) == 2
    kernel = good(driver.cuLibraryEnumerateKernels(1, library))[0]
    assert good(driver.cuKernelGetName(kernel)) == b"add"
    assert driver.cuLibraryGetKernel(library, b"sub")[0] == ERROR.CUDA_ERROR_NOT_FOUND
    good(driver.cuLibraryUnload(library))
    assert driver.cuKernelGetName(kernel)[0] == ERROR.CUDA_ERROR_INVALID_HANDLE


def test_occupancy_by_hand(driver):
    function = load(driver)
    ask = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
    # 40 registers: 1280 a warp, 51 warps, in fours 48.
    attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS
    assert good(driver.cuKernelGetAttribute(attribute, function, 0)) == 40
    assert good(ask(function, 512, 0)) == 3
    assert good(ask(function, 224, 0)) == 6  # 48 warps for blocks of seven, where 51 would be enough for another one
    assert good(ask(function, 32, 0)) == 32  # as many blocks as there may be
    assert good(ask(function, 513, 0)) == 0  # launch bounds
    assert good(ask(function, 64, 47 * 1024)) == 4  # 47 + 1 + 1 KiB of 228
    assert good(ask(function, 64, 37 * 1024)) == 5  # which would be six without the last one
    assert good(ask(function, 64, 48 * 1024)) == 0  # not opted in to
    dynamic = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    good(driver.cuKernelSetAttribute(dynamic, 100 * 1024, function, 0))
    assert good(ask(function, 64, 100 * 1024)) == 2
    assert driver.cuKernelSetAttribute(dynamic, 227 * 1024, function, 0)[0] == ERROR.CUDA_ERROR_INVALID_VALUE


@pytest.mark.parametrize(
    ("threads", "blocks", "registers"),
    [(288, 1, 168), (320, 1, 168), (96, 5, 128), (224, 2, 128), (288, 2, 96), (224, 3, 80), (96, 10, 64)],
)
def test_launch_bounds_leave_a_thread_what_ptxas_gives_it(threads, blocks, registers):
    """As NVRTC 12.9 compiles a kernel that wants more, for sm_75, sm_90 and sm_120."""
    code = Code("greedy", (), 0, threads, blocks, registers={f"%r{i}": "b32" for i in range(5000)})
    assert estimated_registers(code) == registers


def test_a_block_within_its_launch_bounds_can_be_launched():
    for warps in range(1, 33):
        for blocks in range(33 // warps):
            code = Code("greedy", (), 0, 32 * warps, blocks, registers={f"%r{i}": "b32" for i in range(5000)})
            assert most_threads(code, by_name("H200")) == 32 * warps, (warps, blocks)


def test_clusters_by_hand(driver):
    function = load(driver)
    big = config(grid=16, block=512, shared=40 * 1024, CLUSTER_DIMENSION=16)
    assert driver.cuOccupancyMaxActiveClusters(function, big)[0] == ERROR.CUDA_ERROR_INVALID_CLUSTER_SIZE
    plain = config(block=512)
    assert good(driver.cuOccupancyMaxPotentialClusterSize(function, plain)) == 8
    allow = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
    good(driver.cuKernelSetAttribute(allow, 1, function, 0))
    assert good(driver.cuOccupancyMaxPotentialClusterSize(function, plain)) == 16
    assert good(driver.cuOccupancyMaxActiveClusters(function, big)) == 6 * (51 // 16) + 2 * (45 // 16)


def test_the_active_clusters_of_an_h200(driver):
    function = load(driver)
    for name, value in (("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1), ("MAX_DYNAMIC_SHARED_SIZE_BYTES", 102_400)):
        attribute = getattr(cu.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        good(driver.cuKernelSetAttribute(attribute, value, function, 0))
    measured = {2: 132, 4: 62, 8: 30, 16: 14}  # on one, with two blocks a multiprocessor, here by shared memory
    for cluster, active in measured.items():
        asked = config(grid=16, block=512, shared=102_400, CLUSTER_DIMENSION=cluster)
        assert good(driver.cuOccupancyMaxActiveClusters(function, asked)) == active


@pytest.mark.parametrize("name", ["A100", "T4"])
def test_devices_without_clusters_refuse_them(name):
    driver = simulated(name)
    good(driver.cuInit(0))
    good(driver.cuCtxCreate(0, 0))
    function = load(driver)
    clustered = config(grid=4, CLUSTER_DIMENSION=2)
    pointer = int(good(driver.cuMemAlloc(64)))
    unsupported = ERROR.CUDA_ERROR_NOT_SUPPORTED
    assert launch(driver, clustered, function, pointer, 1, 1)[0] == unsupported
    assert driver.cuOccupancyMaxActiveClusters(function, clustered)[0] == unsupported
    assert driver.cuOccupancyMaxPotentialClusterSize(function, config())[0] == unsupported
    assert driver.launches == []


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"grid": 0}, "INVALID_VALUE"),
        ({"block": 0}, "INVALID_VALUE"),
        ({"block": 1025}, "INVALID_VALUE"),
        ({"block": 513}, "INVALID_VALUE"),  # launch bounds
        ({"shared": 48 * 1024}, "INVALID_VALUE"),
        ({"grid": 3, "CLUSTER_DIMENSION": 2}, "INVALID_CLUSTER_SIZE"),
        ({"grid": 16, "CLUSTER_DIMENSION": 16}, "INVALID_CLUSTER_SIZE"),
        ({"SYNCHRONIZATION_POLICY": 1}, "INVALID_VALUE"),
        ({"grid": 132 * 3 + 1, "block": 512, "COOPERATIVE": 1}, "COOPERATIVE_LAUNCH_TOO_LARGE"),
        ({"stream": 0x99}, "INVALID_HANDLE"),
    ],
)
def test_a_launch_is_checked(driver, asked, code):
    pointer = int(good(driver.cuMemAlloc(64)))
    result = launch(driver, config(**asked), load(driver), pointer, 1, 1)
    assert result == (getattr(ERROR, f"CUDA_ERROR_{code}"),)
    assert driver.launches == []


def test_a_launch_reads_its_arguments_and_counts(driver):
    pointer = int(good(driver.cuMemAlloc(16)))
    good(driver.cuMemsetD8Async(pointer, 0, 16, 0))
    function = load(driver)
    good(launch(driver, config(grid=6, CLUSTER_DIMENSION=2), function, pointer, 3, 7))
    back = (ctypes.c_uint32 * 4)()
    good(driver.cuMemcpyAsync(ctypes.addressof(back), pointer, 16, 0))
    assert list(back) == [7, 7, 7, 0]
    (record,) = driver.launches
    assert (record.kernel, record.grid, record.block, record.cluster) == ("add", (6, 1, 1), (32, 1, 1), (2, 1, 1))
    assert record.counters["blocks"] == 6
    assert driver.cuLaunchKernelEx(config(), function, 0, 0)[0] == ERROR.CUDA_ERROR_INVALID_VALUE


@pytest.mark.parametrize(
    ("block", "attributes", "resident"),
    [
        (32, {}, 512),
        (96, {}, 170),
        (128, {"CLUSTER_DIMENSION": 8}, 128),
        (96, {"CLUSTER_DIMENSION": 8}, 168),
        (512, {"COOPERATIVE": 1}, 132 * 3),
    ],
)
def test_so_many_threads_are_in_flight_at_once(driver, block, attributes, resident, monkeypatch):
    """Those of whole clusters, and all of a cooperative grid; a multiprocessor has room for 2,048."""
    monkeypatch.setattr("lowlevel_reduce.simulator.driver.launches.MOST_THREADS", 1 << 14)
    pointer = int(good(driver.cuMemAlloc(4)))
    good(driver.cuMemsetD8Async(pointer, 0, 4, 0))
    grid = resident if "COOPERATIVE" in attributes else 8000
    good(launch(driver, config(grid, block, **attributes), load(driver), pointer, 1, 1))
    (record,) = driver.launches
    assert record.counters["resident"] == resident


def test_a_fault_comes_out_of_the_launch_and_the_context_lives(driver):
    pointer = int(good(driver.cuMemAlloc(16)))
    with pytest.raises(StandInFaultError):
        launch(driver, config(), load(driver, b"wrong"), pointer, 1, 1)
    good(launch(driver, config(), load(driver), pointer, 1, 1))


# captures and faults on order

RELAXED = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED


def begin(driver, stream, mode="THREAD_LOCAL"):
    good(driver.cuStreamBeginCapture(stream, getattr(cu.CUstreamCaptureMode, f"CU_STREAM_CAPTURE_MODE_{mode}")))


def test_a_capture_forks_and_joins(driver):
    origin, side = (good(driver.cuStreamCreateWithPriority(1, 0)) for _ in range(2))
    pointer = int(good(driver.cuMemAlloc(16)))
    fork, join = (good(driver.cuEventCreate(2)) for _ in range(2))
    for joined in (True, False):
        begin(driver, origin)
        good(driver.cuEventRecord(fork, origin))
        good(driver.cuStreamWaitEvent(side, fork, 0))
        good(driver.cuMemsetD8Async(pointer, 1, 16, side))
        assert good(driver.cuStreamIsCapturing(side)).name == "CU_STREAM_CAPTURE_STATUS_ACTIVE"
        if joined:
            good(driver.cuEventRecord(join, side))
            good(driver.cuStreamWaitEvent(origin, join, 0))
        code, graph = driver.cuStreamEndCapture(origin)
        assert code == (OK if joined else ERROR.CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
        if joined:
            nodes, count = good(driver.cuGraphGetNodes(graph, 5))
            assert len(nodes) == count == 1
    assert not int(good(driver.cuStreamIsCapturing(side)))


@pytest.mark.parametrize(
    "call",
    [
        lambda driver, stream: driver.cuMemAlloc(16),
        lambda driver, stream: driver.cuStreamSynchronize(stream),
        lambda driver, stream: driver.cuCtxSynchronize(),
    ],
)
def test_what_a_capture_cannot_hold_spoils_it(driver, call):
    stream = good(driver.cuStreamCreateWithPriority(1, 0))
    begin(driver, stream)
    assert call(driver, stream)[0] == ERROR.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    assert driver.cuStreamEndCapture(stream) == (ERROR.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, None)
    good(driver.cuStreamSynchronize(stream))


def test_memory_that_a_graph_allocates_is_there_from_one_node_to_another(driver):
    stream = good(driver.cuStreamCreateWithPriority(1, 0))
    source = good(driver.cuMemAlloc(16))
    begin(driver, stream)
    pointer = good(driver.cuMemAllocAsync(16, stream))
    good(driver.cuMemsetD8Async(pointer, 7, 16, stream))
    good(driver.cuMemcpyAsync(source, pointer, 16, stream))
    good((*driver.cuMemFreeAsync(pointer, stream), None))
    graph = good(driver.cuStreamEndCapture(stream))
    nodes, _ = good(driver.cuGraphGetNodes(graph, 9))
    kinds = [good(driver.cuGraphNodeGetType(node)).name.rpartition("TYPE_")[2] for node in nodes]
    assert kinds == ["MEM_ALLOC", "MEMSET", "MEMCPY", "MEM_FREE"]
    assert driver.leaks()["allocations"] == 1, "nothing ran"
    executable = good(driver.cuGraphInstantiate(graph, 0))
    for _ in range(2):
        good(driver.cuGraphLaunch(executable, stream))
        assert driver.leaks()["allocations"] == 1
    found = (ctypes.c_uint8 * 16)()
    good(driver.cuMemcpyDtoHAsync(ctypes.addressof(found), source, 16, stream))
    assert bytes(found) == bytes([7]) * 16


def test_memory_that_a_graph_leaves_must_be_freed_before_it_runs_again(driver):
    stream = good(driver.cuStreamCreateWithPriority(1, 0))
    begin(driver, stream)
    pointer = good(driver.cuMemAllocAsync(16, stream))
    executable = good(driver.cuGraphInstantiate(good(driver.cuStreamEndCapture(stream)), 0))
    good((*driver.cuGraphLaunch(executable, stream), None))
    assert driver.leaks()["allocations"] == 1
    assert driver.cuGraphLaunch(executable, stream)[0] == ERROR.CUDA_ERROR_INVALID_VALUE
    good((*driver.cuMemFreeAsync(pointer, stream), None))
    good((*driver.cuGraphLaunch(executable, stream), None))
    good((*driver.cuMemFree(pointer), None))
    assert "allocations" not in driver.leaks()


def test_a_graph_frees_only_what_a_graph_allocates(driver):
    stream = good(driver.cuStreamCreateWithPriority(1, 0))
    pointer = good(driver.cuMemAllocAsync(16, stream))
    begin(driver, stream)
    assert driver.cuMemFreeAsync(pointer, stream)[0] == ERROR.CUDA_ERROR_INVALID_VALUE
    assert driver.cuStreamEndCapture(stream) == (ERROR.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, None)
    good((*driver.cuMemFreeAsync(pointer, stream), None))


def test_modes_decide_who_may_allocate(driver):
    stream = good(driver.cuStreamCreateWithPriority(1, 0))
    modes = cu.CUstreamCaptureMode
    begin(driver, stream)
    before = good(driver.cuThreadExchangeStreamCaptureMode(modes.CU_STREAM_CAPTURE_MODE_RELAXED))
    assert before == modes.CU_STREAM_CAPTURE_MODE_GLOBAL
    good(driver.cuMemAlloc(16))
    good(driver.cuThreadExchangeStreamCaptureMode(before))
    good(driver.cuStreamEndCapture(stream))
    begin(driver, stream, "RELAXED")
    good(driver.cuMemAlloc(16))
    good(driver.cuStreamEndCapture(stream))
    assert driver.cuStreamBeginCapture(0, modes.CU_STREAM_CAPTURE_MODE_RELAXED)[0] != OK


def wait_in_another_context(driver, stream, event):
    context = good(driver.cuCtxCreate(0, 0))
    outcome = driver.cuCtxSynchronize()
    good(driver.cuCtxDestroy(context))
    return outcome


WAITS = {
    "cuStreamSynchronize": lambda driver, stream, event: driver.cuStreamSynchronize(stream),
    "cuStreamSynchronize of a default stream": lambda driver, stream, event: driver.cuStreamSynchronize(0),
    "cuStreamQuery": lambda driver, stream, event: driver.cuStreamQuery(stream),
    "cuEventSynchronize": lambda driver, stream, event: driver.cuEventSynchronize(event),
    "cuEventQuery": lambda driver, stream, event: driver.cuEventQuery(event),
    "cuCtxSynchronize": wait_in_another_context,
}


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("mode", ["GLOBAL", "THREAD_LOCAL", "RELAXED"])
def test_modes_decide_who_may_wait(driver, wait, mode, elsewhere):
    """For what is no part of the capture, too: a replay would not wait."""
    stream, other = (good(driver.cuStreamCreateWithPriority(1, 0)) for _ in range(2))
    event = good(driver.cuEventCreate(2))
    good(driver.cuEventRecord(event, other))
    current = good(driver.cuCtxGetCurrent())

    def waited():
        good(driver.cuCtxSetCurrent(current))
        return WAITS[wait](driver, other, event)[0]

    begin(driver, stream, mode)
    before = good(driver.cuThreadExchangeStreamCaptureMode(RELAXED))
    assert waited() == OK, "a thread may be relaxed"
    good(driver.cuThreadExchangeStreamCaptureMode(before))
    refused = mode == "GLOBAL" or (mode == "THREAD_LOCAL" and not elsewhere)
    (code,) = in_threads(waited) if elsewhere else (waited(),)
    assert code == (ERROR.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if refused else OK)
    assert driver.cuStreamEndCapture(stream)[0] == (ERROR.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED if refused else OK)
    assert waited() == OK


@pytest.mark.parametrize("mode", ["GLOBAL", "THREAD_LOCAL", "RELAXED"])
def test_no_thread_waits_for_a_context_of_which_a_stream_is_captured(driver, mode):
    stream, context = good(driver.cuStreamCreateWithPriority(1, 0)), good(driver.cuCtxGetCurrent())

    def waited():
        good(driver.cuCtxSetCurrent(context))
        good(driver.cuThreadExchangeStreamCaptureMode(RELAXED))
        return driver.cuCtxSynchronize()[0]

    begin(driver, stream, mode)
    assert in_threads(waited) == [ERROR.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED]
    assert driver.cuStreamEndCapture(stream)[0] == ERROR.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED


def test_the_legacy_stream_waits_for_no_capture(driver):
    stream = good(driver.cuStreamCreateWithPriority(0, 0))  # a blocking one
    pointer = int(good(driver.cuMemAlloc(16)))
    begin(driver, stream)
    assert driver.cuStreamIsCapturing(0)[0] == ERROR.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
    assert int(good(driver.cuStreamIsCapturing(stream))) == 1, "a question spoils nothing"
    assert driver.cuMemsetD8Async(pointer, 0, 16, 0)[0] == ERROR.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
    assert driver.cuStreamEndCapture(stream)[0] == ERROR.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED


def test_faults_on_order(driver):
    driver.fail(2, "OUT_OF_MEMORY")
    driver.fail_call("cuMemAlloc", 2, ERROR.CUDA_ERROR_UNKNOWN)
    good(driver.cuMemAlloc(16))
    assert driver.cuDeviceGetCount() == (ERROR.CUDA_ERROR_OUT_OF_MEMORY, None)
    assert driver.cuMemAlloc(16) == (ERROR.CUDA_ERROR_UNKNOWN, None)
    good(driver.cuMemAlloc(16))
    assert driver.leaks() == {"contexts": 1, "allocations": 2}
    for k, code in ((0, 1), (1, 0), (1, "NO_SUCH_CODE")):
        with pytest.raises(ValueError, match=r"\w"):
            driver.fail(k, code)


def test_threads_may_call_at_once(driver):
    context = good(driver.cuCtxGetCurrent())

    def work():
        good(driver.cuCtxSetCurrent(context))
        for _ in range(50):
            good(driver.cuMemFree(good(driver.cuMemAlloc(64))))

    in_threads(*[work] * 4)
    assert driver.calls["cuMemFree"] == 200
    assert driver.leaks() == {"contexts": 1}

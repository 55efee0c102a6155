"""A driver without a GPU for the unit tests: it keeps a context stack and what is alive, and runs no kernel."""

# ruff: noqa: N802 - the names are the driver's

import contextlib
import ctypes
import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, SupportsInt, TypeVar

from cuda.bindings import driver as cu

from lowlevel_reduce.driver import binding

Result = tuple[Any, ...]
"""What every call returns: the code, and what the call gives."""

OK = cu.CUresult.CUDA_SUCCESS
ERROR = cu.CUresult

ATTRIBUTES = {
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "MULTIPROCESSOR_COUNT": 132,
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
    "CLUSTER_LAUNCH": 1,
    "COOPERATIVE_LAUNCH": 1,
    "MEMORY_CLOCK_RATE": 3_201_000,
    "GLOBAL_MEMORY_BUS_WIDTH": 6144,
    "MEM_SYNC_DOMAIN_COUNT": 4,
    "MAX_ACCESS_POLICY_WINDOW_SIZE": 1 << 27,
    "HOST_REGISTER_SUPPORTED": 1,
}
KERNEL_ATTRIBUTES = {"MAX_THREADS_PER_BLOCK": 512, "NUM_REGS": 40, "MAX_DYNAMIC_SHARED_SIZE_BYTES": 49152}


def signed(handle: SupportsInt | None) -> int:
    return int(handle or 0)


class _Stack(threading.local):
    """The contexts that a thread has pushed, each thread its own."""

    def __init__(self) -> None:
        self.contexts: list[int] = []


class FakeDriver:
    """Two devices, one kernel ``probe``; every call is counted, and any can be told to fail."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.stacks = _Stack()
        self.numbers = itertools.count(0x1000, 0x10)
        self.alive: dict[int, tuple[str, int | None]] = {}  # handle -> (noun, context)
        self.retained = {0: 0, 1: 0}
        self.calls: list[tuple[str, tuple[Any, ...]]] = []  # (name, args)
        self.fails: dict[str, Any] = {}  # name -> CUresult
        self.missing: set[str] = set()
        # config, function, values as 64-bit slots, current context
        self.launches: list[tuple[Any, int, list[bytes], int]] = []
        self.memory: dict[int, ctypes.Array[ctypes.c_uint8]] = {}  # by pointer
        self.kernel_attributes = dict(KERNEL_ATTRIBUTES)
        self.attributes = dict(ATTRIBUTES)
        self.arguments = 0  # how many slots a launch reads
        self.capture_mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        self.capturing: int | None = None
        self.blocks_per_multiprocessor = 2
        self.active_clusters = 16
        self.stream_attribute = cu.CUstreamAttrValue()

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if not name.startswith("cu"):
            return value

        def called(*args: Any) -> Any:
            self.calls.append((name, args))
            if name in self.missing:
                raise RuntimeError(f"function {name} is not found")
            if name in self.fails:
                return (self.fails[name], None)
            return value(*args)

        return called

    @property
    def stack(self) -> list[int]:
        return self.stacks.contexts

    def count(self, name: str) -> int:
        return sum(1 for called, _ in self.calls if called == name)

    def living(self, noun: str) -> set[int]:
        return {handle for handle, (kind, _) in self.alive.items() if kind == noun}

    def _make(self, noun: str, context: int | None = None) -> int:
        handle = next(self.numbers)
        self.alive[handle] = (noun, context)
        return handle

    def _kill(self, noun: str, handle: SupportsInt) -> Result:
        if self.alive.get(int(handle), ("", 0))[0] != noun:
            return (ERROR.CUDA_ERROR_INVALID_HANDLE,)
        del self.alive[int(handle)]
        return (OK,)

    def _in_context(self, noun: str) -> Result:
        return (OK, self._make(noun, self.stack[-1])) if self.stack else (ERROR.CUDA_ERROR_INVALID_CONTEXT, None)

    # the driver and its devices
    def cuInit(self, flags: int) -> Result:
        time.sleep(0.02)  # long enough for another thread to try too
        return (OK,)

    def cuDriverGetVersion(self) -> Result:
        return OK, 13000

    def cuGetErrorString(self, code: Any) -> Result:
        return OK, f"what {code.name} means".encode()

    def cuDeviceGetCount(self) -> Result:
        return OK, 2

    def cuDeviceGet(self, ordinal: int) -> Result:
        return OK, ordinal

    def cuDeviceGetName(self, length: int, device: int) -> Result:
        return OK, b"Fake GPU\0" + b" " * (length - 9)

    def cuDeviceGetAttribute(self, attribute: Any, device: int) -> Result:
        name = attribute.name.removeprefix("CU_DEVICE_ATTRIBUTE_")
        return (OK, self.attributes[name])

    # contexts
    def cuCtxCreate(self, *args: Any) -> Result:  # flags, device, behind creation parameters in 13
        handle = self._make("context", args[-1])
        self.stack.append(handle)
        return OK, handle

    def cuCtxDestroy(self, handle: SupportsInt) -> Result:
        for child in [c for c, (_, context) in self.alive.items() if context == int(handle) and c != int(handle)]:
            del self.alive[child]
        return self._kill("context", handle)

    def cuDevicePrimaryCtxRetain(self, device: int) -> Result:
        self.retained[device] += 1
        self.alive[0xA0 + device] = ("context", device)
        return OK, 0xA0 + device

    def cuDevicePrimaryCtxRelease(self, device: int) -> Result:
        self.retained[device] -= 1
        return (OK,)

    def cuDevicePrimaryCtxGetState(self, device: int) -> Result:
        return OK, 0, int(self.retained[device] > 0)

    def cuCtxGetCurrent(self) -> Result:
        return OK, self.stack[-1] if self.stack else 0

    def cuCtxSetCurrent(self, handle: SupportsInt) -> Result:
        if self.stack:
            self.stack.pop()
        if signed(handle):
            self.stack.append(signed(handle))
        return (OK,)

    def cuCtxPushCurrent(self, handle: SupportsInt) -> Result:
        if int(handle) not in self.alive:
            return (ERROR.CUDA_ERROR_INVALID_CONTEXT,)
        self.stack.append(int(handle))
        return (OK,)

    def cuCtxPopCurrent(self) -> Result:
        return (OK, self.stack.pop()) if self.stack else (ERROR.CUDA_ERROR_INVALID_CONTEXT, None)

    def cuCtxGetDevice(self) -> Result:
        return OK, self.alive[self.stack[-1]][1]

    def cuCtxGetId(self, handle: SupportsInt) -> Result:
        if int(handle) not in self.alive:
            return (ERROR.CUDA_ERROR_CONTEXT_IS_DESTROYED, None)
        return OK, int(handle) + 7

    def cuCtxGetDevResource(self, handle: SupportsInt, kind: Any) -> Result:
        resource = cu.CUdevResource()
        resource.sm.smCount = 66
        return OK, resource

    def cuCtxSynchronize(self) -> Result:
        return (OK,) if self.stack else (ERROR.CUDA_ERROR_INVALID_CONTEXT,)

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> Result:
        before, self.capture_mode = self.capture_mode, mode
        return OK, before

    # streams and events
    def cuCtxGetStreamPriorityRange(self) -> Result:
        return OK, 0, -5

    def cuStreamCreateWithPriority(self, flags: int, priority: int) -> Result:
        return self._in_context("stream")

    def cuStreamDestroy(self, handle: SupportsInt) -> Result:
        return self._kill("stream", handle)

    def cuStreamGetCtx(self, handle: SupportsInt) -> Result:
        return OK, self.alive[int(handle)][1]

    def cuStreamGetAttribute(self, handle: SupportsInt, attribute: Any) -> Result:
        return OK, self.stream_attribute

    def cuStreamSynchronize(self, handle: SupportsInt) -> Result:
        return (OK,) if self.stack else (ERROR.CUDA_ERROR_INVALID_CONTEXT,)

    def cuStreamQuery(self, handle: SupportsInt) -> Result:
        return (ERROR.CUDA_ERROR_NOT_READY,)

    def cuStreamWaitEvent(self, stream: SupportsInt, event: SupportsInt, flags: int) -> Result:
        return (OK,)

    def cuStreamBeginCapture(self, handle: SupportsInt, mode: Any) -> Result:
        self.capturing = int(handle)
        return (OK,)

    def cuStreamIsCapturing(self, handle: SupportsInt) -> Result:
        return OK, cu.CUstreamCaptureStatus(int(self.capturing == int(handle)))

    def cuStreamEndCapture(self, handle: SupportsInt) -> Result:
        self.capturing = None
        return OK, self._make("graph")

    def cuEventCreate(self, flags: int) -> Result:
        return self._in_context("event")

    def cuEventDestroy(self, handle: SupportsInt) -> Result:
        return self._kill("event", handle)

    def cuEventRecord(self, event: SupportsInt, stream: SupportsInt) -> Result:
        return (OK,) if self.stack else (ERROR.CUDA_ERROR_INVALID_CONTEXT,)

    def cuEventElapsedTime(self, start: SupportsInt, end: SupportsInt) -> Result:
        return OK, 1.5

    # memory
    def _allocate(self, size: int) -> Result:
        if not self.stack:
            return ERROR.CUDA_ERROR_INVALID_CONTEXT, None
        memory = (ctypes.c_uint8 * size)()
        pointer = ctypes.addressof(memory)
        self.memory[pointer] = memory
        self.alive[pointer] = ("memory", self.stack[-1])
        return OK, pointer

    def cuMemAlloc(self, size: int) -> Result:
        return self._allocate(size)

    def cuMemHostAlloc(self, size: int, flags: int) -> Result:
        return self._allocate(size)

    def cuMemHostRegister(self, pointer: int, size: int, flags: int) -> Result:
        if not self.stack:
            return (ERROR.CUDA_ERROR_INVALID_CONTEXT,)
        self.alive[int(pointer)] = ("memory", self.stack[-1])
        return (OK,)

    def cuMemHostUnregister(self, pointer: int) -> Result:
        return self._free(pointer)

    def cuMemAllocAsync(self, size: int, stream: SupportsInt) -> Result:
        return self._allocate(size)

    def _free(self, pointer: int) -> Result:
        return self._kill("memory", pointer) if self.stack else (ERROR.CUDA_ERROR_INVALID_CONTEXT,)

    def cuMemFree(self, pointer: int) -> Result:
        return self._free(pointer)

    def cuMemFreeHost(self, pointer: int) -> Result:
        return self._free(pointer)

    def cuMemFreeAsync(self, pointer: int, stream: SupportsInt) -> Result:
        return self._free(pointer)

    def cuMemcpyAsync(self, destination: int, source: int, size: int, stream: SupportsInt) -> Result:
        ctypes.memmove(destination, source, size)
        return (OK,)

    def cuMemsetD8Async(self, pointer: int, byte: int, size: int, stream: SupportsInt) -> Result:
        ctypes.memset(pointer, byte, size)
        return (OK,)

    def cuPointerGetAttributes(self, count: int, attributes: Sequence[Any], pointer: int) -> Result:
        assert count == len(attributes)
        if pointer not in self.memory:
            return OK, [0, cu.CUcontext(0), cu.CUdeviceptr(0), 0, False]
        base = cu.CUdeviceptr(pointer)
        return OK, [2, cu.CUcontext(0), base, len(self.memory[pointer]), False]

    def cuPointerGetAttribute(self, attribute: Any, pointer: int) -> Result:
        assert attribute.name == "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL"
        return OK, 1

    # libraries
    def cuLibraryLoadData(self, code: bytes, *options: Any) -> Result:
        return OK, self._make("library")

    def cuLibraryUnload(self, handle: SupportsInt) -> Result:
        return self._kill("library", handle)

    def cuLibraryGetKernel(self, library: SupportsInt, name: bytes) -> Result:
        return (OK, cu.CUkernel(0xCE1)) if name == b"probe" else (ERROR.CUDA_ERROR_NOT_FOUND, None)

    def cuLibraryGetKernelCount(self, library: SupportsInt) -> Result:
        return OK, 1

    def cuLibraryEnumerateKernels(self, count: int, library: SupportsInt) -> Result:
        return OK, [cu.CUkernel(0xCE1)]

    def cuKernelGetFunction(self, kernel: SupportsInt) -> Result:
        return (OK, cu.CUfunction(int(kernel))) if self.stack else (ERROR.CUDA_ERROR_INVALID_CONTEXT, None)

    def cuKernelGetName(self, kernel: SupportsInt) -> Result:
        return OK, b"probe"

    def cuKernelGetAttribute(self, attribute: Any, kernel: SupportsInt, device: int) -> Result:
        return OK, self.kernel_attributes.get(attribute.name.removeprefix("CU_FUNC_ATTRIBUTE_"), 0)

    def cuKernelSetAttribute(self, attribute: Any, value: int, kernel: SupportsInt, device: int) -> Result:
        self.kernel_attributes[attribute.name.removeprefix("CU_FUNC_ATTRIBUTE_")] = value
        return (OK,)

    # occupancy, launches and graphs
    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function: SupportsInt, threads: int, dynamic: int) -> Result:
        return OK, self.blocks_per_multiprocessor

    def cuOccupancyMaxActiveClusters(self, function: SupportsInt, config: Any) -> Result:
        return OK, self.active_clusters

    def cuLaunchKernelEx(self, config: Any, function: SupportsInt, pointers: int, extra: Any) -> Result:
        values = []
        if self.arguments:
            table = (ctypes.c_void_p * self.arguments).from_address(pointers)
            for address in table:
                assert address is not None, "an argument without a slot"
                values.append(bytes((ctypes.c_uint8 * 8).from_address(address)))
        self.launches.append((config, int(function), values, self.stack[-1] if self.stack else 0))
        return (OK,)

    def cuGraphGetNodes(self, graph: SupportsInt, count: int) -> Result:
        return OK, [], 3

    def cuGraphInstantiate(self, graph: SupportsInt, flags: int) -> Result:
        return OK, self._make("executable")

    def cuGraphDestroy(self, handle: SupportsInt) -> Result:
        return self._kill("graph", handle)

    def cuGraphExecDestroy(self, handle: SupportsInt) -> Result:
        return self._kill("executable", handle)

    def cuGraphLaunch(self, executable: SupportsInt, stream: SupportsInt) -> Result:
        return (OK,)


_Driver = TypeVar("_Driver")


@contextlib.contextmanager
def in_use(driver: _Driver, name: str = "fake") -> Iterator[_Driver]:
    """Select a driver in the block, under a name; yields it."""
    binding.register(name, lambda: driver)
    with binding.use(name):
        yield driver

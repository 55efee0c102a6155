"""Launches: a request is checked against its kernel, its arguments are read, and the machine runs the kernel."""

# ruff: noqa: N802, D102 - the names are the driver's, and so is their documentation

from __future__ import annotations

import ctypes
from typing import Any

from lowlevel_reduce.simulator.devices import SimulatedDevice
from lowlevel_reduce.simulator.driver.captures import stream_of, submit
from lowlevel_reduce.simulator.driver.engine import KernelCode
from lowlevel_reduce.simulator.driver.occupancy import active_blocks, active_clusters, most_cluster_blocks
from lowlevel_reduce.simulator.driver.records import Event, Kernel, KernelWork, LaunchRecord, Node
from lowlevel_reduce.simulator.driver.request import Request, check_clusters, request_of
from lowlevel_reduce.simulator.driver.state import State, number, refuse
from lowlevel_reduce.simulator.driver.streams import mark

__all__ = ["Launches"]

MOST_THREADS = 1 << 20
"""So many threads are in flight at once, if the blocks need not all be: more than fit on any device.

With 2**14, as where other work has the rest of the device, large launches take half as long, since the registers of
more are in no cache of the host: the tests set that. How often threads meet is then not what it is on an idle device.
"""


class Launches:
    """The launch function. A real stream implies its context; a default stream is that of the current context."""

    def __init__(self, state: State) -> None:
        self._state = state

    def cuLaunchKernelEx(self, config: Any, function: Any, parameters: Any, extra: Any) -> None:
        kernel = self._state.get(Kernel, function)
        stream = stream_of(self._state, config.hStream)
        request = request_of(config, self._state.device)
        if number(extra) or (request.captured_only and stream.capture is None):
            refuse("INVALID_VALUE")
        events = [self._state.get(Event, event) for event in request.events]
        if any(event.timing or event.context is not stream.context for event in events):
            refuse("INVALID_HANDLE")
        device = self._state.device_of(stream.context)
        self._resident_blocks(kernel, request, device)
        work = KernelWork(kernel, request, self.arguments(kernel, parameters), device)
        submit(self._state, stream, self.node(work))
        for event in events:
            mark(self._state, event, stream)

    def arguments(self, kernel: Kernel, table: Any) -> bytes:
        """Return a kernel's parameter block, read from the addresses in the ``void**``."""
        return _arguments(kernel.code, number(table))

    def node(
        self, work: KernelWork, behind: frozenset[int] = frozenset(), overlapped: frozenset[int] = frozenset()
    ) -> Node:
        """Return a launch as a node; it is checked when an executable is made or updated, and again when it runs."""

        def check() -> int:
            check_clusters(work.request)
            return self._resident_blocks(work.kernel, work.request, work.device)

        return Node("kernel", lambda traces: self._run(work, check(), traces), behind, overlapped, work, check)

    def _resident_blocks(self, kernel: Kernel, request: Request, device: SimulatedDevice) -> int:
        """Return how many blocks of the grid can be resident at once; refuse a launch that the device cannot run."""
        if request.block_threads > kernel.code.max_threads:
            refuse("INVALID_VALUE")
        if request.block_threads > kernel.attributes["MAX_THREADS_PER_BLOCK"]:
            refuse("LAUNCH_OUT_OF_RESOURCES")
        if request.dynamic_bytes > kernel.attributes["MAX_DYNAMIC_SHARED_SIZE_BYTES"]:
            refuse("INVALID_VALUE")
        resident = device.multiprocessors * active_blocks(kernel, request.block_threads, request.dynamic_bytes, device)
        if not resident:
            refuse("LAUNCH_OUT_OF_RESOURCES")
        if request.cluster is not None:
            if request.cluster_blocks > most_cluster_blocks(kernel, request):
                refuse("INVALID_CLUSTER_SIZE")
            clusters = active_clusters(kernel, request, request.cluster_blocks, device)
            resident = clusters * request.cluster_blocks or refuse("INVALID_CLUSTER_SIZE")
        if request.cooperative and request.grid_blocks > resident:
            refuse("COOPERATIVE_LAUNCH_TOO_LARGE")
        return resident

    def _run(self, work: KernelWork, resident: int, traces: list[Any]) -> Any:
        kernel, request = work.kernel, work.request
        trace = self._state.engine.trace(traces)
        if self._state.records.get(kernel.handle) is not kernel:
            refuse("INVALID_HANDLE")  # it is replayed after its library was unloaded
        at_once = resident if request.cooperative else min(resident, _most_in_flight(request))
        launch = self._state.engine.launch(
            kernel=kernel.code,
            grid=request.grid,
            block=request.block,
            cluster=request.cluster,
            dynamic_shared_bytes=request.dynamic_bytes,
            arguments=work.arguments,
            cooperative=request.cooperative,
            resident_blocks=at_once,
            in_waves=at_once < resident,
            seed=self._state.seed_of_launch(),
            addresses={name: address for name, (address, _) in kernel.library.variables.items()},
            trace=trace,
            instructions=self._state.limit_of_launch(),
        )
        counters = self._state.engine.run(launch, self._state.memory)
        record = LaunchRecord(kernel.code.name, request.grid, request.block, request.cluster, counters)
        self._state.launched(record)
        return trace


def _most_in_flight(request: Request) -> int:
    """Return how many blocks are in flight at once at most: whole clusters, and at least one."""
    together = 1 if request.cluster is None else request.cluster_blocks
    return max(MOST_THREADS // (request.block_threads * together), 1) * together


def _arguments(code: KernelCode, table: int) -> bytes:
    """Return the parameter block: each parameter is copied from its address in the ``void**`` at `table`."""
    parameters = code.parameters
    if not parameters:
        return b""
    if not table:
        refuse("INVALID_VALUE")
    addresses = (ctypes.c_void_p * len(parameters)).from_address(table)
    block = bytearray(max(parameter.offset + parameter.size for parameter in parameters))
    for parameter, address in zip(parameters, addresses, strict=True):
        if not address:
            refuse("INVALID_VALUE")
        block[parameter.offset : parameter.offset + parameter.size] = ctypes.string_at(address, parameter.size)
    return bytes(block)

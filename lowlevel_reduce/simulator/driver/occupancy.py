"""How many blocks and clusters of a kernel can be resident at once, derived from what the kernel declares."""

# ruff: noqa: N802, D102 - the names are the driver's, and so is their documentation

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from lowlevel_reduce.simulator.devices import SimulatedDevice
from lowlevel_reduce.simulator.driver.engine import KernelCode
from lowlevel_reduce.simulator.driver.records import Kernel
from lowlevel_reduce.simulator.driver.request import Request, request_of
from lowlevel_reduce.simulator.driver.state import State, refuse

__all__ = [
    "Occupancies",
    "active_blocks",
    "active_clusters",
    "estimated_registers",
    "most_threads",
]

_WARP = 32
_REGISTERS = 65536  # of a multiprocessor, and the most that a block can have
_REGISTER_UNIT = 256  # registers are allocated to a warp in units of this many
_WARP_UNIT = 4  # there are four schedulers, and each allocates registers to its own warps
_LEAST_REGISTERS, _MOST_REGISTERS = 16, 255
_VIRTUAL_PER_REAL = 16
_MOST_THREADS = 1024
_PORTABLE_CLUSTER, _LARGEST_CLUSTER = 8, 16


class Occupancies:
    """Functions of occupancy."""

    def __init__(self, state: State) -> None:
        self._state = state

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function: Any, threads: int, dynamic_bytes: int) -> int:
        kernel = self._kernel(function)
        if threads <= 0:
            refuse("INVALID_VALUE")
        return active_blocks(kernel, threads, dynamic_bytes, self._state.device)

    def cuOccupancyMaxActiveClusters(self, function: Any, config: Any) -> int:
        kernel = self._kernel(function)
        request = request_of(config, self._state.device)
        if request.cluster is None:
            refuse("INVALID_VALUE")
        if request.cluster_blocks > most_cluster_blocks(kernel, request):
            refuse("INVALID_CLUSTER_SIZE")
        return active_clusters(kernel, request, request.cluster_blocks, self._state.device_of(self._state.current()))

    def cuOccupancyMaxPotentialClusterSize(self, function: Any, config: Any) -> int:
        kernel = self._kernel(function)
        if not self._state.device.clusters:
            refuse("NOT_SUPPORTED")
        request = request_of(config, self._state.device)
        sizes = [
            size
            for size in (1, 2, 4, 8, 16)
            if size <= most_cluster_blocks(kernel, request)
            and active_clusters(kernel, request, size, self._state.device)
        ]
        return max(sizes, default=0)

    def _kernel(self, function: Any) -> Kernel:
        self._state.current()
        return self._state.get(Kernel, function)


def estimated_registers(code: KernelCode) -> int:
    """Return an estimate of a thread's 32-bit registers.

    PTX names a new register for almost every value: where launch bounds do not limit it, this package's kernels have 17
    to 20 32-bit words of named registers for each register that ptxas allocates for sm_90. So the estimate is a
    sixteenth of the words, at least 16, in steps of 8, and no more than the launch bounds allow, which ptxas respects
    too: 168 for a block of nine or ten warps, which takes as many registers as one of twelve, because each scheduler
    has equally many. The true number is known only for a compiled kernel.
    """
    words = sum(_words(kind) * count for kind, count in Counter(code.registers.values()).items())
    warps = _up(_warps(code.max_threads) * max(1, code.min_blocks), _WARP_UNIT)
    bound = min(_MOST_REGISTERS, max(_LEAST_REGISTERS, _REGISTERS // (warps * _WARP) // 8 * 8))
    return min(bound, max(_LEAST_REGISTERS, _up(words // _VIRTUAL_PER_REAL, 8)))


def most_threads(code: KernelCode, device: SimulatedDevice) -> int:
    """Return the threads of the largest block that can be launched, given launch bounds and registers."""
    by_registers = _warps_by_registers(estimated_registers(code)) * _WARP
    return min(code.max_threads, _MOST_THREADS, by_registers, device.threads_per_multiprocessor)


def active_blocks(kernel: Kernel, threads: int, dynamic_bytes: int, device: SimulatedDevice) -> int:
    """Return how many blocks can be resident on a multiprocessor."""
    warps = _warps(threads)
    if threads > kernel.attributes["MAX_THREADS_PER_BLOCK"]:
        return 0
    if dynamic_bytes > kernel.attributes["MAX_DYNAMIC_SHARED_SIZE_BYTES"]:
        return 0
    shared = kernel.code.static_shared_bytes + dynamic_bytes + device.shared_reserved_per_block
    limits = [
        device.blocks_per_multiprocessor,
        device.threads_per_multiprocessor // _WARP // warps,
        _warps_by_registers(kernel.attributes["NUM_REGS"]) // warps,
    ]
    if shared:
        limits.append(device.shared_per_multiprocessor // _up(shared, device.shared_granularity))
    return min(limits)


def most_cluster_blocks(kernel: Kernel, request: Request) -> int:
    """Return the blocks of the largest cluster that may be requested."""
    allowed = kernel.attributes["NON_PORTABLE_CLUSTER_SIZE_ALLOWED"] or request.non_portable
    return _LARGEST_CLUSTER if allowed else _PORTABLE_CLUSTER


def active_clusters(kernel: Kernel, request: Request, cluster_blocks: int, device: SimulatedDevice) -> int:
    """Return how many clusters can be resident at once; each stays inside one graphics processing cluster."""
    blocks = active_blocks(kernel, request.block_threads, request.dynamic_bytes, device)
    return sum(multiprocessors * blocks // cluster_blocks for multiprocessors in device.gpc_multiprocessors)


def _warps_by_registers(registers: int) -> int:
    return _REGISTERS // _up(registers * _WARP, _REGISTER_UNIT) // _WARP_UNIT * _WARP_UNIT


def _warps(threads: int) -> int:
    return -(-threads // _WARP)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _words(kind: str) -> int:
    """Return how many 32-bit registers a type such as "b64" takes; a predicate takes none."""
    bits = re.search(r"\d+", kind)
    return max(1, int(bits[0]) // 32) if bits else 0

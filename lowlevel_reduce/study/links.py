"""The demonstration of the NVLink hint: where blocks run with it, and how fast they access another GPU's memory."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator, Sequence

from lowlevel_reduce.driver import BoundKernel, Buffer, Context, Device, Event, LaunchConfig, binding
from lowlevel_reduce.errors import CudaError
from lowlevel_reduce.study.bench import Bench
from lowlevel_reduce.study.memory import verdict

__all__ = ["nvlink_centric"]

_ROUNDS = 5
_FEW = 16
_BLOCKS = (4, 16, 64)
_BYTES = 128 << 20


def nvlink_centric(bench: Bench) -> str:
    """Compare where blocks run with and without the hint, and how fast they access the memory of another GPU."""
    places = _places(bench)
    if not bench.has_clock:
        return f"{places}; what it is for takes a clock and two GPUs"
    peer = _peer(bench.device)
    if peer is None:
        count = Device.count()
        return f"{places}; what it is for needs two GPUs that reach each other's memory, and this process sees {count}"
    return f"{places}; memory of GPU {peer.ordinal} {_traffic(bench, peer)}"


def _traffic(bench: Bench, peer: Device) -> str:
    link = "NVLink" if _attribute("NATIVE_ATOMIC_SUPPORTED", bench.device, peer) else "a link without atomics"
    try:
        with Context.primary(peer) as there, _access(bench, there), Buffer.allocate(_BYTES, there) as memory:
            memory.fill(0)
            there.synchronize()
            text = "; ".join(_moved(bench, memory, kernel) for kernel in ("study_read", "study_write"))
    except CudaError as error:
        if error.call != "cuCtxEnablePeerAccess":
            raise
        return f"over {link} is refused ({error.name})"
    return f"over {link}, GB/s with the hint / without: {text}"


def _places(bench: Bench) -> str:
    """Return in words how many multiprocessors a few blocks run on with the hint that none runs on without it."""
    used: dict[bool, set[int]] = {True: set(), False: set()}
    for _ in range(_ROUNDS):
        for hint, multiprocessors in used.items():
            seen = bench.where(LaunchConfig(_FEW, 32, nvlink_centric_scheduling=hint))
            multiprocessors.update(seen["multiprocessor"].tolist())
    others = len(used[True] - used[False])
    where = f"{others} multiprocessors that they do not use without it" if others else "the same multiprocessors"
    return f"{_FEW} blocks run with the hint on {where}"


def _peer(device: Device) -> Device | None:
    """Return a device whose memory `device` can access, preferably by NVLink; None if there is none."""
    others = [other for other in Device.all() if other != device and _reaches(device, other)]
    return max(others, key=lambda other: _attribute("NATIVE_ATOMIC_SUPPORTED", device, other), default=None)


def _reaches(device: Device, other: Device) -> bool:
    return bool(binding.call("cuDeviceCanAccessPeer", device.handle, other.handle))


def _attribute(name: str, device: Device, other: Device) -> int:
    attribute = getattr(binding.native().CUdevice_P2PAttribute, f"CU_DEVICE_P2P_ATTRIBUTE_{name}")
    return int(binding.call("cuDeviceGetP2PAttribute", attribute, device.handle, other.handle))


@contextlib.contextmanager
def _access(bench: Bench, there: Context) -> Iterator[None]:
    """Let the bench's context access the memory of another one; access that was already enabled stays enabled."""
    with bench.context.pushed():
        try:
            binding.call("cuCtxEnablePeerAccess", there.handle, 0)
            ours = True
        except CudaError as error:
            if error.name != "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED":
                raise
            ours = False
    try:
        yield
    finally:
        bench.context.synchronize()
        if ours:
            with bench.context.pushed():
                binding.call("cuCtxDisablePeerAccess", there.handle)


def _moved(bench: Bench, memory: Buffer, kernel: str) -> str:
    """Return in words how fast blocks of `kernel` go through all of `memory`, for several numbers of blocks."""
    reads = kernel == "study_read"
    values = memory.pointer, memory.size_bytes // 16, *([bench.memory(4).pointer] if reads else [])
    events = bench.new_event(timing=True), bench.new_event(timing=True)
    cells = []
    for blocks in _BLOCKS:
        launches = {
            hint: bench.bind(kernel, LaunchConfig(blocks, 1024, nvlink_centric_scheduling=hint))
            for hint in (True, False)
        }
        _ms(bench, events, launches[False], values)  # a kernel's first launch loads it
        taken = [[_ms(bench, events, launch, values) for launch in launches.values()] for _ in range(_ROUNDS)]
        hinted, plain = zip(*taken, strict=True)
        with_it, without = (round(memory.size_bytes / statistics.median(samples) / 1e6) for samples in (hinted, plain))
        cells.append(f"{with_it} / {without} by {blocks} blocks{verdict(hinted, plain)}")
    return f"{'read' if reads else 'written'} {', '.join(cells)}"


def _ms(bench: Bench, events: tuple[Event, Event], launch: BoundKernel, values: Sequence[int]) -> float:
    before, after = events
    bench.stream.record(before)
    launch(*values)
    bench.stream.record(after)
    after.synchronize()
    return after.elapsed_ms(before)

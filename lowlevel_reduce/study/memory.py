"""Demonstrations of attributes for memory, in caches and at the end of kernels; the clock shows their effects."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel_reduce.driver import AccessPolicyWindow, Buffer, LaunchConfig, Stream, binding
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.study.bench import STAMP, Bench

__all__ = ["access_window", "domain", "domain_map", "links", "step_us", "verdict"]

_ROUNDS = 5
_WINDOW_BYTES = 8 << 20
_LINK_BYTES = 2048  # distance of two links: never in one cache line, nor in one fetch from memory

_FLOOD_BYTES = 4 << 20
_FLOOD_LINE_BYTES = 128
_FLOOD_NS = 20_000_000
_SETTLED_NS = 5_000_000  # far longer than launching all steps takes, so that only the device determines their times
_STEPS = 16


def access_window(bench: Bench) -> str:
    """Measure loads of memory after so much other memory was read that the level-2 cache would have evicted it.

    The loads depend on each other and the kernel itself times them, because their latency distinguishes cache from
    memory. A whole launch, including what the driver does about a window, takes longer than the difference.
    """
    device = bench.device
    most = device.attribute("MAX_PERSISTING_L2_CACHE_SIZE")
    size = min(_WINDOW_BYTES, most // 2, device.attribute("MAX_ACCESS_POLICY_WINDOW_SIZE")) >> 20 << 20
    if not size:
        raise UnsupportedError(f"the device sets {most} bytes of its level-2 cache aside: too few for this to be seen")
    kept, other = bench.memory(size), bench.memory(4 * device.l2_bytes)
    kept.copy_from(links(size))
    window = AccessPolicyWindow(kept.pointer, size)
    kept_ns: list[float] = []
    lost_ns: list[float] = []
    limit = binding.native().CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
    before = int(binding.call("cuCtxGetLimit", limit))
    binding.call("cuCtxSetLimit", limit, most)
    try:
        for _ in range(_ROUNDS):
            kept_ns.append(_load_ns(bench, kept, other, window))
            lost_ns.append(_load_ns(bench, kept, other, None))
    finally:
        binding.call("cuCtxResetPersistingL2Cache")
        binding.call("cuCtxSetLimit", limit, before)
    return (
        f"{size >> 20} MiB read again after {other.size_bytes >> 20} MiB of others: "
        f"{_ns(kept_ns)} ns a load with the window, {_ns(lost_ns)} ns without{verdict(kept_ns, lost_ns)}"
    )


def links(size_bytes: int) -> npt.NDArray[np.uint32]:
    """Return `size_bytes` of words with links: each link has the index of the next one, all in one random ring."""
    words, step = np.zeros(size_bytes // 4, np.uint32), _LINK_BYTES // 4
    order = step * np.random.default_rng(0).permutation(len(words) // step).astype(np.uint32)
    words[order] = np.roll(order, -1)
    return words


def _load_ns(bench: Bench, kept: Buffer, other: Buffer, window: AccessPolicyWindow | None) -> float:
    """Return the time of a load of `kept`, after `kept` was read with the window and then `other` without one.

    The first read and the loads are done by one block each, usually on the same multiprocessor: a cache of two halves
    may keep a line in the half of the multiprocessor that read it.
    """
    word, out, steps = bench.memory(4), bench.memory(16), kept.size_bytes // _LINK_BYTES
    binding.call("cuCtxResetPersistingL2Cache")
    first = LaunchConfig(1, 1024, access_policy_window=window)
    bench.run("study_read", first, kept.pointer, kept.size_bytes // 16, word.pointer)
    every = LaunchConfig(2 * bench.context.multiprocessor_count, 1024)
    bench.run("study_read", every, other.pointer, other.size_bytes // 16, word.pointer)
    bench.run("study_chase", LaunchConfig(1, 1), kept.pointer, steps, out.pointer)
    return float(bench.read(out, np.uint64)[0]) / steps


def domain(bench: Bench) -> str:
    """Measure short kernels beside one that floods host memory with writes, in the same domain and in another one."""
    return _beside_writes(
        bench,
        "beside one that writes to the host",
        ("with that in a domain of its own", {"memory_sync_domain": "remote"}),
        ("in the same", {"memory_sync_domain": "default"}),
    )


def domain_map(bench: Bench) -> str:
    """Measure the same with "remote" writes, mapped to a domain of their own, and to the domain of all others."""
    return _beside_writes(
        bench,
        f"beside a remote one, of {bench.device.attribute('MEM_SYNC_DOMAIN_COUNT')} domains, that writes to the host",
        ("mapped to (0, 1)", {"memory_sync_domain": "remote", "memory_sync_domain_map": (0, 1)}),
        ("mapped to (0, 0)", {"memory_sync_domain": "remote", "memory_sync_domain_map": (0, 0)}),
    )


def _beside_writes(
    bench: Bench, where: str, apart: tuple[str, dict[str, Any]], same: tuple[str, dict[str, Any]]
) -> str:
    """Return in words how long a step of a stream takes, without another kernel's writes, and beside them in two ways.

    The end of a kernel makes its writes visible to the next one, and for that it waits for other kernels' writes in the
    same domain. A fence within a kernel does not show this: beside such writes, it is equally slow in all domains.
    """
    far, other = bench.host_memory(_FLOOD_BYTES), bench.new_stream()
    # First without writes, also because a kernel's first launch loads it, which may wait for all running work.
    kinds = (("without", None), apart, same)
    samples: dict[str, list[float]] = {name: [] for name, _ in kinds}
    for _ in range(_ROUNDS):
        for name, options in kinds:
            taken = _step(bench, far, other, options)
            if taken is None:
                return "not to be seen: kernels of two streams did not run beside each other"
            samples[name].append(taken)
    text = ", ".join(f"{statistics.median(taken):.1f} µs {name}" for name, taken in samples.items())
    return (
        f"from one short kernel of a stream to the next, {where}: {text}{verdict(samples[apart[0]], samples[same[0]])}"
    )


def _step(bench: Bench, far: Buffer, stream: Stream, options: dict[str, Any] | None) -> float | None:
    """Return the time of a step of `stream`, beside a flood that is launched with `options`; None: without a flood."""
    flood, steps = bench.memory(STAMP.itemsize), bench.memory((1 + _STEPS) * STAMP.itemsize)
    if options is not None:
        # On half of the multiprocessors, so that a short kernel has one to itself, and shares only what is behind it.
        config = LaunchConfig(max(bench.context.multiprocessor_count // 2, 1), 256, **options)
        lines = _FLOOD_BYTES // _FLOOD_LINE_BYTES
        bench.run("study_flood", config, far.pointer, lines, _FLOOD_NS, flood.pointer)
    one = LaunchConfig(1, 32)
    for i in range(1 + _STEPS):
        out, duration = steps.pointer + i * STAMP.itemsize, 0 if i else _SETTLED_NS
        bench.run("study_spin", one, out, duration, 0, 0, stream=stream)
    begins = bench.read(steps, STAMP)["begin"][1:].tolist()
    return step_us(begins, math.inf if options is None else int(bench.read(flood, STAMP)["end"][0]))


def step_us(begins: Sequence[int], end: float) -> float | None:
    """Return the mean time from the beginning of a kernel to that of the next, for those that began before `end`.

    Parameters
    ----------
    begins : sequence of int
        When the kernels of a stream began, in nanoseconds.
    end : float
        When the flood beside them ended; infinity without a flood.

    Returns
    -------
    float or None
        The time in microseconds; None if fewer than two kernels began before `end`.
    """
    beside = [begin for begin in begins if begin < end]
    return (beside[-1] - beside[0]) / (len(beside) - 1) / 1e3 if len(beside) > 1 else None


def verdict(less: Sequence[float], more: Sequence[float]) -> str:
    """Return a remark for two medians: empty if every sample of `less` is below every sample of `more`."""
    if max(less) < min(more):
        return ""
    if min(less) > max(more):
        return ": the other way round than expected"
    return ": no difference seen"


def _ns(samples: Sequence[float]) -> int:
    return round(statistics.median(samples))

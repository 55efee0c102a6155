"""Demonstrations of attributes that decide where blocks run, or whether they run; only one needs a clock."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lowlevel_reduce.driver import BoundKernel, Graph, LaunchConfig, occupancy
from lowlevel_reduce.errors import CudaError, UnsupportedError
from lowlevel_reduce.study.bench import STAMP, WHERE, Bench

__all__ = [
    "NO_LAYOUT",
    "cluster",
    "cooperative",
    "device_updatable",
    "portable_cluster",
    "preferred_cluster",
    "scheduling",
    "shared_memory_mode",
]

_CLUSTER = 4
_PORTABLE = 8  # the most blocks of a cluster that every device with clusters supports
_LARGE_CLUSTER = 16
_POLICIES = ("default", "spread", "load_balancing")
_BUSY_NS = 2_000_000
_PREFERRING = 10  # the major compute capability that introduced clusters of a preferred size
_LARGE_SHARED_BYTES = 64 * 1024

NO_LAYOUT = (
    "the launches are taken; this driver simulates the device and lays every block on a multiprocessor of its own"
)


def cooperative(bench: Bench) -> str:
    """Show that a barrier of the whole grid completes, and that a grid that does not fit is refused."""
    kernel, blocks = bench.kernel("study_meet"), bench.context.multiprocessor_count
    seen = bench.meet(LaunchConfig(blocks, 32, cooperative=True))
    fits = occupancy.max_cooperative_blocks(kernel, 32, context=bench.context)
    try:
        bench.run("study_meet", LaunchConfig(fits + 1, 32, cooperative=True), 0, 0)
        refused = "ran all the same"
    except ValueError:
        refused = "are refused"
    return f"{int(seen['arrived'].min())} blocks met at a barrier of the grid; {fits} fit at once, {fits + 1} {refused}"


def cluster(bench: Bench) -> str:
    """Show the ranks that blocks see, and clusters larger than the portable size, which the kernel must allow."""
    seen = bench.where(LaunchConfig(4 * _CLUSTER, 32, cluster=_CLUSTER))
    ranks = " ".join(map(str, sorted(set(seen["rank"].tolist()))))
    sizes = " ".join(map(str, sorted(set(seen["size"].tolist()))))
    return f"ranks {ranks} in clusters of {sizes}; {_non_portable(bench)}"


def _non_portable(bench: Bench) -> str:
    kernel, config = bench.kernel("study_where"), LaunchConfig(_LARGE_CLUSTER, 32, cluster=_LARGE_CLUSTER)
    try:
        bench.where(config)
        refused = "ran unasked"
    except ValueError:
        refused = "are refused unless the kernel allows them"
    kernel.allow_non_portable_cluster(bench.device)
    try:
        after = f"then ranks reach {int(bench.where(config)['rank'].max())}"
    except UnsupportedError:
        after = "and then this device holds none"
    finally:
        kernel.allow_non_portable_cluster(bench.device, allow=False)
    return f"clusters of {_LARGE_CLUSTER} {refused}, {after}"


def scheduling(bench: Bench) -> str:
    """Show by policy where clusters run on an idle device, and where and when larger ones run beside busy blocks."""
    blocks = max(2 * bench.context.multiprocessor_count // _PORTABLE, 1) * _PORTABLE
    alone = {policy: _layout(bench, blocks, policy) for policy in _POLICIES}
    if not bench.has_clock:
        return NO_LAYOUT
    busy = max(bench.context.multiprocessor_count // 2, 1)
    beside = {policy: _on_busy(bench, busy, blocks, policy) for policy in _POLICIES}
    equal = len(set(alone.values())) == len(set(beside.values())) == 1
    return (
        f"{blocks} blocks in clusters of {_CLUSTER}, multiprocessors used / blocks on the fullest / multiprocessors "
        f"under a cluster: {_by_policy(alone)}; in clusters of {_PORTABLE} beside {busy} busy blocks of another "
        f"kernel, blocks on multiprocessors of those / blocks that began only after one of those had ended: "
        f"{_by_policy(beside)}{': no difference seen' if equal else ''}"
    )


def _by_policy(seen: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{policy} {'/'.join(map(str, counts))}" for policy, counts in seen.items())


def _layout(bench: Bench, blocks: int, policy: str) -> tuple[int, int, int]:
    """Return the number of multiprocessors used, the most blocks on one, and the fewest multiprocessors of a cluster.

    All blocks are resident at once, because they wait for each other at a barrier.
    """
    config = LaunchConfig(blocks, 32, cluster=_CLUSTER, cluster_scheduling=policy, cooperative=True)
    where = bench.meet(config)["multiprocessor"]
    used, counts = np.unique(where, return_counts=True)
    return len(used), int(counts.max()), min(len(set(one)) for one in where.reshape(-1, _CLUSTER).tolist())


def _on_busy(bench: Bench, busy: int, blocks: int, policy: str) -> tuple[int, int]:
    """Return how many blocks of clusters run on multiprocessors of another kernel's blocks, and how many wait for one.

    Each block of the other kernel has 1024 threads, so there is room for small blocks beside it.
    """
    there, here, other = bench.memory(busy * STAMP.itemsize), bench.memory(blocks * STAMP.itemsize), bench.new_stream()
    config = LaunchConfig(blocks, 32, cluster=_PORTABLE, cluster_scheduling=policy)
    bench.run("study_spin", LaunchConfig(busy, 1024), there.pointer, _BUSY_NS, 0, 0)
    bench.run("study_spin", config, here.pointer, _BUSY_NS // 20, 0, 0, stream=other)
    first, second = bench.read(there, STAMP), bench.read(here, STAMP)
    shared = np.isin(second["multiprocessor"], first["multiprocessor"])
    return int(shared.sum()), int((second["begin"] >= first["end"].min()).sum())


def preferred_cluster(bench: Bench) -> str:
    """Count the blocks by the size of the cluster that they run in."""
    blocks = max(bench.context.multiprocessor_count // _CLUSTER, 1) * _CLUSTER
    config = LaunchConfig(blocks, 32, cluster=_CLUSTER // 2, preferred_cluster=_CLUSTER)
    sizes, counts = np.unique(bench.where(config)["size"], return_counts=True)
    text = ", ".join(f"{count} blocks in clusters of {size}" for size, count in zip(sizes, counts, strict=True))
    return f"asked for {_CLUSTER // 2}, preferred {_CLUSTER}: {text}{_unmet(bench, sizes.tolist())}"


def _unmet(bench: Bench, sizes: list[int]) -> str:
    if _CLUSTER in sizes:
        return ""
    major, minor = bench.device.compute_capability
    lacking = "" if major >= _PREFERRING else f", which is below {_PREFERRING}.0, from which on devices form them"
    return f"; the driver takes the attribute, and no preferred one came on compute capability {major}.{minor}{lacking}"


def device_updatable(bench: Bench) -> str:
    """Show that a launch into a plain stream is refused, and that device code can give a node another address."""
    bound = bench.bind("study_where", LaunchConfig(1, 32, device_updatable=True))
    try:
        bound(bench.memory(WHERE.itemsize).pointer)
        refused = "ran"
    except CudaError as error:
        refused = f"is refused ({error.name})"
    updated = _updated if bench.has_clock else _device_node  # a simulated device has no code that updates nodes
    return f"a launch into a plain stream {refused}; {updated(bench, bound)}"


def _device_node(bench: Bench, bound: BoundKernel) -> str:
    out = bench.memory(WHERE.itemsize)
    with Graph.capture(bench.stream) as graph:
        bound(out.pointer)
    with graph:
        (node,) = graph.kernel_nodes
        return f"a captured one has {'a' if node.device_handle else 'no'} handle for device code to update it by"


def _updated(bench: Bench, bound: BoundKernel) -> str:
    """Let a graph's first kernel give its second one another address to write to."""
    given, other = bench.memory(WHERE.itemsize), bench.memory(WHERE.itemsize)
    handle, code = bench.memory(8), bench.memory(4)
    update = bench.bind("study_update", LaunchConfig(1, 1))
    with Graph.create(bench.context) as graph:
        first = graph.add_kernel(update, handle.pointer, other.pointer, code.pointer)
        node = graph.add_kernel(bound, given.pointer, after=[first])
        # The handle is known only once the node exists, so the kernel before it, which needs it, reads it from memory.
        handle.copy_from(np.array([node.device_handle], np.uint64))
        with graph.instantiate() as executable:
            executable.upload(bench.stream)
            executable.launch(bench.stream)
            refusal = int(bench.read(code, np.int32)[0])
    if refusal:
        return f"device code is refused the update of a node (error {refusal})"
    there, here = (bool(bench.read(memory, WHERE)["size"][0]) for memory in (other, given))
    effect = "wrote there and not to its own" if there and not here else "WROTE TO ITS OWN ALL THE SAME"
    return f"device code gave the next node of its graph another address, and it {effect}"


def portable_cluster(bench: Bench) -> str:
    """Show that the launch, not the kernel, decides whether a cluster may be larger than the portable size."""
    outcomes = []
    for mode in ("require_portable", "allow_non_portable"):
        config = LaunchConfig(_LARGE_CLUSTER, 32, cluster=_LARGE_CLUSTER, portable_cluster_size_mode=mode)
        outcomes.append(f"{mode} {_outcome(bench, config)}")
    _must_run(outcomes)
    return f"clusters of {_LARGE_CLUSTER}: {', '.join(outcomes)}"


def shared_memory_mode(bench: Bench) -> str:
    """Show that the launch decides whether a block may have more shared memory than every device offers."""
    kernel = bench.kernel("study_where")
    before = kernel.max_dynamic_shared_bytes(bench.device)
    kernel.set_max_dynamic_shared_bytes(_LARGE_SHARED_BYTES, bench.device)
    try:
        outcomes = []
        for mode in ("require_portable", "allow_non_portable"):
            config = LaunchConfig(1, 32, dynamic_shared_bytes=_LARGE_SHARED_BYTES, shared_memory_mode=mode)
            outcomes.append(f"{mode} {_outcome(bench, config)}")
    finally:
        kernel.set_max_dynamic_shared_bytes(before, bench.device)
    _must_run(outcomes)
    return f"{_LARGE_SHARED_BYTES >> 10} KiB a block: {', '.join(outcomes)}"


def _outcome(bench: Bench, config: LaunchConfig) -> str:
    try:
        bench.where(config)
    except CudaError as error:
        return f"is refused ({error.name})"
    except ValueError:
        return "is refused"
    return "runs"


def _must_run(outcomes: list[str]) -> None:
    if not any(outcome.endswith("runs") for outcome in outcomes):
        raise UnsupportedError(f"driver or device take no form of it: {', '.join(outcomes)}")

"""How a whole array's reduction is mapped to a device: a pure function from the problem and the device to a strategy.

In the comments, times are in us (microseconds) unless they name another unit.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from lowlevel_reduce.arguments import shown
from lowlevel_reduce.errors import UnsupportedError

__all__ = ["STRATEGIES", "DeviceFacts", "Strategy", "check_cluster", "choose", "folding_blocks", "largest_cluster",
           "power_of_two", "slot_bytes", "unasked", "why", "workspace_bytes"]  # fmt: skip

STRATEGIES = ("block", "cluster", "tiles", "two_pass", "cooperative")

WARP = 32
HEADER_BYTES = 256
"""Size of the grid barrier at the start of a workspace: `GridHeader` in cuda_src/tree/grid.cuh."""

SLOT_BYTES, SLOT_PAYLOAD_BYTES = 16, 12
"""Size of a unit of `Slot` in cuda_src/tree/grid.cuh, and how many of its bytes hold the partial."""

MIN_TILE_LEAVES = 8
"""Leaves of the smallest tile that has a partial. Thanks to this minimum, one workspace size suits every strategy."""

MAX_GRID = 2**31 - 1
REGISTERS_PER_MULTIPROCESSOR = 65536
PORTABLE_CLUSTER = 8
MAX_CLUSTER = 16


class DeviceFacts(NamedTuple):
    """The properties of a device on which the choice of a strategy depends.

    Attributes
    ----------
    compute_capability : tuple of int
        Major and minor.
    multiprocessors : int
        How many the context may use.
    clusters, cooperative : bool
        Whether the device launches thread-block clusters and cooperative grids.
    """

    compute_capability: tuple[int, int]
    multiprocessors: int
    clusters: bool
    cooperative: bool

    @property
    def programmatic(self) -> bool:
        """Whether a launch may start before its predecessor in the stream has ended."""
        return self.compute_capability >= (9, 0)

    @property
    def more_registers(self) -> bool:
        """Whether the compiler needs more registers for a thread than for Hopper and before; not measured."""
        return self.compute_capability >= (10, 0)


class Strategy(NamedTuple):
    """One way to launch a reduction.

    Attributes
    ----------
    name : str
        One of `STRATEGIES`.
    warps : int
        Warps in a block; a tile has as many leaves.
    cluster : int
        Blocks in a cluster.
    blocks : int or None
        Blocks in the grid; None for `cooperative`, whose grid follows from an occupancy query.
    tiles : int
        Tiles of the whole array.
    tiles_per_block : int
        Tiles that one block folds, a power of two; 1 except for `block` and `cluster`.
    resident_blocks : int
        How many blocks must fit on a multiprocessor at once: the second number of ``__launch_bounds__``.
    programmatic : bool
        Whether the launch may start before its predecessor in the stream has ended.
    """

    name: str
    warps: int
    cluster: int
    blocks: int | None
    tiles: int
    tiles_per_block: int
    resident_blocks: int = 1
    programmatic: bool = False

    @property
    def block_threads(self) -> int:
        """Threads in a block."""
        return self.warps * WARP

    @property
    def like(self) -> tuple[object, ...]:
        """What the kernels for an operator depend on, with a launch's blocks and clusters but not its grid."""
        return self.name, self.warps, self.cluster, self.tiles_per_block > 1, self.few_partials, self.resident_blocks

    @property
    def argument_kind(self) -> Literal["whole"]:
        """What the kernels' argument is."""
        return "whole"

    @property
    def counts(self) -> tuple[int, int]:
        """The kernels' fields `count`; the second is for a second pass."""
        partials = self.partials
        return partials if self.name == "tiles" else self.tiles_per_block, partials

    @property
    def few_partials(self) -> bool:
        """Whether a block of a small tile's warps folds the partials of tiles with a thread for each, in less code."""
        small = self.name == "tiles" and self.cluster == 1 and self.warps == _FEW_TILES_WARPS
        return small and self.tiles <= _FEW_TILES_WARPS * WARP

    @property
    def partials(self) -> int:
        """Partials in the workspace; 0 if they are exchanged through shared memory."""
        return 0 if self.name in {"block", "cluster"} else -(-self.tiles // self.cluster)


def workspace_bytes(leaves: int, accumulator_bytes: int) -> int:
    """Return a workspace's size in bytes, whatever the strategy: 256 + s * ceil(leaves / 8).

    A slot of s bytes holds a partial: 16, or 32 for an accumulator of more than 12 bytes.
    """
    return HEADER_BYTES + slot_bytes(accumulator_bytes) * -(-max(leaves, 1) // MIN_TILE_LEAVES)


def slot_bytes(accumulator_bytes: int) -> int:
    """Return the bytes that a partial takes in a workspace: units of 16, of which 12 each are for the accumulator."""
    return SLOT_BYTES * -(-accumulator_bytes // SLOT_PAYLOAD_BYTES)


def folding_blocks(partials: int, warps: int) -> int:
    """Return how many blocks of `warps` warps fold partials as they arrive: `grid_fold_by` in cuda_src/tree/grid.cuh.

    These blocks start when all tiles have started. One block can fold two runs of partials (`grid_run` there) before
    the last tile is done; if there are more than two runs, each has a block of its own.
    """
    run = warps * WARP * 4
    if partials == 1:
        return 0
    return 1 if partials <= 2 * run else -(-partials // run)


def choose(
    leaves: int,
    facts: DeviceFacts,
    *,
    strategy: str | None = None,
    cluster: int | None = None,
    block_threads: int | None = None,
    wide_accumulator: bool = False,
    small_elements: bool = False,
) -> Strategy:
    """Choose how to reduce `leaves` leaves of 4 KiB on a device.

    Parameters
    ----------
    leaves : int
        Leaves of the tree; 0 for no elements.
    facts : DeviceFacts
        The device, as the context shows it.
    strategy, cluster, block_threads : optional
        Forced choices: the strategy's name, the blocks in a cluster (1, 2, 4, 8 or 16), the threads in a block.
    wide_accumulator : bool
        Whether the operator needs many registers.
    small_elements : bool
        Whether elements have one or two bytes, which changes the registers of an operator with a wide accumulator.

    Raises
    ------
    ValueError
        If there is no strategy of that name, or it cannot be combined with that cluster or block.
    UnsupportedError
        If the device lacks what the strategy needs.
    """
    if strategy is None and cluster is None and block_threads is None:
        bounds, known = unasked(facts, wide_accumulator, small_elements)
        return _mapped(leaves, *known[bisect_left(bounds, leaves)])
    row = _fastest(leaves, facts)
    name = strategy or row.name
    if name not in STRATEGIES:
        raise ValueError(f"there is no strategy {shown(name)} for whole arrays; there is {', '.join(STRATEGIES)}")
    warps = _warps(block_threads, name, facts) or _default_warps(name, leaves, row, facts, wide_accumulator)
    blocks_per_cluster = cluster if cluster is not None else _default_cluster(name, leaves, warps, row)
    check_cluster(name, blocks_per_cluster, facts, ("cluster", "tiles"))
    if name == "cooperative" and not facts.cooperative:
        raise UnsupportedError("strategy 'cooperative' needs a device that can launch cooperative grids")
    resident_blocks = _resident_blocks(name, warps, facts, wide_accumulator, small_elements)
    programmatic = facts.programmatic and name != "cooperative"
    return _mapped(leaves, name, warps, blocks_per_cluster, resident_blocks, programmatic)


@lru_cache(maxsize=64)
def unasked(facts: DeviceFacts, wide_accumulator: bool, small_elements: bool) -> tuple[list[float], list[Any]]:
    """Return of the rows of `_table` for an operator up to how many leaves each is, and what `_mapped` takes then.

    That begins with a name and the leaves of a tile. `choose` is the same for all arrays of a row with as many tiles.
    """
    rows = [row._replace(warps=min(row.warps, _WIDE_WARPS)) if wide_accumulator else row for row in _table(facts)]
    of = facts, wide_accumulator, small_elements
    known = [(*row[1:], _resident_blocks(row.name, row.warps, *of), facts.programmatic) for row in rows]
    return [row.leaves for row in rows], known


def _mapped(leaves: int, name: str, warps: int, cluster: int, resident_blocks: int, programmatic: bool) -> Strategy:
    tiles = -(-leaves // warps) or 1
    if name in {"block", "cluster"}:
        blocks: int | None = cluster
        tiles_per_block = power_of_two(-(-tiles // cluster))
    else:
        clusters, tiles_per_block = -(-tiles // cluster), 1
        # Additional clusters, which fold the partials of the others.
        folding = folding_blocks(clusters, warps) if name == "tiles" else 0
        blocks = (clusters + folding) * cluster if name != "cooperative" else None
    if tiles > MAX_GRID:
        raise ValueError(f"{leaves} leaves in tiles of {warps} need {tiles} blocks; a grid has at most {MAX_GRID}")
    return Strategy(name, warps, cluster, blocks, tiles, tiles_per_block, resident_blocks, programmatic)


_LARGE_DEVICE = 64


def largest_cluster(facts: DeviceFacts) -> int:
    """Return the most blocks of a cluster that is chosen unasked: 8, 4 in small contexts, 1 without clusters.

    A cluster has to fit into one of the device's groups of multiprocessors, and part of a device, of fewer than 64
    multiprocessors, may have no group that is complete; not measured. Clusters of 16 fit into some of an H200's groups
    only, and must be allowed for each kernel.
    """
    if not facts.clusters:
        return 1
    return PORTABLE_CLUSTER if facts.multiprocessors >= _LARGE_DEVICE else PORTABLE_CLUSTER // 2


class _Row(NamedTuple):
    """The fastest mapping found for up to `leaves` leaves."""

    leaves: float
    name: str
    warps: int
    cluster: int


_FEW_TILES_WARPS = 8
"""Warps of a tile as long as there are at most three tiles for every two multiprocessors; one more multiprocessor is
left to the fold."""

# Times of float32 sums on one H200, back to back in a graph. Times in the same line are from one run of
# benchmarks/results/2026-11-21-h200-launches.jsonl (the last row's second time: 2026-11-21-h200-folding.jsonl).
# benchmarks/NOTES.md says what was tried and rejected.
_BLOCKS = (
    _Row(1, "block", 1, 1),  # 256 elements: 1.03; with two warps 1.07
    _Row(2, "block", 2, 1),
    _Row(4, "block", 4, 1),  # 4,096: 1.07; with eight warps 1.08, with two 2.01
    _Row(8, "block", 8, 1),  # 8,192: 1.19; in a cluster 1.42
)
_CLUSTER = _Row(16, "cluster", 4, 4)  # 16,384: 1.50; in a block of 16 warps 1.53
# One run of 2026-11-25-h200-sweeps-2.jsonl for each line.
_LARGER_CLUSTERS = (
    _Row(32, "cluster", 4, 8),  # 32,768: 1.25; in tiles 1.51, in 16 blocks of 2 warps 1.23, in 4 of 8 warps 1.31
    _Row(64, "cluster", 8, 8),  # 65,536: 1.40; in tiles 1.58, in 16 blocks of 4 warps 1.32, in 4 of 16 warps 1.91
)
_TILES_WARPS = 16  # 1e8: 86.8, with 8 warps 93.0; 2^28: 234.4, with 8 warps 234.7, with 32 236.7

# Everything else was not measured. Devices without clusters use the same rows. Tiles stop at 16 warps because a block
# of 1,024 threads with 64 registers each leaves no room for a second block on a Turing multiprocessor, nor on most
# consumer ones. From compute capability 10.0 on a thread is given more registers, so tiles have 8 warps.
_NEWER_TILES_WARPS = 8
# Devices of compute capability 7.5, 8.6, 8.9 and 12.x add or convert two float64 per clock and multiprocessor, where an
# H200 adds 64: a leaf of float32, 1,024 elements, takes one of their multiprocessors about 1,000 clocks, 0.4 us. Eight
# leaves take eight times that in one block, but only twice that as two leaves on each of four multiprocessors, and a
# cluster costs 0.2 us on an H200. For an array of two leaves, a cluster would gain no more than it costs. Other
# accumulators gain nothing, and lose the 0.2 us.
_SLOW_FLOAT64 = (*_BLOCKS[:2], _Row(4, "cluster", 1, 4), _Row(8, "cluster", 2, 4))
# Without clusters, nothing smaller than a tile of 8 leaves can be spread over multiprocessors: it is the smallest tile
# that a workspace has room for. In larger arrays every multiprocessor has the same amount to add, whatever the size of
# the tile. So 7.5, 8.6 and 8.9 use the rows of all devices without clusters.
_WIDE_WARPS = 8  # wide accumulators take 128 or more registers per thread: no room for more threads in a block


def _fastest(leaves: int, facts: DeviceFacts) -> _Row:
    for row in _table(facts):
        if leaves <= row.leaves:
            return row
    raise AssertionError("the last row of the table has no limit")


@lru_cache(maxsize=64)
def _table(facts: DeviceFacts) -> tuple[_Row, ...]:
    """Return the rows for a device, the shortest arrays first; the last one has no limit."""
    few = _SLOW_FLOAT64 if facts.clusters and facts.compute_capability[0] == 12 else _BLOCKS
    # 2^18 elements on an H200: 1.82; in tiles of 16 warps 2.30. In 2026-11-23-h200-variants-5.jsonl, for tiles of 8 and
    # of 16 warps: 1.5 million take 2.66 and 2.98, but 2^21 take 4.67 and 4.25.
    most = min(_FEW_TILES_WARPS * (facts.multiprocessors - 1) * 3 // 2, _FEW_TILES_WARPS**2 * WARP)  # `few_partials`
    few_tiles = _Row(most, "tiles", _FEW_TILES_WARPS, 1)
    rest = _Row(float("inf"), "tiles", _NEWER_TILES_WARPS if facts.more_registers else _TILES_WARPS, 1)
    clusters = (row for row in (_CLUSTER, *_LARGER_CLUSTERS) if row.cluster <= largest_cluster(facts))
    return (*few, *clusters, few_tiles, rest)


def why(leaves: int, facts: DeviceFacts) -> str:
    """Return in words why `choose` takes what it takes, unasked, for so many leaves on a device."""
    row = _fastest(leaves, facts)
    which = "longer arrays" if row.leaves == float("inf") else f"arrays of at most {int(row.leaves)} x 4 KiB"
    return f"the table of strategy/whole.py, measured on an H200, has it for {which}"


def _default_warps(name: str, leaves: int, row: _Row, facts: DeviceFacts, wide_accumulator: bool) -> int:
    if name == row.name:
        warps = row.warps
    elif name == "block":
        warps = min(16, power_of_two(max(leaves, 1)))
    else:
        warps = 8 if leaves <= 8192 or name == "cooperative" or facts.more_registers else 16
    return min(warps, _WIDE_WARPS) if wide_accumulator else warps


def _default_cluster(name: str, leaves: int, warps: int, row: _Row) -> int:
    if name == row.name:
        return row.cluster
    return min(PORTABLE_CLUSTER, power_of_two(-(-max(leaves, 1) // warps))) if name == "cluster" else 1


def check_cluster(name: str, cluster: int, facts: DeviceFacts, takers: tuple[str, ...]) -> None:
    """Refuse a cluster size that no device, this strategy or this device does not support.

    `takers` are the strategies that accept clusters of more than one block.

    Raises
    ------
    ValueError
        If no device has clusters of that size, or the strategy does not use clusters.
    UnsupportedError
        If the device lacks clusters.
    """
    if cluster not in {1, 2, 4, 8, MAX_CLUSTER}:
        raise ValueError(f"a cluster has 1, 2, 4, 8 or {MAX_CLUSTER} blocks, not {shown(cluster)}")
    if cluster > 1 and name not in takers:
        words = " or ".join(map(repr, takers))
        raise ValueError(f"strategy {name!r} does not use clusters; cluster={cluster} goes with {words}")
    if (cluster > 1 or name == "cluster") and not facts.clusters:
        major, minor = facts.compute_capability
        raise UnsupportedError(
            f"thread-block clusters need compute capability 9.0 or newer; this device has {major}.{minor}"
        )


def _warps(block_threads: int | None, name: str, facts: DeviceFacts) -> int | None:
    if block_threads is None:
        return None
    single = name in {"block", "cluster"}
    least, most = (1 if single else MIN_TILE_LEAVES), (16 if single else 32)
    allowed = [warps * WARP for warps in (1, 2, 4, 8, 16, 32) if least <= warps <= most]
    registers = _registers(name, facts)
    fitting = [threads for threads in allowed if threads * registers <= REGISTERS_PER_MULTIPROCESSOR]
    if block_threads not in fitting:
        raise ValueError(f"strategy {name!r} takes blocks of {fitting} threads here, not {shown(block_threads)}")
    return block_threads // WARP


def _registers(name: str, facts: DeviceFacts) -> int:
    """Return how many registers a thread is given: enough for the compiler to spill none, as tests/compile verifies."""
    if name in {"block", "cluster", "cooperative"}:
        return 96  # a loop over tiles keeps more values alive
    return 96 if facts.more_registers else 64


def _resident_blocks(name: str, warps: int, facts: DeviceFacts, wide_accumulator: bool, small_elements: bool) -> int:
    """Return how many blocks must fit on a multiprocessor: fewer where a thread needs more registers."""
    if name in {"block", "cluster"}:
        return 1
    if wide_accumulator:
        # 128 registers per thread. With small elements there is more to compute between two loads, and more warps hide
        # that: 80 registers, if the compiler does not spill with so few.
        return (3 if small_elements else 2) if name in {"tiles", "two_pass"} else 1
    return max(1, REGISTERS_PER_MULTIPROCESSOR // (_registers(name, facts) * warps * WARP))


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least `n`."""
    return 1 << max(n - 1, 0).bit_length()

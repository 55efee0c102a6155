"""The position of each thread in flight: the geometry of a launch, and the special registers that report it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lowlevel_reduce.simulator.machine.memory.storage import Array

__all__ = ["Geometry"]

WARP = 32
Extent = tuple[int, int, int]


class Geometry:
    """Grid, clusters, blocks, and the slots of the resident blocks.

    A slot has room for one block, whose threads are padded to whole warps. The slots of a cluster are adjacent, and
    slots are assigned cluster by cluster.

    Attributes
    ----------
    slots, stride, threads : int
        Blocks in flight, threads of a slot and of all slots.
    cluster_blocks : int
        Blocks in a cluster; 1 without clusters.
    units, resident_units : int
        Clusters in the grid, and of them those that are in flight at once.
    block_of_slot : numpy.ndarray
        Linear index in the grid of the block in each slot.
    """

    def __init__(self, grid: Extent, block: Extent, cluster: Extent | None, resident_blocks: int) -> None:
        self.grid, self.block, self.cluster = grid, block, cluster or (1, 1, 1)
        self._explicit = cluster is not None
        for size, blocks in zip(self.cluster, grid, strict=True):
            if size < 1 or blocks < 1 or blocks % size:
                raise ValueError(f"clusters of {self.cluster} blocks do not divide a grid of {grid}")
        self.block_threads = _product(block)
        self.cluster_blocks = _product(self.cluster)
        self.units = _product(grid) // self.cluster_blocks
        self.resident_units = resident_units = min(self.units, resident_blocks // self.cluster_blocks)
        if resident_units < 1 or self.block_threads < 1:
            raise ValueError(f"{resident_blocks} resident blocks hold no cluster of {self.cluster_blocks}")
        self.slots = resident_units * self.cluster_blocks
        self.stride = -(-self.block_threads // WARP) * WARP
        self.threads = self.slots * self.stride
        self.unit_of_slot: Array = np.zeros(self.slots, np.int64)
        self.rank_of_slot: Array = np.arange(self.slots) % self.cluster_blocks
        within = np.arange(self.threads) % self.stride
        self.exists: Array = within < self.block_threads
        self._within = within
        self._slot = np.arange(self.threads) // self.stride

    def block_index(self, slot: int) -> Extent:
        """Return the index in the grid of the block in a slot."""
        return self.index_of_block(int(self.unit_of_slot[slot]) * self.cluster_blocks + int(self.rank_of_slot[slot]))

    def index_of_block(self, number: int) -> Extent:
        """Return the index in the grid of the block with that number; a cluster's blocks have consecutive numbers."""
        unit, rank = (np.array([part]) for part in divmod(number, self.cluster_blocks))
        x, y, z = (int(self._block_coordinate("ctaid", axis, unit, rank)[0]) for axis in range(3))
        return x, y, z

    def thread_index(self, thread: int) -> Extent:
        """Return a thread's index in its block."""
        x, y, z = _coordinates(np.array([thread % self.stride]), self.block)
        return int(x[0]), int(y[0]), int(z[0])

    def special(self, name: str) -> Callable[[], Array] | None:
        """Return a function that returns a special register's values in all threads; None for an unknown register.

        Call that function again when blocks have been put into slots.
        """
        head, _, tail = name.removeprefix("%").partition(".")
        axis = "xyz".find(tail) if tail else -1
        if axis >= 0:
            return self._vector_register(head, axis)
        scalars: dict[str, Callable[[], Array]] = {
            "laneid": lambda: self._within % WARP,
            "warpid": lambda: self._within // WARP,
            "nwarpid": lambda: self._constant(self.stride // WARP),
            "smid": lambda: self._slot,
            "nsmid": lambda: self._constant(self.slots),
            "gridid": lambda: self._constant(1),
            "cluster_ctarank": lambda: self.rank_of_slot[self._slot],
            "cluster_nctarank": lambda: self._constant(self.cluster_blocks),
            "is_explicit_cluster": lambda: self._constant(int(self._explicit)),
            "lanemask_eq": lambda: np.left_shift(1, self._within % WARP),
            "lanemask_lt": lambda: np.left_shift(1, self._within % WARP) - 1,
            "lanemask_le": lambda: np.left_shift(2, self._within % WARP) - 1,
            "lanemask_gt": lambda: 0xFFFF_FFFF - (np.left_shift(2, self._within % WARP) - 1),
            "lanemask_ge": lambda: 0xFFFF_FFFF - (np.left_shift(1, self._within % WARP) - 1),
        }
        return scalars.get(head) if not tail else None

    def _vector_register(self, head: str, axis: int) -> Callable[[], Array] | None:
        constants = {
            "ntid": self.block[axis],
            "nctaid": self.grid[axis],
            "cluster_nctaid": self.cluster[axis],
            "nclusterid": self.grid[axis] // self.cluster[axis],
        }
        if head == "tid":
            return lambda: _coordinates(self._within, self.block)[axis]
        if head in constants:
            return lambda: self._constant(constants[head])
        if head in {"ctaid", "clusterid", "cluster_ctaid"}:
            return lambda: self._per_slot(head, axis)[self._slot]
        return None

    def _constant(self, value: int) -> Array:
        return np.full(self.threads, value, np.int64)

    def _per_slot(self, head: str, axis: int) -> Array:
        return self._block_coordinate(head, axis, self.unit_of_slot, self.rank_of_slot)

    def _block_coordinate(self, head: str, axis: int, units: Array, ranks: Array) -> Array:
        clusters = (
            self.grid[0] // self.cluster[0],
            self.grid[1] // self.cluster[1],
            self.grid[2] // self.cluster[2],
        )
        cluster = _coordinates(units, clusters)[axis]
        rank = _coordinates(ranks, self.cluster)[axis]
        return {"clusterid": cluster, "cluster_ctaid": rank, "ctaid": cluster * self.cluster[axis] + rank}[head]


def _product(extent: Extent) -> int:
    return extent[0] * extent[1] * extent[2]


def _coordinates(linear: Array, extent: Extent) -> tuple[Array, Array, Array]:
    return linear % extent[0], linear // extent[0] % extent[1], linear // (extent[0] * extent[1])

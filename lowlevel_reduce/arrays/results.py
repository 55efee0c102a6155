"""Memory of results: cells of larger allocations, of a few sizes, each reused in the order of its stream."""

from __future__ import annotations

import functools
import operator

from lowlevel_reduce.driver import Buffer, Context, Stream
from lowlevel_reduce.driver.turns import Known

__all__ = ["CELL_BYTES", "MAX_KEPT_BYTES", "Cell", "Part", "Pool", "empty_cache", "memory_stats"]

CELL_BYTES = 256
"""Size of the smallest cell in bytes, and alignment of all; ``cuMemAlloc`` aligns to as many."""

_CHUNK_BYTES = 1 << 18
"""What the driver is asked for at a time (about 2 µs): a thousand of the smallest cells. A cell of more than an eighth
of it is an allocation of its own."""

_ALONE_BYTES = _CHUNK_BYTES // 8

MAX_KEPT_BYTES = 1 << 26
"""The most memory of free cells that are allocations of their own, of each pool; what comes back beyond is freed."""

_call = operator.methodcaller("__call__")
_pools: Known[Pool] = Known()


class Cell:
    """Device memory of a pool, given back when the last reference goes.

    The next user works in the same stream, and so after all earlier work of the stream: the guarantee of a
    stream-ordered free, without a driver call. Before the last reference goes, work of other streams that uses the cell
    must be done, or this stream must wait for it; the one-shot functions ensure that. ``cuMemFreeAsync`` requires the
    same.

    Attributes
    ----------
    pointer : int
        Its device address.
    pool : Pool
        Where it came from and goes back to.
    """

    __slots__ = ("_free", "pointer", "pool")

    def __init__(self, pointer: int, pool: Pool, free: list[int]) -> None:
        self.pointer = pointer
        self.pool = pool
        self._free = free

    def __del__(self) -> None:
        self._free.append(self.pointer)


class Alone(Cell):
    """A cell that is an allocation of its own; it is kept for later if the pool has room."""

    __slots__ = ("_kept", "_memory")

    def __init__(self, memory: Buffer, pool: Pool, kept: list[Buffer]) -> None:
        self.pointer = memory.pointer
        self.pool = pool
        self._kept = kept
        self._memory = memory

    def __del__(self) -> None:
        # Without room the memory goes with this object, which is the driver's stream-ordered free.
        if self.pool.kept_bytes + self._memory.size_bytes <= MAX_KEPT_BYTES:
            self._kept.append(self._memory)


class Part(Cell):
    """A part of a cell, for one of several results; it keeps the whole alive."""

    __slots__ = ("_whole",)

    def __init__(self, whole: Cell, offset_bytes: int) -> None:
        self.pointer = whole.pointer + offset_bytes
        self.pool = whole.pool
        self._whole = whole

    def __del__(self) -> None:
        """Give nothing back: the whole does."""


class Pool:
    """The cells of one stream. Any thread may take and give back cells; the memory lives until the last cell is gone.

    Attributes
    ----------
    stream : Stream
        The stream in whose order cells are used.
    context : Context
        The stream's context.
    context_id : int
        The context's number in the driver.
    """

    __slots__ = ("__weakref__", "_alone", "_chunks", "_small", "context", "context_id", "stream")

    def __init__(self, stream: Stream, context: Context) -> None:
        self.stream = stream
        self.context = context
        self.context_id = context.id
        self._small: dict[int, list[int]] = {}  # free addresses, by the cells' size
        self._alone: dict[int, list[Buffer]] = {}
        self._chunks: dict[int, list[Buffer]] = {}
        _pools.add(self)

    def take(self, size_bytes: int = CELL_BYTES) -> Cell:
        """Return a cell of at least so many bytes, from new memory if none is left.

        The stream must not be capturing: new memory would belong to the graph.

        Raises
        ------
        CudaError
            If the driver has no memory.
        """
        size = CELL_BYTES if size_bytes <= CELL_BYTES else _cell_size(size_bytes)
        if size > _ALONE_BYTES:
            return self._take_alone(size)
        free = self._small.get(size)
        if free is None:
            free = self._small.setdefault(size, [])
        while True:
            try:
                return Cell(free.pop(), self, free)
            except IndexError:
                self._add(size, free, Buffer.allocate_async(_CHUNK_BYTES, self.stream))

    def _take_alone(self, size: int) -> Cell:
        free = self._alone.setdefault(size, [])
        try:
            memory = free.pop()
        except IndexError:
            memory = Buffer.allocate_async(size, self.stream)
        return Alone(memory, self, free)

    def _add(self, size: int, free: list[int], chunk: Buffer) -> None:
        first = chunk.pointer
        cells = range(first, first + _CHUNK_BYTES - size + 1, size)
        # Both at once, by C code: an interrupt in between would leave cells without memory, or memory without cells.
        kept = self._chunks.setdefault(size, [])
        list(map(_call, (functools.partial(kept.append, chunk), functools.partial(free.extend, cells))))

    @property
    def kept_bytes(self) -> int:
        """Bytes of the free cells that are allocations of their own."""
        return sum(size * len(free) for size, free in tuple(self._alone.items()))

    def stats(self) -> tuple[int, int]:
        """Return how many bytes it holds in chunks and free cells, and how many of these are free."""
        chunks = sum(_CHUNK_BYTES * len(kept) for kept in tuple(self._chunks.values()))
        free = sum(size * len(cells) for size, cells in tuple(self._small.items()))
        return chunks + self.kept_bytes, free + self.kept_bytes

    def release(self) -> None:
        """Free what no result uses, in the order of the stream."""
        for free in tuple(self._alone.values()):
            free.clear()
        for size, kept in tuple(self._chunks.items()):
            free_cells = self._small[size]
            taken: set[int] = set()
            while free_cells:
                taken.add(free_cells.pop())
            for chunk in kept.copy():
                cells = set(range(chunk.pointer, chunk.pointer + _CHUNK_BYTES - size + 1, size))
                if cells <= taken:
                    taken -= cells
                    kept.remove(chunk)
                    chunk.close()
            free_cells.extend(taken)


def _cell_size(size_bytes: int) -> int:
    """Return the size of the cells for so many bytes: one of four steps for each power of two, a fifth more at most."""
    step = 1 << max((size_bytes - 1).bit_length() - 3, 8)
    return -(-size_bytes // step) * step


def memory_stats() -> dict[str, int]:
    """Return how much device memory is kept for the results of one-shot calls, in this process.

    Returns
    -------
    dict
        ``held_bytes``: in all pools, large results that are in use apart, which are allocations of their own;
        ``free_bytes``: of these, what no result uses; ``pools``: one for each thread and stream.
    """
    pools = _pools.all()
    counts = [pool.stats() for pool in pools]
    return {
        "held_bytes": sum(held for held, _ in counts),
        "free_bytes": sum(free for _, free in counts),
        "pools": len(pools),
    }


def empty_cache() -> None:
    """Free the device memory that is kept for results and that none uses, in the order of each stream.

    It must not be called while one of the streams is captured.
    """
    for pool in _pools.all():
        pool.release()

"""Memory of results: cells of larger allocations, of a few sizes, each reused in the order of its stream."""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import weakref
from collections.abc import Callable
from typing import NamedTuple

from lowlevel_reduce.arrays import page_locked
from lowlevel_reduce.driver import Buffer, Context, Stream
from lowlevel_reduce.driver.turns import Known

__all__ = [
    "CELL_BYTES",
    "MAX_KEPT_BYTES",
    "Cell",
    "CellsOfCapture",
    "Part",
    "Pool",
    "cell_size",
    "empty_cache",
    "memory_stats",
]

CELL_BYTES = 256
"""Size of the smallest cell in bytes, and alignment of all; ``cuMemAlloc`` aligns to as many."""

_CHUNK_BYTES = 1 << 18
"""What the driver is asked for at a time (about 2 µs): a thousand of the smallest cells. A cell of more than an eighth
of it is an allocation of its own."""

_ALONE_BYTES = _CHUNK_BYTES // 8

_OF_CAPTURE_BYTES = 1 << 16
"""What a capture allocates at a time, for which its graph has two nodes: 256 of the smallest cells. A cell of more than
an eighth of it is an allocation of its own."""

MAX_KEPT_BYTES = 1 << 26
"""The most memory of free cells that are allocations of their own, of each pool; what comes back beyond is freed."""

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

    __slots__ = ()

    pointer: int
    pool: Pool


class _AsItGoes(functools.partial[None]):
    """A call that is made as this goes: its finalizer is C code, which no interrupt leaves half done."""

    __slots__ = ()

    __del__ = functools.partial.__call__


class _Small(_AsItGoes, Cell):
    """A cell of a chunk.

    Called, or as it goes, it gives its address back to those that are free. What makes it is C code as well: an
    interrupt that comes when it is taken or goes finds the address there, or the cell. Where the interpreter itself has
    no memory in that moment, nobody uses the cell again; its memory goes with the others'.
    """

    __slots__ = ("pointer", "pool")


class _Free(NamedTuple):
    """The free cells of a size: their addresses, and what takes one and makes its cell in one step, or raises."""

    addresses: list[int]
    take: Callable[[], _Small]

    @classmethod
    def none(cls) -> _Free:
        """Return what is there before the first chunk."""
        addresses: list[int] = []
        # The default cannot be asked for: `pop` raises IndexError where there is none.
        return cls(addresses, map(_Small, itertools.repeat(addresses.append), iter(addresses.pop, None)).__next__)


class Alone(Cell):
    """A cell that is an allocation of its own; it is kept for later if the pool has room."""

    __slots__ = ("_kept", "_memory", "pointer", "pool")

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

    __slots__ = ("_whole", "pointer", "pool")

    def __init__(self, whole: Cell, offset_bytes: int) -> None:
        self.pointer = whole.pointer + offset_bytes
        self.pool = whole.pool
        self._whole = whole


class _OfCapture(Cell):
    """A cell of memory that was allocated in a capture, and is the graph's."""

    __slots__ = ("_free", "_memory", "pointer", "pool")

    def __init__(self, pointer: int, pool: Pool, memory: _MemoryOfCapture, free: list[int]) -> None:
        self.pointer, self.pool, self._memory, self._free = pointer, pool, memory, free

    def __del__(self) -> None:
        self._free.append(self.pointer)


class _MemoryOfCapture:
    """An allocation in a capture, from which cells are cut. It lives as long as one of them, and goes then.

    That is why it is theirs alone: a graph that is to be replayed again must free what it allocates.
    """

    __slots__ = ("__weakref__", "end", "free", "left", "memory")

    def __init__(self, size: int, stream: Stream) -> None:
        self.memory = Buffer.allocate_async(size, stream)
        self.left, self.end = self.memory.pointer, self.memory.pointer + size
        self.free: dict[int, list[int]] = {}  # the addresses of cells that were given back, by their size

    def cell(self, size: int, pool: Pool) -> Cell | None:
        """Return a cell, or None if there is no room."""
        free = self.free.setdefault(size, [])
        try:
            pointer = free.pop()
        except IndexError:
            pointer = self.left
            if pointer + size > self.end:
                return None
            self.left = pointer + size
        return _OfCapture(pointer, pool, self, free)


class CellsOfCapture:
    """The cells that one stream's calls in a capture write their results to.

    The next user of a cell works in the same stream of the same capture, and so after all earlier work there.

    Parameters
    ----------
    pool : Pool
        That of the stream's other calls.
    """

    __slots__ = ("_memory", "_number", "_pool")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._number = 0
        self._memory: weakref.ref[_MemoryOfCapture] | None = None

    def take(self, number: int, size: int, *, is_alone: bool = False) -> Cell:
        """Return a cell of a size that `cell_size` returned, for the capture of this number, in which the stream is.

        With `is_alone`, no other will be asked for.

        Raises
        ------
        CudaError
            If the driver has no memory.
        """
        memory = self._memory() if self._memory is not None and number == self._number else None
        cell = None if memory is None else memory.cell(size, self._pool)
        if cell is not None:
            return cell
        if is_alone or size > _OF_CAPTURE_BYTES // 8:
            memory = _MemoryOfCapture(size, self._pool.stream)
        else:
            memory = _MemoryOfCapture(_OF_CAPTURE_BYTES, self._pool.stream)
            self._memory, self._number = weakref.ref(memory), number
        cell = memory.cell(size, self._pool)
        assert cell is not None  # noqa: S101 - it is as large, or larger
        return cell


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
        self._small: dict[int, _Free] = {}  # by the cells' size
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
        return self.take_size(cell_size(size_bytes))

    def take_size(self, size: int) -> Cell:
        """Return a cell of a size that `cell_size` returned, as `take` does."""
        while True:
            try:
                cell = self._small[size].take()
            except KeyError:
                if size > _ALONE_BYTES:
                    return self._take_alone(size)
                self._small.setdefault(size, _Free.none())
            except IndexError:
                addresses = self._small[size].addresses
                self._add(size, addresses, Buffer.allocate_async(_CHUNK_BYTES, self.stream))
            else:
                cell.pool = self
                (cell.pointer,) = cell.args
                return cell

    def _take_alone(self, size: int) -> Cell:
        free = self._alone.setdefault(size, [])
        try:
            memory = free.pop()
        except IndexError:
            memory = Buffer.allocate_async(size, self.stream)
        return Alone(memory, self, free)

    def _add(self, size: int, addresses: list[int], chunk: Buffer) -> None:
        first = chunk.pointer
        kept = self._chunks.setdefault(size, [])
        # The list makes room for all at once, and takes all or none; then `left` still has them.
        left = iter(list(range(first, first + _CHUNK_BYTES - size + 1, size)))
        try:
            kept.append(chunk)
            addresses.extend(left)
        except BaseException:  # an interrupt, or no memory: memory without cells would be of no use
            if operator.length_hint(left):
                with contextlib.suppress(ValueError):
                    kept.remove(chunk)
            raise

    @property
    def kept_bytes(self) -> int:
        """Bytes of the free cells that are allocations of their own."""
        return sum(size * len(free) for size, free in tuple(self._alone.items()))

    def stats(self) -> tuple[int, int]:
        """Return how many bytes it holds in chunks and free cells, and how many of these are free."""
        alone = self.kept_bytes
        chunks = sum(_CHUNK_BYTES * len(kept) for kept in tuple(self._chunks.values()))
        free = sum(size * len(cells.addresses) for size, cells in tuple(self._small.items()))
        return chunks + alone, free + alone

    def release(self) -> None:
        """Free what no result uses, in the order of the stream."""
        for free in tuple(self._alone.values()):
            free.clear()
        for size, kept in tuple(self._chunks.items()):
            addresses = self._small[size].addresses
            taken: set[int] = set()
            back = _AsItGoes(addresses.extend, taken)
            with contextlib.suppress(IndexError):  # raised where none is left; other threads take some meanwhile
                taken.update(iter(addresses.pop, None))
            for chunk in kept.copy():
                cells = set(range(chunk.pointer, chunk.pointer + _CHUNK_BYTES - size + 1, size))
                if cells <= taken:
                    # Both or none, whatever interrupts this: cells lie in memory that is kept, and it has all of them.
                    gone = functools.partial(taken.difference_update, cells), functools.partial(kept.remove, chunk)
                    any(map(functools.partial.__call__, gone))
                    chunk.close()
            del back


def cell_size(size_bytes: int) -> int:
    """Return the size of the cells for so many bytes: one of four between powers of two, a quarter more at most."""
    if size_bytes <= CELL_BYTES:
        return CELL_BYTES
    step = 1 << max((size_bytes - 1).bit_length() - 3, 8)
    return -(-size_bytes // step) * step


def memory_stats() -> dict[str, int]:
    """Return how much memory is kept from one call to the next, in this process.

    Returns
    -------
    dict
        ``held_bytes``: device memory for results of one-shot calls, in all pools, large results that are in use apart,
        which are allocations of their own; ``free_bytes``: of these, what no result uses; ``pools``: one for each
        thread and stream; ``page_locked_bytes``: of the host, through which the next array that is larger than the
        device comes, at most 80 MiB for each context.
    """
    pools = _pools.all()
    counts = [pool.stats() for pool in pools]
    return {
        "held_bytes": sum(held for held, _ in counts),
        "free_bytes": sum(free for _, free in counts),
        "pools": len(pools),
        "page_locked_bytes": page_locked.free_bytes(),
    }


def empty_cache() -> None:
    """Free the device memory that is kept for results and that none uses, in the order of each stream.

    And the page-locked memory that is kept for arrays larger than the device.

    It must not be called while one of the streams is captured.
    """
    for pool in _pools.all():
        pool.release()
    page_locked.release()

"""Page-locked memory that is kept from one call to the next."""

from __future__ import annotations

from lowlevel_reduce.driver import Buffer, Context, binding

__all__ = ["BLOCK_BYTES", "MAX_KEPT_BYTES", "free_bytes", "give_back", "release", "take"]

BLOCK_BYTES = 4 << 20
"""The size of a block."""

MAX_KEPT_BYTES = 80 << 20
"""The most memory of free blocks, of each context; what comes back beyond is freed."""

_MOST_CONTEXTS = 64
"""Of so many contexts memory is kept at the same time."""

_kept: dict[tuple[binding.Implementation, int], list[Buffer]] = {}  # by driver and the context's number

BOUNDS = {"_kept": _MOST_CONTEXTS}


def take(size_bytes: int, context: Context) -> Buffer:
    """Return page-locked memory for the copies of a context, one that is kept if it is a block; of undefined content.

    Whoever takes it gives it back when all copies are done. One that is let go instead is freed.

    Raises
    ------
    CudaError
        If there is not so much memory that may be locked.
    """
    # Borrowed: what is kept is not to keep a context that everybody else has let go.
    home = Context.from_handle(context.holder.home)
    if size_bytes == BLOCK_BYTES:
        try:
            return _kept[binding.selected(), home.id].pop()
        except (KeyError, IndexError):
            pass
    from lowlevel_reduce.driver.registered import page_locked  # noqa: PLC0415 - 0.5 ms, paid by who reads large arrays

    return page_locked(size_bytes, home)


def give_back(memory: Buffer) -> None:
    """Keep a block for the next who takes one; free it where enough are kept, and memory of other sizes."""
    if memory.size_bytes != BLOCK_BYTES:
        memory.close()
        return
    key = binding.selected(), memory.context.id
    if key not in _kept:
        _forget_ended()
    free = _kept.setdefault(key, []) if len(_kept) < _MOST_CONTEXTS else _kept.get(key, [])
    if (len(free) + 1) * BLOCK_BYTES <= MAX_KEPT_BYTES:
        free.append(memory)
    else:
        memory.close()


def free_bytes() -> int:
    """Return how many bytes are kept."""
    return sum(len(free) for free in tuple(_kept.values())) * BLOCK_BYTES


def release() -> None:
    """Free what is kept."""
    for key in tuple(_kept):
        free = _kept.pop(key, [])
        while free:
            free.pop().close()


def _forget_ended() -> None:
    """Let go what was kept for contexts that have ended, and their memory with them."""
    for key, free in tuple(_kept.items()):
        block = next(iter(free), None)
        if block is None or key[0] is not binding.selected() or block.context.has_ended:
            _kept.pop(key, None)

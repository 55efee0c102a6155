"""Chunks that ranks share, where rows are cut within them: their elements travel, and one rank folds each chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowlevel_reduce.driver import BoundKernel, Buffer, Context, LaunchConfig, Stream
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.parts.combining import PARTIAL_DTYPE
from lowlevel_reduce.parts.cut import Place
from lowlevel_reduce.parts.fold import TAG_BYTES
from lowlevel_reduce.parts.free_cut import FreeCut
from lowlevel_reduce.parts.local import Piece, pieces_of
from lowlevel_reduce.plans.loading import load_kernel
from lowlevel_reduce.strategy.stubs import KernelSource

if TYPE_CHECKING:
    from lowlevel_reduce.operators import Reduction
    from lowlevel_reduce.parts.groups import Gather

__all__ = ["SharedChunks", "pieces_at_borders"]

_THREADS, _MOST_BLOCKS = 256, 1024


def pieces_at_borders(
    reduction: Reduction, dtype: object, kept: tuple[int, int], cut: FreeCut, rank: int, context: Context
) -> tuple[list[Piece], list[Piece]]:
    """Return a rank's launches for what is in its own memory, and that for the chunk which other ranks complete.

    Raises
    ------
    UnsupportedError
        If elements of a second array would have to travel as well; and as `pieces_of`.
    """
    if cut.head and reduction.two_arrays and "about_second" not in reduction.label:
        raise UnsupportedError(
            f"{reduction.name} of two arrays takes a cut at leaves of {cut.chunk} elements: shard_lengths gives one"
        )
    held = cut.held[rank]
    own = pieces_of(reduction, dtype, kept, cut.place(rank), cut.chunk, context, head=held.head)
    if not held.borrowed:
        return own, []
    shared = pieces_of(reduction, dtype, kept, Place(0, held.extra, 0, held.extra), cut.chunk, context)
    behind = held.main * kept[0] * kept[1] * reduction.results * PARTIAL_DTYPE.itemsize
    return own, [each._replace(result=behind) for each in shared]


class SharedChunks:
    """The way of shared chunks' elements in a stream: copied together, gathered, and put in order where they belong.

    Attributes
    ----------
    gather : Gather
        Of what each rank has of chunks that belong to earlier ones: at most a leaf of each row.
    source : int
        Device address of the chunk that others complete, of every row; 0 if this rank has none.
    """

    def __init__(
        self, gather: Gather, cut: FreeCut, rank: int, kept: tuple[int, int], itemsize: int, stream: Stream
    ) -> None:
        before, behind = kept
        held, row = cut.held[rank], behind * itemsize
        self.gather = gather
        self._memory = Buffer.allocate(before * held.extra * row if held.borrowed else 0, stream.context)
        self.source = self._memory.pointer if held.borrowed else 0
        apart = cut.lengths[rank] * row
        begin = self.gather.mine + TAG_BYTES

        def copy(width: int, source_apart: int, target_apart: int) -> BoundKernel:
            return _copy(itemsize, before, width * row, source_apart, target_apart, stream)

        self._sent = [(copy(held.head, apart, held.head * row), 0, begin)] if held.head else []
        self._kept, self._taken = [], []
        if held.borrowed:
            target = held.extra * row
            at = (held.head + held.main * cut.chunk) * row
            self._kept = [(copy(held.tail, apart, target), at, self.source)]
            place = self.source + held.tail * row
            for other, count in held.borrowed:
                source = self.gather.everyone + other * self.gather.share_bytes + TAG_BYTES
                self._taken.append((copy(count, cut.held[other].head * row, target), source, place))
                place += count * row

    def __call__(self, source: int, tag: bytes) -> None:
        """Bring the elements of shared chunks to where they belong; `source` is this rank's part."""
        for copy, start, target in (*self._sent, *self._kept):
            copy(source + start, target)
        self.gather(tag)
        for copy, begin, target in self._taken:
            copy(begin, target)


def _copy(itemsize: int, rows: int, width: int, source_apart: int, target_apart: int, stream: Stream) -> BoundKernel:
    """Return the launch that copies `width` bytes of each of some rows; call it with source and target."""
    context = stream.context
    word = {1: "uint8", 2: "uint16", 4: "uint32"}.get(itemsize, "uint64")
    entry = f"copy_rows_{word}"
    text = f"""\
#include "parts/copy_rows.cuh"
extern "C" __global__ void __launch_bounds__({_THREADS})
{entry}(const __grid_constant__ CopyRows copy)
{{
    copy_rows<{word}>(copy);
}}
"""
    loaded = load_kernel(KernelSource(entry, text), context.device.architecture)
    words = rows * width // min(itemsize, 8)
    blocks = max(1, min(-(-words // _THREADS), _MOST_BLOCKS))
    config = LaunchConfig(blocks, _THREADS)
    constants = (rows, width, source_apart, target_apart)
    return BoundKernel(loaded.kernel, config, stream, "Q" * 6, constants=constants, as_struct=True)

"""The plan of one launch for all chunks of a part, those that its rows end within included."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from lowlevel_reduce.driver import Context, LaunchConfig
from lowlevel_reduce.driver.checks import check_launch
from lowlevel_reduce.dtypes import LANES, VECTOR_BYTES, element_type
from lowlevel_reduce.parts.combining import PARTIAL_DTYPE
from lowlevel_reduce.plans.base import BasePlan
from lowlevel_reduce.plans.launch import Extents
from lowlevel_reduce.plans.loading import load_kernel
from lowlevel_reduce.plans.mapping import MappedKernel
from lowlevel_reduce.strategy.selection import operator_text
from lowlevel_reduce.strategy.stubs import CHUNK_WARPS, chunks_kernel_source

if TYPE_CHECKING:
    import numpy as np

    from lowlevel_reduce.operators import Reduction, Types
    from lowlevel_reduce.parts.cut import Place

__all__ = ["AllChunksPlan", "all_chunks_plan", "suits"]

_LEAST_WARPS = 4
"""Warps of a block, of several chunks if a chunk has fewer leaves."""

_MOST_CHUNKS = 1 << 31
"""A kernel counts them in 32 bits."""

_NARROW_BYTES = 8
"""The most bytes of an accumulator with which a thread folds a whole leaf in the registers that blocks leave it."""


class AllChunksPlan(BasePlan):
    """The partials of all chunks of a part's rows. Make one with `all_chunks_plan`.

    Notes
    -----
    Bound to a stream, call ``launch(part, partials)`` with device addresses. The partials of whole chunks are a row's
    beside each other, and behind them that of each row's end, as the fold of shares expects.
    """

    def __init__(
        self,
        reduction: Reduction,
        types: Types,
        rows: int,
        place: Place,
        chunk: int,
        apart: int,
        context: Context,
        kernel: MappedKernel,
    ) -> None:
        self.rows, self.place, self.chunk, self.apart = rows, place, chunk, apart
        row_bytes = (place.whole * chunk + place.rest) * types.element.itemsize
        super().__init__(
            reduction=reduction,
            types=types,
            result_shape=(rows * place.chunks,),
            extents=Extents(
                low=0,
                high=(rows - 1) * apart + row_bytes,
                result_bytes=rows * place.chunks * reduction.results * PARTIAL_DTYPE.itemsize,
                result_alignment=PARTIAL_DTYPE.itemsize,
                vector_bytes=VECTOR_BYTES,
            ),
            context=context,
            kernels=(kernel,),
            workspace_bytes=0,
            fields="chunks",
        )

    @property
    def _partials(self) -> int:
        return 0  # a launch leaves none in a workspace

    def _fields(self, length: int, count: int, initial: tuple[int, int]) -> tuple[int, ...]:
        place, chunk = self.place, self.chunk
        row = place.whole * chunk + place.rest
        return (length, row, self.rows, count, *initial, chunk, place.chunks, self.apart)

    def __repr__(self) -> str:
        return (
            f"<AllChunksPlan {self.op} of {self.rows} rows in {self.place.chunks} chunks of {self.chunk} {self.dtype}>"
        )


def suits(reduction: Reduction, dtype: Any, kept: tuple[int, int], place: Place, chunk: int) -> bool:
    """Tell whether one launch does for all chunks of a part, where otherwise two would be needed.

    It is for one contiguous array of rows that begin at multiples of 16 bytes as the first does, for chunks of at most
    16 leaves, and operators with little to hold. Of larger chunks a second launch is a small part of the time.
    """
    if not (place.whole and place.rest and kept[1] == 1 and reduction.second is None and reduction.pivot is None):
        return False
    element = element_type(dtype)
    is_placed = kept[0] == 1 or place.length * element.itemsize % VECTOR_BYTES == 0
    if not is_placed or chunk > CHUNK_WARPS * element.leaf or kept[0] * place.chunks >= _MOST_CHUNKS:
        return False
    return _is_narrow(reduction, element.dtype)


@functools.lru_cache(maxsize=256)
def _is_narrow(reduction: Reduction, dtype: np.dtype[Any]) -> bool:
    types = reduction.types(element_type(dtype))
    return reduction.size(types) <= _NARROW_BYTES and not reduction.is_heavy(types)


def all_chunks_plan(
    reduction: Reduction, dtype: Any, rows: int, place: Place, chunk: int, context: Context
) -> AllChunksPlan:
    """Compile the launch for a part that `suits` says it is right for; rows lie ``place.length`` elements apart.

    Raises
    ------
    CompileError, NoCompilerError, NoDriverError, CacheError
        If the kernel cannot be compiled, run or cached.
    """
    element = element_type(dtype)
    types = reduction.types(element)
    source = chunks_kernel_source(operator_text(reduction, types))
    loaded = load_kernel(source, context.device.architecture)
    warps = chunk // element.leaf
    of_a_block = max(_LEAST_WARPS // warps, 1)
    config = _config(context, -(-rows * place.chunks // of_a_block), of_a_block * warps)
    check_launch(loaded.kernel, config, context)
    kernel = MappedKernel(loaded, config, warps.bit_length() - 1, source.twin)
    return AllChunksPlan(reduction, types, rows, place, chunk, place.length * element.itemsize, context, kernel)


def _config(context: Context, blocks: int, warps: int) -> LaunchConfig:
    programmatic = context.device.compute_capability >= (9, 0)
    return LaunchConfig(blocks, warps * LANES, programmatic_stream_serialization=programmatic)

"""The plan that folds what all ranks contributed: each row's partials, in equal shares, to its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lowlevel_reduce.driver import Buffer, Context, LaunchConfig
from lowlevel_reduce.driver.checks import check_launch
from lowlevel_reduce.layout import MAX_BYTES
from lowlevel_reduce.parts.combining import PARTIAL_DTYPE
from lowlevel_reduce.parts.cut import Cut
from lowlevel_reduce.parts.free_cut import FreeCut
from lowlevel_reduce.plans.base import BasePlan
from lowlevel_reduce.plans.launch import Extents
from lowlevel_reduce.plans.loading import load_kernel
from lowlevel_reduce.plans.mapping import MappedKernel
from lowlevel_reduce.strategy.selection import operator_text
from lowlevel_reduce.strategy.stubs import parts_kernel_source

if TYPE_CHECKING:
    from lowlevel_reduce.operators import Reduction, Types

__all__ = ["TAG_BYTES", "FoldPlan", "fold_plan", "share_bytes", "share_of"]

TAG_BYTES = 16
"""What each share begins with where ranks are to know that it is of their reduction; a multiple of every alignment."""

MAY_START_EARLY = False
"""Whether a fold is launched so that it may start before its predecessor ends, and waits for that itself. The
predecessor is an engine's gather, which lets nobody in before its last block ends."""

MOST_WITHOUT_TABLE = 256
"""The most ranks of which a block finds out by itself what each has: `most_without_table` in cuda_src."""

_FEW_CHUNKS = 128
"""Up to so many partials of a row one warp folds alone: it has them all in flight at once."""


class FoldPlan(BasePlan):
    """The fold of the shares of all ranks on one context. Make one with `fold_plan`.

    Attributes
    ----------
    cut : Cut
        How the rows were cut.
    rows, inner : int
        How many rows there are, and how many of them lie side by side in memory.
    apart, lead : int
        Bytes from one share to the next, and of a share before its first partial.
    takes_first : bool
        Whether a launch also takes the address of each row's first element, as for var, std and mean_var.

    Notes
    -----
    Bound to a stream, call ``launch(shares, result)`` with device addresses. If the plan `takes_first`, the address of
    every row's first element is a third argument.
    """

    def __init__(
        self,
        reduction: Reduction,
        types: Types,
        cut: Cut | FreeCut,
        kept: tuple[int, int],
        layout: tuple[int, int, bytes],
        shape: tuple[int, ...],
        context: Context,
        kernels: tuple[MappedKernel, ...],
        verdict: Buffer | None = None,
    ) -> None:
        self.cut = cut
        self.rows, self.inner = kept[0] * kept[1], max(kept[1], 1)
        self.apart, self.lead, self._tag = layout
        self.takes_first = reduction.second == "first"
        self._table, self._verdict = _table_of(cut, context), verdict
        itemsize = types.result_dtype.itemsize
        first_bytes = self.rows * types.element.itemsize if self.takes_first and cut.length else 0
        super().__init__(
            reduction=reduction,
            types=types,
            result_shape=shape,
            extents=Extents(
                low=0,
                high=cut.ranks * self.apart,
                result_bytes=self.rows * reduction.results * itemsize,
                result_alignment=itemsize,
                alignment=PARTIAL_DTYPE.itemsize,
                has_second=self.takes_first,
                second_high=first_bytes,
            ),
            context=context,
            kernels=kernels,
            workspace_bytes=0,
            fields="parts",
        )

    @property
    def _partials(self) -> int:
        return 0  # a launch leaves none in a workspace

    def _fields(self, length: int, count: int, initial: tuple[int, int]) -> tuple[int, ...]:
        cut, tag = self.cut, self._tag.ljust(TAG_BYTES, b"\0")
        words = (int.from_bytes(tag[:8], "little"), int.from_bytes(tag[8:], "little"))
        # A chunk may be longer than any array. Then it is the only one.
        parts = (min(cut.chunk, MAX_BYTES), cut.ranks, self.apart, self.lead, self.inner)
        verdict = 0 if self._verdict is None else self._verdict.pointer
        return (length, cut.length, self.rows, count, *initial, *parts, *words, self._table.pointer, verdict)

    def __repr__(self) -> str:
        return f"<FoldPlan {self.op} of {self.rows} rows of {self.cut.length} {self.dtype} from {self.cut.ranks} ranks>"


def _table_of(cut: Cut | FreeCut, context: Context) -> Buffer:
    """Return on the device what the kernel finds partials by, where a formula does not do; else no memory."""
    needed = isinstance(cut, FreeCut) or cut.ranks > MOST_WITHOUT_TABLE
    numbers = np.asarray(cut.table() if needed else [], np.uint32)
    table = Buffer.allocate(numbers.nbytes, context)
    if numbers.nbytes:
        table.copy_from(numbers)
    return table


def share_of(size_bytes: int) -> int:
    """Return the bytes of a share that holds so many, its tag included: a multiple of 16."""
    return TAG_BYTES + -(-size_bytes // TAG_BYTES) * TAG_BYTES


def share_bytes(cut: Cut | FreeCut, rows: int, words: int) -> int:
    """Return the bytes that each rank contributes, its tag included: a multiple of 16."""
    return share_of(rows * cut.share * words * PARTIAL_DTYPE.itemsize)


def fold_plan(
    reduction: Reduction,
    types: Types,
    cut: Cut | FreeCut,
    *,
    kept: tuple[int, int] = (1, 1),
    apart: int,
    lead: int = 0,
    tag: bytes = b"",
    verdict: Buffer | None = None,
    shape: tuple[int, ...] = (),
    context: Context,
) -> FoldPlan:
    """Compile the fold of the shares of all ranks.

    Parameters
    ----------
    reduction : Reduction
        The operator, made by `combining.divided`.
    types : Types
        Its types.
    cut : Cut
        How rows were cut.
    kept : tuple of int
        The numbers of rows before and behind the reduced axis.
    apart, lead : int
        Bytes from one share to the next, and of a share before its first partial: a multiple of 16, of which the first
        are the tag's.
    tag : bytes
        What each share must begin with, of up to 16 bytes, not all of them 0. A launch that meets another ends in an
        error of the driver.
    verdict : Buffer, optional
        8 bytes on the device. A launch that meets another tag sets this word, which was 0, in place of the error; then
        the results are of no use.
    shape : tuple of int
        Shape of the results.
    context : Context
        Where.

    Raises
    ------
    ValueError
        If rows have no elements and the operator has no result for that.
    CompileError, NoCompilerError, NoDriverError, CacheError
        If the kernel cannot be compiled, run or cached.
    """
    if cut.length == 0 and not reduction.has_initial:
        reduction.empty_results(types)  # raises where there is none
    rows = kept[0] * kept[1]
    layout = (apart, lead, tag)
    if rows == 0:
        return FoldPlan(reduction, types, cut, kept, layout, shape, context, (), verdict)
    alone = rows > 1 and cut.chunks <= _FEW_CHUNKS
    source, threads, of_a_block = parts_kernel_source(operator_text(reduction, types), alone=alone)
    loaded = load_kernel(source, context.device.architecture)
    early = MAY_START_EARLY and context.device.compute_capability >= (9, 0)
    config = LaunchConfig(-(-rows // of_a_block), threads, programmatic_stream_serialization=early)
    check_launch(loaded.kernel, config, context)
    kernels = (MappedKernel(loaded, config, cut.chunks),)
    return FoldPlan(reduction, types, cut, kept, layout, shape, context, kernels, verdict)

"""What is asked of an array larger than the device: its rows as they are read, and how these are reduced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lowlevel_reduce.driver import Stream
from lowlevel_reduce.parts.whole import Whole
from lowlevel_reduce.plans.array import plan

if TYPE_CHECKING:
    from lowlevel_reduce.operators import Reduction, Types

__all__ = ["Problem"]


class Problem(NamedTuple):
    """An array as rows that lie apart, elements of a row, and rows side by side; and how it is reduced."""

    before: int
    length: int
    behind: int
    shape: tuple[int, ...]
    op: Any
    reduction: Reduction
    types: Types
    initial: Any
    ddof: float
    options: dict[str, Any]
    whole: Whole | None

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.before * self.behind

    @property
    def row_bytes(self) -> int:
        """Bytes of all rows that lie side by side."""
        return self.length * self.behind * self.types.element.itemsize

    @property
    def result_bytes(self) -> int:
        """Bytes of all results."""
        return self.rows * self.reduction.results * self.types.result_dtype.itemsize

    def is_wide(self, piece_bytes: int) -> bool:
        """Tell whether pieces are cut into parts of many rows side by side, which lie apart."""
        element = self.types.element
        return self.row_bytes > piece_bytes and self.behind * element.leaf * element.itemsize > piece_bytes

    def bound(self, stream: Stream, **array: Any) -> Any:
        """Return the launch of this reduction for an array of some shape, bound to a stream."""
        made = plan(
            self.op,
            dtype=self.types.element.dtype,
            result_dtype=self.types.result_dtype,
            initial=self.initial is not None,
            ddof=self.ddof,
            context=stream.context,
            **array,
            **self.options,
        )
        return made.bind(stream, initial=self.initial)

    @property
    def beside_bytes(self) -> int:
        """Bytes of the results of all rows that lie side by side, where several of each are brought to their places."""
        return self.result_bytes // max(self.before, 1) if self.reduction.results > 1 else 0

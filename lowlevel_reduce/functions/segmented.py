"""`segmented_reduce`: the call itself, and what type checkers are told that it returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from lowlevel_reduce.calls import segments
from lowlevel_reduce.functions.keywords import own_keywords

__all__ = ["segmented_reduce"]

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lowlevel_reduce.arrays.allocator import Allocator
    from lowlevel_reduce.arrays.device_array import DeviceArray
    from lowlevel_reduce.functions.annotations import (
        ArrayLike,
        MeanVar,
        MinMax,
        NanPolicy,
        Out,
        Scalar,
        SoftmaxStats,
        StreamLike,
    )
    from lowlevel_reduce.functions.general import OneResult
    from lowlevel_reduce.operators import ElementMap, Operator

    # fmt: off
    @overload
    def segmented_reduce(
        x: ArrayLike, offsets: ArrayLike | Sequence[int], op: OneResult = "sum", *, dtype: npt.DTypeLike | None = None,
        accumulate: str | None = None, out: None = None, stream: StreamLike | None = None, nan: NanPolicy = "propagate",
        initial: Scalar | None = None, ddof: float = 0, last: bool = False, map: str | ElementMap | None = None,
        allocator: Allocator | None = None, check: bool | None = None,
    ) -> DeviceArray: ...
    @overload
    def segmented_reduce(
        x: ArrayLike, offsets: ArrayLike | Sequence[int], op: Literal["minmax"], *, dtype: npt.DTypeLike | None = None,
        accumulate: str | None = None, out: None = None, stream: StreamLike | None = None, nan: NanPolicy = "propagate",
        initial: Scalar | None = None, ddof: float = 0, last: bool = False, map: str | ElementMap | None = None,
        allocator: Allocator | None = None, check: bool | None = None,
    ) -> MinMax: ...
    @overload
    def segmented_reduce(
        x: ArrayLike, offsets: ArrayLike | Sequence[int], op: Literal["mean_var"], *,
        dtype: npt.DTypeLike | None = None, accumulate: str | None = None, out: None = None,
        stream: StreamLike | None = None, nan: NanPolicy = "propagate", initial: Scalar | None = None, ddof: float = 0,
        last: bool = False, map: str | ElementMap | None = None, allocator: Allocator | None = None,
        check: bool | None = None,
    ) -> MeanVar: ...
    @overload
    def segmented_reduce(
        x: ArrayLike, offsets: ArrayLike | Sequence[int], op: Literal["softmax_stats"], *,
        dtype: npt.DTypeLike | None = None, accumulate: str | None = None, out: None = None,
        stream: StreamLike | None = None, nan: NanPolicy = "propagate", initial: Scalar | None = None, ddof: float = 0,
        last: bool = False, map: str | ElementMap | None = None, allocator: Allocator | None = None,
        check: bool | None = None,
    ) -> SoftmaxStats: ...
    @overload
    def segmented_reduce(
        x: ArrayLike, offsets: ArrayLike | Sequence[int], op: str | Operator = "sum", *,
        dtype: npt.DTypeLike | None = None, accumulate: str | None = None, out: Out, stream: StreamLike | None = None,
        nan: NanPolicy = "propagate", initial: Scalar | None = None, ddof: float = 0, last: bool = False,
        map: str | ElementMap | None = None, allocator: Allocator | None = None, check: bool | None = None,
    ) -> Out: ...
    @overload
    def segmented_reduce(
        x: ArrayLike, offsets: ArrayLike | Sequence[int], op: str | Operator, *, dtype: npt.DTypeLike | None = None,
        accumulate: str | None = None, out: None = None, stream: StreamLike | None = None, nan: NanPolicy = "propagate",
        initial: Scalar | None = None, ddof: float = 0, last: bool = False, map: str | ElementMap | None = None,
        allocator: Allocator | None = None, check: bool | None = None,
    ) -> Any: ...
    # fmt: on
    def segmented_reduce(x: Any, offsets: Any, op: Any = "sum", **options: Any) -> Any:
        """Reduce each segment of an array: segment i is ``x[offsets[i]:offsets[i + 1]]`` (CSR)."""

else:
    segmented_reduce = own_keywords(segments.segmented_reduce)
    segmented_reduce.__module__ = __name__  # where pickle finds it

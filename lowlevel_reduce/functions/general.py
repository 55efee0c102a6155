"""`reduce`, of any operator: the call itself, and what type checkers are told that it returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from lowlevel_reduce.calls import reduce as calls_of_reduce
from lowlevel_reduce.functions.keywords import own_keywords

__all__ = ["reduce"]

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
    from lowlevel_reduce.operators import ElementMap, Operator

    # fmt: off
    OneResult = Literal[
        "sum", "prod", "min", "max", "argmin", "argmax", "any", "all", "count_nonzero", "mean", "var", "std", "norm1",
        "norm2", "norm_inf", "sum_squares", "logsumexp", "dot",
    ]
    # fmt: on

    # fmt: off
    @overload
    def reduce(
        x: ArrayLike, op: OneResult = "sum", *, axis: int | Sequence[int] | None = None, keepdims: bool = False,
        dtype: npt.DTypeLike | None = None, accumulate: str | None = None, out: None = None,
        stream: StreamLike | None = None, nan: NanPolicy = "propagate", where: ArrayLike | None = None,
        initial: Scalar | None = None, second: ArrayLike | None = None, ddof: float = 0, last: bool = False,
        map: str | ElementMap | None = None, strategy: str | None = None, allocator: Allocator | None = None,
    ) -> DeviceArray: ...
    @overload
    def reduce(
        x: ArrayLike, op: Literal["minmax"], *, axis: int | Sequence[int] | None = None, keepdims: bool = False,
        dtype: npt.DTypeLike | None = None, accumulate: str | None = None, out: None = None,
        stream: StreamLike | None = None, nan: NanPolicy = "propagate", where: ArrayLike | None = None,
        initial: Scalar | None = None, second: ArrayLike | None = None, ddof: float = 0, last: bool = False,
        map: str | ElementMap | None = None, strategy: str | None = None, allocator: Allocator | None = None,
    ) -> MinMax: ...
    @overload
    def reduce(
        x: ArrayLike, op: Literal["mean_var"], *, axis: int | Sequence[int] | None = None, keepdims: bool = False,
        dtype: npt.DTypeLike | None = None, accumulate: str | None = None, out: None = None,
        stream: StreamLike | None = None, nan: NanPolicy = "propagate", where: ArrayLike | None = None,
        initial: Scalar | None = None, second: ArrayLike | None = None, ddof: float = 0, last: bool = False,
        map: str | ElementMap | None = None, strategy: str | None = None, allocator: Allocator | None = None,
    ) -> MeanVar: ...
    @overload
    def reduce(
        x: ArrayLike, op: Literal["softmax_stats"], *, axis: int | Sequence[int] | None = None, keepdims: bool = False,
        dtype: npt.DTypeLike | None = None, accumulate: str | None = None, out: None = None,
        stream: StreamLike | None = None, nan: NanPolicy = "propagate", where: ArrayLike | None = None,
        initial: Scalar | None = None, second: ArrayLike | None = None, ddof: float = 0, last: bool = False,
        map: str | ElementMap | None = None, strategy: str | None = None, allocator: Allocator | None = None,
    ) -> SoftmaxStats: ...
    @overload
    def reduce(
        x: ArrayLike, op: str | Operator = "sum", *, axis: int | Sequence[int] | None = None, keepdims: bool = False,
        dtype: npt.DTypeLike | None = None, accumulate: str | None = None, out: Out, stream: StreamLike | None = None,
        nan: NanPolicy = "propagate", where: ArrayLike | None = None, initial: Scalar | None = None,
        second: ArrayLike | None = None, ddof: float = 0, last: bool = False, map: str | ElementMap | None = None,
        strategy: str | None = None, allocator: Allocator | None = None,
    ) -> Out: ...
    @overload
    def reduce(
        x: ArrayLike, op: str | Operator, *, axis: int | Sequence[int] | None = None, keepdims: bool = False,
        dtype: npt.DTypeLike | None = None, accumulate: str | None = None, out: None = None,
        stream: StreamLike | None = None, nan: NanPolicy = "propagate", where: ArrayLike | None = None,
        initial: Scalar | None = None, second: ArrayLike | None = None, ddof: float = 0, last: bool = False,
        map: str | ElementMap | None = None, strategy: str | None = None, allocator: Allocator | None = None,
    ) -> Any: ...
    # fmt: on
    def reduce(x: Any, op: Any = "sum", **options: Any) -> Any:
        """Reduce an array over some of its axes, in the order of the one tree."""

else:
    reduce = own_keywords(calls_of_reduce.reduce)
    reduce.__module__ = __name__  # where pickle finds it

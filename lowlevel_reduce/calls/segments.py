"""The one-shot reduction of segments of one array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lowlevel_reduce.arguments import instance, real
from lowlevel_reduce.arrays.device_array import ArrayView
from lowlevel_reduce.calls.execute import Made, execute
from lowlevel_reduce.calls.offsets import check_on_device, check_on_host, offsets_of_host
from lowlevel_reduce.calls.options import key_options
from lowlevel_reduce.calls.prepared import Prepared
from lowlevel_reduce.plans.segments import OFFSETS, segmented_plan

if TYPE_CHECKING:
    from lowlevel_reduce.arrays.allocator import Allocator
    from lowlevel_reduce.calls.places import Place
    from lowlevel_reduce.calls.threads import Thread
    from lowlevel_reduce.operators import ElementMap

__all__ = ["segmented_reduce"]


def segmented_reduce(
    x: Any,
    offsets: Any,
    op: Any = "sum",
    *,
    dtype: Any = None,
    accumulate: str | None = None,
    out: Any = None,
    stream: Any = None,
    initial: Any = None,
    nan: str = "propagate",
    ddof: float = 0,
    last: bool = False,
    map: str | ElementMap | None = None,
    allocator: Allocator | None = None,
    check: bool | None = None,
) -> Any:
    """Reduce each segment of an array: segment i is ``x[offsets[i]:offsets[i + 1]]`` (CSR).

    Parameters
    ----------
    x : array
        One axis, contiguous; as for `lowlevel_reduce.reduce`.
    offsets : array or sequence of int
        int32 or int64, ascending from 0 or more to at most the length of `x`, one more than there are segments.
        Segments may be empty: the result is then the operator's over no elements or, if it has none, that of its
        identity (for min infinity or the type's largest value, for argmin the index -1).
    op, dtype, accumulate, out, stream, initial, nan, ddof, last, map, allocator
        As for `lowlevel_reduce.reduce`; there is no second array.
    check : bool, optional
        Whether to refuse offsets that fall, are negative or lie past the end of `x`, before anything is launched. By
        default those on the host are checked, where that takes no time of the device, and those on the device are not:
        the host never reads them. With True, these are reduced by one launch more, and the host waits for its result;
        in a capture it cannot. Without a check, wrong offsets give undefined results that may look right, as
        `SegmentedPlan.bind` says; nothing outside the arrays is read or written.

    Returns
    -------
    DeviceArray, named tuple of them, or object
        One result per segment, each bit for bit that of the segment reduced on its own; `out` if that was given.

    Raises
    ------
    TypeError, ValueError, UnsupportedError, and errors of the driver, the compiler and the cache
        As `lowlevel_reduce.reduce`; a ValueError names the first offset that is wrong.
    """
    if check is not None:
        instance(check, bool, "check")
    offsets = offsets_of_host(offsets)
    on_host = isinstance(offsets, np.ndarray)
    checked = on_host if check is None else check
    ddof = real(ddof, "ddof is a real number")

    def make(_: Thread, place: Place, views: tuple[ArrayView, ...], *__: Any) -> tuple[tuple[Any, ...], Made]:
        plain = key_options(op, dtype=dtype, accumulate=accumulate, nan=nan, last=last, map=map)
        source, borders = views
        _check_views(source, borders)
        if checked and on_host:
            check_on_host(offsets, source.shape[0])
        elif checked:
            check_on_device(borders, source.shape[0], place, allocator)
        problem: dict[str, Any] = {
            "length": source.shape[0],
            "segments": borders.shape[0] - 1,
            "dtype": source.dtype,
            "offsets_dtype": borders.dtype,
            "initial": initial is not None,
            "ddof": ddof,
            **plain,
        }

        def made() -> Prepared:
            return Prepared.of_plan(segmented_plan(op, context=place.context, **problem), place, initial)

        return ("segments", op, *problem.values()), made

    options = None if checked else ("segments", dtype, accumulate, nan, ddof, last, map)
    return execute(x, op, options, make, second=offsets, out=out, stream=stream, initial=initial, allocator=allocator)


def _check_views(source: ArrayView, borders: ArrayView) -> None:
    for what, view in (("x", source), ("offsets", borders)):
        contiguous = view.strides_bytes in (None, (view.dtype.itemsize,))
        if len(view.shape) != 1 or not (contiguous or view.shape[0] <= 1):
            raise ValueError(f"{what} has shape {view.shape}; it must have one contiguous axis")
    if borders.shape[0] == 0:
        raise ValueError("offsets are empty: there must be one more than there are segments")
    if borders.dtype.name not in OFFSETS:
        raise TypeError(f"offsets are int32 or int64, not {borders.dtype}")

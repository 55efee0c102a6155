"""The one way of a call: views of its arrays, a key, what is prepared for it, memory for its results, the launch.

A call is known by everything that it depends on but the addresses. If it was made before by this thread, with arrays
whose memory is known to be whole without asking the driver, then it is a look-up, a cell for the result, and the
launch. If not, the arrays are looked at, and a plan is made where there is none; the kernels are those of the
operator's family, so a new shape compiles, loads and allocates nothing that another shape has not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lowlevel_reduce.arguments import instance
from lowlevel_reduce.arrays.allocator import Allocator
from lowlevel_reduce.arrays.device_array import ArrayView, DeviceArray, order_after, view_output
from lowlevel_reduce.arrays.libraries import producer_of
from lowlevel_reduce.calls.once import launched_once
from lowlevel_reduce.calls.options import forced_strategy, initial_key
from lowlevel_reduce.calls.prepared import Family, Prepared
from lowlevel_reduce.calls.threads import Thread, here
from lowlevel_reduce.calls.views import (
    CURRENT,
    UNKNOWN,
    address_of,
    are_of,
    is_trusted,
    known_as,
    spot_of,
    trusted_view,
    view_in,
    wait_behind,
)
from lowlevel_reduce.driver import Stream

if TYPE_CHECKING:
    from lowlevel_reduce.calls.forms import Form
    from lowlevel_reduce.calls.places import Place
    from lowlevel_reduce.plans.base import BasePlan

__all__ = ["Made", "execute", "launched", "repeated", "view_in"]

_NUMPYS = np.ndarray

Made = Callable[[], Prepared]
"""Prepares a call in its place."""

Describe = Callable[["Thread", "Place", tuple[ArrayView, ...], Any, Any, Any], tuple[tuple[Any, ...], Made]]
"""Takes a place, the views of the arrays, operator, options and initial value, and checks them. It returns a key of all
that the launch depends on besides the initial value, and what prepares it. If the key begins with a `Family`, and the
call has one array, then that prepares calls of all shapes and strides, unasked."""


def execute(
    x: Any,
    op: Any,
    options: tuple[Any, ...] | None,
    make: Describe,
    second: Any = None,
    out: Any = None,
    stream: Any = None,
    initial: Any = None,
    allocator: Allocator | None = None,
) -> Any:
    """Make a call, and return its result.

    Parameters
    ----------
    x, second : array
        The arrays, of which the second may be None.
    op, options
        All that the plan depends on besides the arrays, first what function it is; None if the call must be looked at
        each time.
    make : callable
        Called if the call is not known: see `Describe`.
    out, stream, initial, allocator
        As for `lowlevel_reduce.reduce`.

    Raises
    ------
    TypeError, ValueError, CudaError, and others
        As `lowlevel_reduce.reduce`.
    """
    thread = here()
    if allocator is not None:
        instance(allocator, Allocator, "the allocator")
    if type(x) is _NUMPYS or type(second) is _NUMPYS:
        x, second = _copied(thread, x, second, stream)
    key = None
    if allocator is None and options is not None:
        key, found = _remembered(thread, x, op, options, second, out, stream, initial)
        if found is not None:
            at = found.place  # what has gone must not be asked about; for the legacy stream the launch finds out
            is_over = at.may_be_captured and (at.stream._handle is None or at.life.over)
            result = None if is_over else _again(thread, found, key, x, second, out, stream)
        else:
            result = None if key is None else _anew(thread, key, make, (x, second, out), stream, initial)
        if result is not None:
            return result
    where = thread.stream_of(stream, x)
    with where.context.pushed():
        place = thread.place_of(where)
        views = tuple(view_in(thread, place, each) for each in ((x,) if second is None else (x, second)))
        known, made = make(thread, place, views, op, options, initial)
        known = (*known, initial_key(initial))
        captured = where.is_capturing
        prepared = _found(thread, place, known, made)
        result = _put(place, prepared, views, out, allocator, stream=where, captured=captured)
        if key is None and allocator is None and options is not None:  # the stream's number is known by now
            key, _ = _remembered(thread, x, op, options, second, out, stream, initial)
        if key is not None and not captured and are_of(place, *key[1:4]):
            thread.keep(key, prepared)
    return result


def repeated(
    thread: Thread,
    x: Any,
    op: Any,
    options: tuple[Any, ...],
    second: Any = None,
    out: Any = None,
    stream: Any = None,
    *,
    is_asked: bool = True,
) -> tuple[Any, Any]:
    """Return a call's key, and its result if its like was kept by `Thread.keep`; None for what there is not.

    For calls of which others make what is kept: it launches as `Prepared` does. Without `is_asked` nothing is launched.
    """
    key, prepared = _remembered(thread, x, op, options, second, out, stream, None)
    if prepared is None or not is_asked or prepared.place.is_over:
        return key, None
    return key, None if prepared.place.is_capturing else _again(thread, prepared, key, x, second, out, stream)


def _copied(thread: Thread, x: Any, second: Any, stream: Any) -> tuple[Any, Any]:
    """Return both arrays, of NumPy's the copies on the device, made in the order of the stream of the call."""
    where = thread.stream_of(stream, x)
    with where.context.pushed():
        place = thread.place_of(where)
        x, second = (view_in(thread, place, each).owner if type(each) is _NUMPYS else each for each in (x, second))
    return x, second


def _remembered(
    thread: Thread, x: Any, op: Any, options: tuple[Any, ...], second: Any, out: Any, stream: Any, initial: Any
) -> tuple[Any, Prepared | None]:
    """Return what a call depends on but the addresses, and what `Thread.keep` has kept of it, each None without.

    The former is None also where it cannot be known without asking the driver.
    """
    try:
        producer = producer_of(type(x))
        known = known_as(x) if producer is None else producer.known(x)
        if known is UNKNOWN:
            return None, None
        beside = None if second is None else known_as(second)
        into = None if out is None else known_as(out)
        spot = None if stream is None else spot_of(thread, known, stream)
        if spot is UNKNOWN or beside is UNKNOWN or into is UNKNOWN:
            return None, None
        start = None if initial is None else initial_key(initial)
        key = (spot, known, beside, into, op, options, start, forced_strategy())
        return key, thread.calls.get(key)
    except (TypeError, RuntimeError, ValueError):  # not hashable, or no plain array: others raise a clear error
        return None, None


def _anew(thread: Thread, key: Any, make: Describe, arrays: tuple[Any, Any, Any], stream: Any, initial: Any) -> Any:
    """Make a call whose like was not made, in a place where others were; None if there is none, or it must be asked."""
    spot, first, other, into, op, options, start, forced = key
    kind: Any = None
    form: Family | None = None
    if other is None and into is None:
        kind = (spot, first[:4], op, options, start is None, forced)
        form = thread.kinds.get(kind)
    place = thread.spots.get(spot or first[:3]) if form is None else form.place
    if place is None or place.is_over:
        return None
    # As `is_current`, whose call would count here.
    if place.is_default and (spot is None or spot[0] is not CURRENT) and thread.context_id() != place.context_id:
        with place.context.pushed():
            return _anew(thread, key, make, arrays, stream, initial)
    x, second, out = arrays
    if place.is_capturing or (form is None and not are_of(place, first, other, into)):
        return None
    is_met = thread.has_met(key)
    if form is not None:
        if start is None and not is_met:
            result = launched_once(thread, form, x, first, stream)
            if result is not None:
                return result
        like = trusted_view(first)
        prepared = form.prepared(like[1], like[2], None, initial)
    elif out is None:  # of a new shape: all but the launch is known not to fail
        views = tuple([trusted_view(each) for each in ((first,) if other is None else (first, other))])
        known, made = make(thread, place, views, op, options, initial)
        prepared = made()
        if kind is not None and isinstance(known[0], Family):
            thread.keep_kind(kind, known[0])
    else:
        views = tuple([view_in(thread, place, each) for each in ((x,) if second is None else (x, second))])
        known, made = make(thread, place, views, op, options, initial)
        prepared = _found(thread, place, (*known, initial_key(initial)), made)
        result = _put(place, prepared, views, out, stream=stream)
        thread.keep(key, prepared)
        return result
    if is_met:
        thread.keep(key, prepared)
    return None if prepared.is_nothing else _again(thread, prepared, key, x, second, out, stream, True)


def _again(
    thread: Thread, prepared: Prepared, key: Any, x: Any, second: Any, out: Any, stream: Any, is_asked: bool = False
) -> Any:
    """Repeat a call with other addresses; None if that cannot be done here and now, and nothing was launched.

    With `is_asked` the place's context is known to be current, and its stream not to be captured.
    """
    place = prepared.place
    spot = key[0]
    is_unknown = place.is_default and not is_asked and (spot is None or spot[0] is not CURRENT)
    if is_unknown and thread.context_id() != place.context_id:
        if place.is_over:
            return None
        with place.context.pushed():  # which is current then: only what may be captured is asked again
            return _again(thread, prepared, key, x, second, out, stream, not place.may_be_captured)
    captured = place.may_be_captured and not is_asked and place.is_capturing
    source = address_of(thread, place, x, key[1])
    other = 0 if second is None else address_of(thread, place, second, key[2])
    if (
        not source
        or source & prepared.refused
        or (second is not None and (not other or other & prepared.second_refused))
    ):
        return None
    launch = functools.partial(_launch_apart, prepared, None, True) if captured else prepared.launch
    if out is None:
        cell = (place.cell_of_capture if captured else place.pool.take_size)(prepared.cell_bytes)
        if not launch(source, cell.pointer, other):
            return None
        result = prepared.wrapped(cell, place.stream if stream is None or place.is_default else stream)
    else:
        target = address_of(thread, place, out, key[3])
        if not target or not _fits(prepared, source, other, target) or not launch(source, target, other):
            return None
        result = out
    if captured:
        order_after(place.stream, x, second, out)
    elif stream is not None or second is not None or out is not None:
        wait_behind(thread, place, x, second, out)
    return result


def _launch_apart(
    prepared: Prepared, allocator: Allocator | None, captured: bool, source: int, target: int, second: int
) -> bool:
    """Launch with a workspace of this call's own, or of the graph's, which then keeps the kernels; return True."""
    if captured:
        prepared.keep_loaded(source, second)
    prepared.launch_with(allocator or _in_order(), source, target, second)
    return True


def _in_order() -> Allocator:
    """Return the allocator by which the workspace of a captured call belongs to the graph, and lives as long."""
    from lowlevel_reduce.arrays.allocator import StreamOrdered  # noqa: PLC0415 - of captures alone

    return StreamOrdered()


def _fits(prepared: Prepared, source: int, second: int, target: int) -> bool:
    """Tell whether an output is aligned, and overlaps no input; else whoever checks addresses says which it is."""
    extents = prepared.extents
    low, high, size, alignment = extents[:4]
    if target % alignment or (source + low < target + size and target < source + high):
        return False
    return not second or not extents.overlap(second + extents.second_low, second + extents.second_high, target)


def launched(
    thread: Thread,
    place: Place,
    key: tuple[Any, ...],
    made: Made,
    views: tuple[ArrayView, ...],
    allocator: Allocator | None = None,
) -> tuple[Any, Prepared]:
    """Launch what others describe, and return the result and what is prepared for later launches.

    Parameters
    ----------
    thread, place : Thread, Place
        Where; the place's context is current, and its stream is not being captured.
    key : tuple
        All that the launch and its constants depend on, hashable.
    made : callable
        Prepares it, if nothing is kept.
    views : tuple of ArrayView
        The array, and the second one if there is one, ready for work in the stream.
    allocator
        As for `lowlevel_reduce.reduce`.
    """
    prepared = _found(thread, place, key, made)
    return _put(place, prepared, views, None, allocator), prepared


def _found(thread: Thread, place: Place, key: tuple[Any, ...], made: Made) -> Prepared:
    """Return what is kept of a problem in a place, else what is prepared now, and kept."""
    prepared: Prepared | None = thread.prepared(place, key)
    if prepared is None or prepared.is_interrupted:
        prepared = made()
        thread.prepare(place, key, prepared)
    return prepared


def _put(
    place: Place,
    prepared: Prepared,
    views: tuple[ArrayView, ...],
    out: Any,
    allocator: Allocator | None = None,
    *,
    stream: Stream | None = None,
    captured: bool = False,
) -> Any:
    """Launch a problem, with checks of all addresses that are not trusted, and return the result.

    `stream` is the object for the place's stream that the result is to have; `captured`, whether it is being captured.
    """
    stream = place.stream if stream is None or place.is_default else stream
    plan, shape = prepared.plan, prepared.result_shape
    if plan.results > 1:
        shape = (plan.results, *shape)
    target = 0 if out is None else view_output(out, plan.result_dtype, shape, stream).pointer
    result, cell = out, None
    if out is None and (allocator is not None or prepared.is_nothing):
        result = DeviceArray.empty(shape, plan.result_dtype, stream, allocator)
        target = result.pointer
    if prepared.is_nothing:
        return _several(plan, result, out)
    if result is None:
        cell = (place.cell_of_capture if captured else place.pool.take_size)(prepared.cell_bytes)
        target = cell.pointer
    source, second = views[0].pointer, views[1].pointer if len(views) > 1 else None
    trusted = (
        bool(source) and is_trusted(place, views[0].owner),
        bool(target) and (out is None or is_trusted(place, out)),
        bool(second) and is_trusted(place, views[-1].owner),
    )
    prepared.check(source, target, second, trusted=trusted)
    if captured or allocator is not None:
        _launch_apart(prepared, allocator, captured, source, target, second or 0)
    elif not prepared.launch(source, target, second or 0):
        prepared.refuse()
    order_after(stream, *(() if out is None else (out,)), *(view.owner for view in views))
    if cell is not None:
        return prepared.wrapped(cell, stream)
    return _several(plan, result, out)


def _several(plan: BasePlan | Form, result: Any, out: Any) -> Any:
    if out is not None or plan.results == 1:
        return result
    return plan.result_tuple(*(result.plane(k) for k in range(plan.results)))

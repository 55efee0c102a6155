"""The way of a call of a row operation: a key, what is prepared for it, memory for its outputs, the launch.

As for reductions, a call is known by everything that it depends on but the addresses. If it was made before by this
thread, with arrays whose memory is known to be whole without asking the driver, then it is a look-up, cells for the
outputs, and the launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lowlevel_reduce.arrays.allocator import Allocator
from lowlevel_reduce.arrays.device_array import ArrayView, DeviceArray, order_after
from lowlevel_reduce.calls.options import forced_strategy
from lowlevel_reduce.calls.threads import Thread, here
from lowlevel_reduce.calls.views import (
    UNKNOWN,
    address_of,
    are_of,
    is_current,
    is_here,
    is_trusted,
    known_as,
    spot_of,
    view_in,
)
from lowlevel_reduce.driver import Stream
from lowlevel_reduce.driver.library import kernels_of_graphs
from lowlevel_reduce.rowops.launch import check_arrays
from lowlevel_reduce.rowops.prepared import PreparedRows

if TYPE_CHECKING:
    from lowlevel_reduce.calls.places import Place
    from lowlevel_reduce.rowops.plan import RowPlan

__all__ = ["RowCall", "execute"]

Views = tuple["ArrayView | None", ...]


class RowCall(NamedTuple):
    """A call of a row operation.

    Attributes
    ----------
    arrays : tuple
        What it reads: the rows, a second array, columns, row inputs and tables.
    targets : tuple
        The caller's array for each output and for what is kept, None where there is none.
    options : tuple
        All that the plan depends on besides the arrays, hashable: first the operation.
    stream, allocator
        As for `row_operation`.
    """

    arrays: tuple[Any, ...]
    targets: tuple[Any, ...]
    options: tuple[Any, ...]
    stream: Any
    allocator: Allocator | None


Describe = Callable[
    [tuple[ArrayView, ...], Views, "Place"],
    "tuple[tuple[Any, ...], Callable[[], tuple[RowPlan, tuple[int, ...]]]]",
]
"""Checks the views of a call's arrays and targets, and returns a key of all that the plan depends on, and what makes
the plan with the shape that a caller sees."""


def execute(call: RowCall, describe: Describe) -> Any:
    """Make a call, and return its outputs; `describe` is called where it is not known."""
    thread = here()
    key = None if call.allocator is not None else _key(thread, call)
    if key is not None:
        found = _by_key(thread, key, call)
        if found is not None:
            return found
    where = thread.stream_of(call.stream, call.arrays[0])
    with where.context.pushed():
        place = thread.place_of(where)
        views = tuple(view_in(thread, place, each) for each in call.arrays)
        into = tuple(None if each is None else view_in(thread, place, each) for each in call.targets)
        known, make = describe(views, into, place)
        captured = where.is_capturing
        stream = place.stream if place.is_default else where
        result, prepared = _launched(
            thread, place, ("row operation", *known), make, call, views, into, stream, captured
        )
        if key is None and call.allocator is None:  # the stream's number is known by now
            key = _key(thread, call)
        if key is not None and not captured and are_of(place, *key[1], *key[2]):
            thread.keep(key, cast("Any", prepared))
    return result


def _key(thread: Thread, call: RowCall) -> Any:
    """Return what a call depends on but the addresses; None if that cannot be known without asking the driver."""
    try:
        known = tuple(map(known_as, call.arrays))
        into = tuple(None if each is None else known_as(each) for each in call.targets)
        if UNKNOWN in known or UNKNOWN in into:
            return None
        spot = spot_of(thread, known[0], call.stream)
        if spot is UNKNOWN:
            return None
        key = (spot, known, into, call.options, forced_strategy())
        hash(key)
    except (TypeError, RuntimeError, ValueError):  # not hashable, or not a plain array: others raise a clear error
        return None
    return key


def _by_key(thread: Thread, key: Any, call: RowCall) -> Any:
    """Repeat a call; None if its like was not made, or something must be asked of the driver."""
    prepared: Any = thread.calls.get(key)
    if prepared is None:
        return None
    place: Place = prepared.place
    if place.may_be_captured and (place.stream._handle is None or place.life.over):
        return None  # what has gone must not be asked about; for the legacy stream the launch finds out
    if is_current(thread, place, key[0]):
        return _again(thread, prepared, key, call)
    if place.is_over:
        return None
    with place.context.pushed():
        return _again(thread, prepared, key, call)


def _again(thread: Thread, prepared: PreparedRows, key: Any, call: RowCall) -> Any:
    """Repeat a call with other addresses; None if that cannot be done here and now, and nothing was launched."""
    place, given = prepared.place, call.stream
    if place.is_capturing:  # a graph must not get a cell that other calls use again
        return None
    _, known, into, *_ = key
    addresses = []
    elsewhere = []  # arrays of other streams, in whose order they are overwritten
    for array, kind in zip(call.arrays, known):  # noqa: B905 - one key
        pointer = address_of(thread, place, array, kind)
        if not pointer:
            return None
        addresses.append(pointer)
        if kind[0] is DeviceArray and array.stream is not place.stream and not is_here(place, array):
            elsewhere.append(array)
    stream = place.stream if given is None or place.is_default else given
    results, is_given = [], False
    for (dtype, shape, _, size), target, kind in zip(prepared.outputs, call.targets, into):  # noqa: B905 - as above
        if target is None:
            cell = place.pool.take_size(size)
            addresses.append(cell.pointer)
            results.append(DeviceArray.of_cell(dtype, shape, cell, stream))
        else:
            is_given = True
            pointer = address_of(thread, place, target, kind)
            if not pointer:
                return None
            addresses.append(pointer)
            results.append(target)
            if kind[0] is DeviceArray and not is_here(place, target):
                elsewhere.append(target)
    if is_given:
        check_arrays(prepared.plan.checks, addresses, place.context, (True,) * len(addresses))
    if not prepared.launch(addresses):
        return None
    for each in elsewhere:
        thread.wait(each.stream, place.stream)
    return prepared.results(results)


def _launched(
    thread: Thread,
    place: Place,
    key: tuple[Any, ...],
    make: Callable[[], tuple[RowPlan, tuple[int, ...]]],
    call: RowCall,
    views: tuple[ArrayView, ...],
    into: Views,
    stream: Stream,
    captured: bool,
) -> tuple[Any, PreparedRows]:
    """Launch, and return the outputs and what is prepared for later launches."""
    prepared = thread.prepared(place, key)
    if prepared is None:
        prepared = _prepare(thread, place, key, make)
    results, addresses = [], [view.pointer for view in views]
    for (dtype, shape, size_bytes, size), target, view in zip(prepared.outputs, call.targets, into, strict=True):
        if view is not None:
            results.append(target)
            addresses.append(view.pointer)
            continue
        if captured or call.allocator is not None or not size_bytes:
            made = DeviceArray.empty(shape, dtype, stream, call.allocator)
        else:
            made = DeviceArray.of_cell(dtype, shape, place.pool.take_size(size), stream)
        results.append(made)
        addresses.append(made.pointer)
    owners = (*(view.owner for view in views), *call.targets)
    trusted = [
        bool(address) and (owner is None or is_trusted(place, owner))
        for address, owner in zip(addresses, owners, strict=True)
    ]
    check_arrays(prepared.plan.checks, addresses, place.context, trusted)
    if not prepared.is_nothing:
        if captured:
            kernels_of_graphs()[prepared.kernel(addresses).kernel] = None
        if not prepared.launch(addresses):
            prepared = _prepare(thread, place, key, make)
            if not prepared.launch(addresses):
                prepared.refuse(addresses)
    order_after(stream, *call.targets, *(view.owner for view in views))
    return prepared.results(results), prepared


def _prepare(
    thread: Thread, place: Place, key: Any, make: Callable[[], tuple[RowPlan, tuple[int, ...]]]
) -> PreparedRows:
    plan, whole = make()
    prepared = PreparedRows(plan, place, whole)
    thread.prepare(place, key, prepared)
    return prepared

"""A call of a shape that was not met before: it is launched at once, and nothing is made or kept of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lowlevel_reduce.calls.views import address_of, wait_behind
from lowlevel_reduce.driver import binding

if TYPE_CHECKING:
    from lowlevel_reduce.calls.prepared import Family
    from lowlevel_reduce.calls.threads import Thread

__all__ = ["launched_once"]


def launched_once(thread: Thread, form: Family, x: Any, known: Any, stream: Any) -> Any:
    """Launch a form for one array, and return the result; None if nothing was launched, and it must be prepared.

    Parameters
    ----------
    thread, form : Thread, Family
        Who calls, and the form of the call; the context of the form's place is current if it must be, and its stream
        is not being captured.
    x, known : array, tuple
        The array, which is trusted in that place, and what `known_as` has returned for it.
    stream : Stream or None
        As it was given.
    """
    laid = form.laid(known)
    if laid is None:
        return None
    choice, results, put, fields = laid
    place, kernel, size = form.place, choice.kernel, choice.workspace_bytes
    source = address_of(thread, place, x, known)
    if not source:
        return None
    cell = place.pool.take_size(results.cell_bytes)
    workspace = place.workspace.at_least(size) if size else 0
    which = 1 if source & kernel.mask else 0  # no bool, by which a list is looked into more slowly
    launcher = kernel.launchers[which]
    if launcher is None or not launcher.turn.idle:
        launcher = kernel.launcher(twin=which == 1)
    turn = launcher.turn
    try:
        words = turn.idle.pop()
    except IndexError:
        return None
    try:
        launcher.holds = 0
        launcher.bound.regrid(choice.blocks, kernel.threads)
        put(words, source, cell.pointer, workspace, *fields)
        code = launcher.launch()
    finally:
        turn.idle.append(words)
    if code:
        binding.raise_for("cuLaunchKernelEx", code)
    if stream is None or place.is_default:
        result = results.wrapped(cell, place.stream)
    else:
        result = results.wrapped(cell, stream)
    if stream is not None:
        wait_behind(thread, place, x)
    return result

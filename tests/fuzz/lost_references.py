"""Arrays and handles to which CPython itself has lost a reference: they live, and nothing that lives refers to them.

Where an allocation fails, CPython forgets to let go of what it was working on, in places that differ from version to
version: `values` in ``list(values)`` and ``[*values]`` (3.11), the options of a call with ``**options``, and perhaps a
frame that an exception leaves, with all its variables (3.12.3 has kept the arrays of one). No code in Python can do
that: what a library keeps is reached from a module, a class, a thread or a frame that runs. So that is looked for, from
each object upwards.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import FrameType, ModuleType
from typing import Any

from lowlevel_reduce.arrays.device_array import ArrayView, DeviceArray
from lowlevel_reduce.calls.threads import Thread
from lowlevel_reduce.driver.handle import Handle

__all__ = ["orphans"]

# A thread's own dictionary, which has what the library keeps for the thread, is seen by nobody.
_ROOTS = (ModuleType, type, Thread)


def orphans() -> list[Any]:
    """Return arrays and handles that live, and that are reached from nowhere.

    What was hidden from the collector by ``gc.freeze()`` is to be shown to it before: it does not tell who refers to an
    object from there.
    """
    found = [each for each in gc.get_objects() if isinstance(each, (ArrayView, DeviceArray, Handle))]
    frames = list(_running(sys._getframe()))
    used = {id(frame) for frame in frames}
    for frame in frames:
        used.update(map(id, frame.f_locals.values()))
    return [each for each in found if not _is_reached(each, used, [found, frames])]


def _running(helper: FrameType) -> Iterator[FrameType]:
    """Yield the frames that run, without that of a helper and those that it has called."""
    for frame in sys._current_frames().values():
        begin: FrameType | None = frame
        ahead = begin
        while ahead is not None and ahead is not helper:
            ahead = ahead.f_back
        if ahead is helper:
            begin = helper.f_back
        while begin is not None:
            yield begin
            begin = begin.f_back


def _is_reached(start: Any, used: set[int], beside: list[Any]) -> bool:
    """Tell whether a chain of references leads to an object from a root; `beside` are lists of the search itself."""
    due = [start]
    seen = {id(start), id(due), *map(id, (beside, *beside))}
    while due:
        one = due.pop()
        if id(one) in used or isinstance(one, _ROOTS):
            return True
        holders = gc.get_referrers(one)
        seen.add(id(holders))
        for holder in holders:
            # Its own variables are no variables of the code that is looked at; nor are those of its callers here.
            if id(holder) not in seen and not _is_of_the_search(holder):
                seen.add(id(holder))
                due.append(holder)
    return False


def _is_of_the_search(holder: Any) -> bool:
    return isinstance(holder, FrameType) and holder.f_globals is globals()

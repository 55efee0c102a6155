"""What a thread keeps for one driver: the places where it has launched, and its calls by what they depend on."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lowlevel_reduce.arrays.device_array import DeviceArray
from lowlevel_reduce.arrays.libraries import Producer, producer_of
from lowlevel_reduce.calls.places import Place
from lowlevel_reduce.calls.prepared import Family, Prepared
from lowlevel_reduce.calls.views import spot_in
from lowlevel_reduce.driver import Context, Stream, binding
from lowlevel_reduce.driver.waits import Waits, waits

if TYPE_CHECKING:
    from lowlevel_reduce.calls.forms import Form

__all__ = ["MAX_CALLS", "MAX_FORMS", "MAX_MET", "MAX_PLACES", "MAX_PREPARED", "Thread", "here"]

MAX_CALLS = 1024
"""The most calls that a thread remembers; before it exceeds that, it forgets them all."""

MAX_MET = 4096
"""The most calls of which a thread remembers only that they were made; before it exceeds that, it forgets them all."""

MAX_PREPARED = 256
"""The most problems that are kept prepared in a place for calls that are not remembered, as of arrays that the driver
must be asked about; the least recently used is dropped first. One that is dropped costs its next call some
microseconds: kernels and memory stay."""

MAX_FORMS = 256
"""The most forms of calls that a thread remembers; before it exceeds that, it forgets them all. What a form costs anew
is less than two of its calls."""

MAX_PLACES = 64
"""The most streams in which a thread keeps launchers and memory; before it exceeds that, it forgets them all."""

BOUNDS = {
    **{"calls": MAX_CALLS, "spots": MAX_CALLS, "forms": MAX_FORMS, "kinds": MAX_FORMS},
    "_met": MAX_MET,
    **{"problems": MAX_PLACES, "_places": MAX_PLACES, "_streams": MAX_PLACES},
}
"""The most entries of what a thread keeps, by its name: who watches for growth tells it from what has no bound."""


class Thread:
    """What a thread keeps for one driver.

    Attributes
    ----------
    driver : Implementation
        The driver.
    calls : dict
        Prepared calls, by everything that they depend on: see `execute`.
    forms : dict
        By all that they depend on, what calls have in common whose shapes differ: see `Form`.
    kinds : dict
        Forms, by all that calls of one array depend on but its shape and strides, if it is trusted in the form's place.
    problems : dict
        By place, the problems that are prepared there, by all that they depend on. The place does not have them, for
        each of them has it.
    spots : dict
        Places, by what tells of an array and a given stream where they lead: `spot_of`.
    context, context_id : callable
        Return the handle of the current context, and its number; negative without one.
    wait : Waits
        Makes one stream wait for another.
    others : dict
        What other modules keep for this thread: it goes with the thread, or when the driver changes.
    """

    __slots__ = (
        *("__weakref__", "_met", "_places", "_streams", "calls", "context", "context_id", "driver", "forms", "kinds"),
        *("others", "problems", "spots", "wait"),
    )

    def __init__(self, driver: binding.Implementation) -> None:
        self.driver = driver
        self.calls: dict[Any, Prepared] = {}
        self.forms: dict[Any, Form] = {}
        self.kinds: dict[Any, Family] = {}
        self.others: dict[Any, Any] = {}
        self.spots: dict[Any, Place] = {}
        self.problems: dict[Place, OrderedDict[Any, Any]] = {}
        self.wait: Waits = waits()
        self._met: set[int] = set()
        self._places: dict[Any, Place] = {}
        self._streams: dict[Any, Stream] = {}
        self.context: Callable[[], int] = driver.prebuilt_number("cuCtxGetCurrent")
        self.context_id: Callable[[], int] = driver.prebuilt_number("cuCtxGetId", 0)

    def forget(self) -> None:
        """Forget all calls and places: their memory goes, in the order of each stream."""
        for each in (self.calls, self.spots, self.forms, self.kinds, self.problems, self.others, self.wait, self._met):
            each.clear()
        self._places.clear()
        self._streams.clear()

    def place_of(self, stream: Stream) -> Place:
        """Return where a fixed stream's calls are made; for all objects for one stream it is the same.

        The driver numbers streams, and never reuses a number; but it gives none during a capture. Then a stream that is
        met for the first time gets a place for this call alone.
        """
        context, is_default = stream.context, stream.is_default
        if not is_default and not stream.has_number and stream.is_capturing:
            return Place(stream)
        key = (context.id, stream.handle or 1) if is_default else stream.id
        found = self._places.get(key)
        if found is None or found.is_over:
            self._drop_closed()
            if len(self._places) >= MAX_PLACES:
                for each in (self._places, self.calls, self.spots, self.forms, self.kinds, self.problems):
                    each.clear()
            if is_default:  # an object of its own, usable whichever of the caller's is closed
                stream = Stream.from_handle(stream.handle or 1, context=context).fixed()
            found = self._places[key] = Place(stream)
        return found

    def form(self, key: Any, make: Callable[..., Form], *given: Any) -> Form:
        """Return the form of a key, which begins with its place; one that is made of what is given lasts as it does."""
        try:
            form = self.forms.get(key)
        except TypeError:  # not hashable
            return make(*given)
        if form is not None:
            return form
        form = make(*given)
        if key[0].lasts:
            if len(self.forms) >= MAX_FORMS:
                self.forms.clear()
            self.forms[key] = form
        return form

    def keep_kind(self, kind: Any, form: Family) -> None:
        """Remember by which form a kind of calls is prepared, if that lasts."""
        if form.place.lasts:
            if len(self.kinds) >= MAX_FORMS:
                self.kinds.clear()
            self.kinds[kind] = form

    def prepare(self, place: Place, key: Any, prepared: Any) -> None:
        """Keep a prepared problem of a place for later calls, if it lasts as long."""
        if not place.lasts:
            return
        kept = self.problems.setdefault(place, OrderedDict())
        kept[key] = prepared
        while len(kept) > MAX_PREPARED:
            kept.popitem(last=False)

    def prepared(self, place: Place, key: Any) -> Any:
        """Return what was kept by `prepare`, or None."""
        kept = self.problems.get(place)
        found = None if kept is None else kept.get(key)
        if kept is not None and found is not None:
            with contextlib.suppress(KeyError):  # a signal's handler has dropped it
                kept.move_to_end(key)
        return found

    def keep(self, key: Any, prepared: Prepared) -> None:
        """Remember a call, and where it was made; but not one that launches nothing, as for no segments."""
        if prepared.is_nothing:
            return
        if len(self.calls) >= MAX_CALLS:
            self.calls.clear()
            self.spots.clear()
        self.spots[spot_in(key)] = prepared.place
        try:
            self.calls[key] = prepared
        except (TypeError, RuntimeError, ValueError):  # not hashable
            return

    def has_met(self, key: Any) -> bool:
        """Tell whether a call was made before, or one that looks like it; from now on it was.

        Of shapes that come once, as of sequences that grow, nothing is kept then: what is kept is looked through by the
        collector again and again, 0.2 ms for each 700 objects, which was the slowest of a hundred calls.
        """
        number = hash(key)
        if number in self._met:
            return True
        if len(self._met) >= MAX_MET:
            self._met.clear()
        self._met.add(number)
        return False

    def _drop_closed(self) -> None:
        """Let go of places whose stream or context was closed, and so of their memory."""
        closed = [key for key, place in self._places.items() if place.is_over]
        if closed:
            gone = [self._places.pop(key) for key in closed]
            self.calls = {key: prepared for key, prepared in self.calls.items() if prepared.place not in gone}
            self.forms = {key: form for key, form in self.forms.items() if key[0] not in gone}
            self.kinds = {key: form for key, form in self.kinds.items() if form.place not in gone}
            for place in gone:
                self.problems.pop(place, None)
            self.spots = {key: place for key, place in self.spots.items() if place not in gone}

    def stream_of(self, given: Any, x: Any) -> Stream:
        """Return the fixed stream of a call: the given one, else that of the array, else the legacy default stream.

        That of a `DeviceArray` is its own. An array of a library that is read by attributes is in the library's current
        stream on the array's device, in the primary context.
        """
        if given is not None:
            if isinstance(given, Stream):
                return given.fixed()
            theirs = Stream.of(given)  # asked each time: what an object stands for may change
            # A default one is that of whichever context is current, as of a stream of ours without a context.
            number = self.context_id() if theirs.is_default else 0
            return self._kept((given, theirs.handle, number), theirs.fixed)
        if type(x) is DeviceArray:
            return x.stream
        producer = producer_of(type(x))
        if producer is None or not producer.plain(x):
            number = self.context_id()
            if number < 0:
                return Stream.legacy(Context.current_or_primary())
            return self._kept(("legacy", number), lambda: Stream.legacy(Context.current_or_primary()).fixed())
        return self.working_stream(producer, producer.ordinal(x))

    def working_stream(self, producer: Producer, ordinal: int) -> Stream:
        """Return the stream in which a library works on a device now."""
        handle = producer.stream(ordinal)

        def make() -> Stream:
            with Context.primary(ordinal) as primary:
                return Stream.from_handle(handle, context=Context.from_handle(primary.handle)).fixed()

        return self._kept((ordinal, handle), make)

    def _kept(self, key: Any, make: Callable[[], Stream]) -> Stream:
        try:
            found = self._streams.get(key)
        except TypeError:  # not hashable
            return make()
        if found is None or found.is_closed or found.context.has_ended:
            if len(self._streams) >= MAX_PLACES:
                self._streams.clear()
            found = self._streams[key] = make()
        return found


_threads = threading.local()


def _in_child() -> None:
    global _threads  # noqa: PLW0603 - of the parent's driver
    _threads = threading.local()


binding.after_fork(_in_child)


def here() -> Thread:
    """Return what the calling thread keeps for the driver that is selected."""
    try:
        thread: Thread = _threads.kept
    except AttributeError:
        return _of_driver()
    return thread if thread.driver is binding._selected else _of_driver()


def _of_driver() -> Thread:
    driver = binding.selected()
    thread: Thread | None = getattr(_threads, "kept", None)
    if thread is None or thread.driver is not driver:
        thread = _threads.kept = Thread(driver)
    return thread

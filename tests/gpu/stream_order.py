"""What is known to run before what, by the calls that a simulated driver gets: it runs all at once, and so shows none.

The rules are those of the driver's manual: a stream's work runs in its order, an event carries what its stream had to
those that wait for it, and whatever the legacy stream of a context is given runs behind all that its blocking streams
have, and before all that they get later. The threads' default streams are blocking ones; those that the tests make by
`Stream.create` are not.
"""

import threading
from collections.abc import Callable
from typing import Any, SupportsInt

from lowlevel_reduce.simulator import SimulatedDriver

_LEGACY, _PER_THREAD = 1, 2

Key = int | tuple[int, int, int | None]
"""A stream's handle; of a default stream its context, its special handle and, of a thread's own, the thread."""


class Order:
    """Every launch, copy and free from now on, each with what is known to run before it.

    Attributes
    ----------
    works : list of (str, key)
        What was put into which stream, by the function's name; a piece of work is its place in this list.
    waits : list of (key, key)
        Which stream was made to wait for which, by an event.
    on_wait : callable
        Called with the key of each stream that a thread waits for, on that thread.
    """

    def __init__(self, driver: SimulatedDriver) -> None:
        self._driver = driver
        self._has: dict[Key, set[int]] = {}
        self._events: dict[int, tuple[Key, frozenset[int]]] = {}
        self._synchronized: set[int] = set()
        self._before: list[frozenset[int]] = []
        self.works: list[tuple[str, Key]] = []
        self.waits: list[tuple[Key, Key]] = []
        self.on_wait: Callable[[Key], object] = lambda key: None
        stream_of: tuple[tuple[str, Callable[..., Any]], ...] = (
            ("cuLaunchKernelEx", lambda config, *_: config.hStream),
            ("cuMemcpyAsync", lambda *each: each[3]),
            ("cuMemcpyDtoHAsync", lambda *each: each[3]),
            ("cuMemcpyPeerAsync", lambda *each: each[5]),
            ("cuMemFreeAsync", lambda _, stream: stream),
        )
        for name, stream_at in stream_of:
            self._wrap(name, lambda *each, name=name, stream_at=stream_at: self._work(name, stream_at(*each)))
        self._wrap("cuEventRecord", lambda event, stream: self._record(int(event), self.key(stream)))
        self._wrap("cuStreamWaitEvent", lambda stream, event, _: self._wait(self.key(stream), int(event)))
        self._wrap("cuStreamSynchronize", lambda stream: self._synchronize(self.key(stream)))

    def key(self, handle: SupportsInt | None) -> Key:
        """Return what tells the stream that a handle means here and now from others."""
        handle = int(handle or _LEGACY)
        if handle > _PER_THREAD:
            return handle
        context = int(self._driver._functions["cuCtxGetCurrent"]()[1])
        return context, handle, threading.get_ident() if handle == _PER_THREAD else None

    def before(self, first: int, second: int) -> bool:
        """Tell whether a piece of work is known to run before another."""
        return first in self._before[second]

    def last(self, name: str = "cuLaunchKernelEx") -> int:
        """Return the last piece of work of a function."""
        return max(place for place, (each, _) in enumerate(self.works) if each == name)

    def _wrap(self, name: str, note: Callable[..., None]) -> None:
        call = self._driver._functions[name]

        def noted(*each: Any) -> Any:
            result = call(*each)
            if not int(result[0]):
                note(*each)
            return result

        self._driver._functions[name] = noted

    def _all(self, key: Key) -> set[int]:
        """Return the set of what a stream has; what comes next into the legacy one is behind all blocking ones."""
        if isinstance(key, int):
            return self._has.setdefault(key, set())
        legacy = self._has.setdefault((key[0], _LEGACY, None), set())
        if key[1] == _PER_THREAD:
            return self._has.setdefault(key, set(legacy))
        blocking = [each for each in self._has if not isinstance(each, int) and each[0] == key[0]]
        legacy.update(*(self._has[each] for each in blocking))
        return legacy

    def _spread(self, key: Key) -> None:
        if not isinstance(key, int) and key[1] == _LEGACY:
            for each in self._has:
                if not isinstance(each, int) and each[0] == key[0]:
                    self._has[each] |= self._has[key]

    def _work(self, name: str, handle: SupportsInt | None) -> None:
        key = self.key(handle)
        has = self._all(key)
        self._before.append(frozenset(has | self._synchronized))
        has.add(len(self.works))
        self.works.append((name, key))
        self._spread(key)

    def _synchronize(self, key: Key) -> None:
        self._synchronized.update(self._all(key))
        self.on_wait(key)

    def _record(self, event: int, key: Key) -> None:
        self._events[event] = key, frozenset(self._all(key))
        self._spread(key)

    def _wait(self, key: Key, event: int) -> None:
        of, behind = self._events[event]
        self._all(key).update(behind)
        self._spread(key)
        self.waits.append((key, of))

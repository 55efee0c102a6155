"""Worlds for disturbed operations: a fresh simulated driver behind a valve, contexts, streams, and what is left.

The valve stands between the library and the driver. It counts the calls, can refuse them, and tells its guard when a
call begins and ends, so that whoever interrupts or starves the library can let each call be one step, as a call of
NVIDIA's driver is.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import logging
import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType
from typing import Any

import lowlevel_reduce
from lowlevel_reduce.calls import threads
from lowlevel_reduce.compiler.cache import VARIABLE
from lowlevel_reduce.driver import Context, Stream, binding
from lowlevel_reduce.simulator import SimulatedDriver, by_name
from lowlevel_reduce.simulator.driver.engine import Engine, default_engine
from lowlevel_reduce.simulator.machine.control.counters import Counters

__all__ = ["KERNELS", "Machine", "Valve", "World", "bare", "keep_kernels", "quiet", "where", "world"]

KERNELS = Path(__file__).resolve().parents[2] / ".cache" / "tests" / "kernels"
"""Where the tests keep what they compile, by all that it is made from."""

# Few multiprocessors, since some grids are as large as the device; two green shares of the least size fit.
SMALL = replace(by_name("H200"), multiprocessors=16, gpc_multiprocessors=(8, 8))

LIBRARY = str(Path(lowlevel_reduce.__file__).parent) + "/"

_TEXTS = frozenset({"cuGetErrorString", "cuGetErrorName"})
_NOUN_OF_RELEASE = {
    "cuLibraryUnload": "libraries",
    "cuMemFree": "allocations",
    "cuMemFreeAsync": "allocations",
    "cuMemFreeHost": "allocations",
    "cuStreamDestroy": "streams",
    "cuEventDestroy": "events",
    "cuGraphDestroy": "graphs",
    "cuGraphExecDestroy": "executable graphs",
    "cuCtxDestroy": "contexts",
    "cuGreenCtxDestroy": "contexts",
    "cuDevicePrimaryCtxRelease": "contexts",
    "cuMemPoolDestroy": "memory pools",
}
RELEASES = frozenset(_NOUN_OF_RELEASE)
"""The calls that let go of something: whoever refuses one keeps what it was to release."""
# Without these, which are tried twice, a release cannot be made.
AROUND_RELEASES = frozenset(
    {"cuCtxPushCurrent", "cuCtxPopCurrent", "cuThreadExchangeStreamCaptureMode", "cuCtxGetId", "cuStreamIsCapturing"}
)
_numbers = itertools.count(1)


def keep_kernels() -> None:
    """Let this process keep its kernels where the tests do, unless the environment names another place."""
    os.environ.setdefault(VARIABLE, str(KERNELS))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the library's log off the screen: what it reports of releases that fail is provoked here."""
    logger = logging.getLogger("lowlevel_reduce")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def bare(error: BaseException) -> BaseException:
    """Return an error without the frames that it and those before it hold, and with them what was made there."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


def where(error: BaseException) -> str:
    """Return where in the library an error was raised, in the words of a list; empty if it was elsewhere."""
    places = [each for each in traceback.extract_tb(error.__traceback__) if each.filename.startswith(LIBRARY)]
    return "".join(f", {each.filename.removeprefix(LIBRARY)}:{each.lineno} {each.name}" for each in places[-3:])


class Machine:
    """The simulator's machine, which parses a kernel once for all drivers, and runs kernels only if asked to.

    Attributes
    ----------
    runs : bool
        Whether launches run their kernels; without, they do nothing, and results are undefined.
    """

    def __init__(self) -> None:
        made = default_engine()
        self._run = made.run
        self.runs = True
        self.engine: Engine = replace(made, parse=functools.cache(made.parse), run=self._maybe)

        self._is_warm = False

    def warm(self) -> None:
        """Let the collector pass over what is there by now, when all operations were done: it is called for each trial.

        Kernels that are parsed are kept in any case, and modules imported.
        """
        if self._is_warm:
            return
        from tests.fuzz.operations import OPERATIONS

        self._is_warm = True
        for operation in OPERATIONS:
            with world(self) as one:
                operation(one)
        gc.collect()
        gc.freeze()

    def _maybe(self, launch: Any, memory: Any) -> Any:
        return self._run(launch, memory) if self.runs else Counters()


class Valve:
    """A driver as the library sees it, whose calls are counted and may be refused.

    Attributes
    ----------
    names : list of str
        The calls so far, without those that ask for the text of an error.
    refuse : callable or None
        Given a call's number, from 1, and its name: the result code to refuse it with, or None.
    refused : Counter
        How often which call was refused.
    begin, end : callable
        Called before and after each call of the driver.
    edge : code or None
        Of the function that calls them: what comes to its frame comes at the edge of a driver's call.
    """

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self.IMAGE = driver.IMAGE
        self.edge: CodeType | None = None
        self.refuse: Callable[[int, str], Any] | None = None
        self.begin: Callable[[], None] = nothing
        self.end: Callable[[], None] = nothing
        self.reset()

    def reset(self) -> None:
        """Count anew from the next call on."""
        self.names: list[str] = []
        self.refused: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        routine = getattr(self._driver, name)
        called = self._called(name, routine) if name.startswith("cu") else routine
        setattr(self, name, called)  # asked for once
        return called

    def _called(self, name: str, routine: Callable[..., Any]) -> Callable[..., Any]:
        counts, end = name not in _TEXTS, object()

        def is_given(arg: Any) -> bool:
            return arg is not end

        # As a function of the bindings it takes up to a dozen arguments without memory of Python's: a tuple of them
        # could fail to be made before `begin`, and nobody would know whether the driver was called.
        def called(
            a: Any = end, b: Any = end, c: Any = end, d: Any = end, e: Any = end, f: Any = end,
            g: Any = end, h: Any = end, i: Any = end, j: Any = end, k: Any = end, m: Any = end,
        ) -> Any:  # fmt: skip
            self.begin()
            try:
                args = tuple(itertools.takewhile(is_given, (a, b, c, d, e, f, g, h, i, j, k, m)))
                if counts:
                    self.names.append(name)
                    code = self.refuse and self.refuse(len(self.names), name)
                    if code:
                        self.refused[name] += 1
                        return code, None
                return routine(*args)
            finally:
                self.end()

        self.edge = called.__code__
        return called

    def excused(self, noun: str) -> int:
        """Return how many objects of a kind may be left, since the driver refused their release."""
        own = sum(count for name, count in self.refused.items() if _NOUN_OF_RELEASE.get(name) == noun)
        if noun == "contexts":
            own += self.refused["cuGreenCtxDestroy"]  # which keeps the primary one, too
        return own + sum(self.refused[name] for name in AROUND_RELEASES)


def nothing() -> None:
    """Do nothing."""


@dataclass
class World:
    """What an operation works with: two devices, a context on each, a stream in the first, and the valve.

    Another context than these is current all the while, as in a program that has its own.
    """

    driver: SimulatedDriver
    valve: Valve
    machine: Machine
    outer: Context
    context: Context
    stream: Stream
    beside: Context
    kept: list[Any] = field(default_factory=list)

    def left(self) -> Counter[str]:
        """Return how many objects of each kind exist, when nobody holds any that operations made."""
        gc.collect()
        return Counter(self.driver.leaks())

    def restore(self) -> bool:
        """Make the world's own context the only one that is current; tell whether it was so."""
        names = self.driver
        if int(names.cuStreamIsCapturing(self.stream.handle)[1]):  # the end of the capture was refused
            names.cuGraphDestroy(names.cuStreamEndCapture(self.stream.handle)[1])
        stack = []
        while handle := int(names.cuCtxGetCurrent()[1]):
            stack.append(handle)
            names.cuCtxPopCurrent()
        names.cuCtxPushCurrent(self.outer.handle)
        return stack == [self.outer.handle]


@contextlib.contextmanager
def world(machine: Machine) -> Iterator[World]:
    """Yield a fresh world, selected for the whole process; at the end all of it is closed."""
    name = f"fuzzed {next(_numbers)}"
    driver = SimulatedDriver(SMALL, devices=2, engine=machine.engine)
    valve = Valve(driver)
    binding.register(name, lambda: valve)
    with contextlib.ExitStack() as stack:
        stack.callback(binding.register, name, _ended)  # lets go of the driver and its memory
        stack.enter_context(binding.use(name))
        outer, context = (stack.enter_context(Context.create()) for _ in range(2))
        beside = stack.enter_context(Context.create(1))
        stream = stack.enter_context(Stream.create(context))
        stack.enter_context(outer.pushed())
        stack.callback(threads.here().forget)
        made = World(driver, valve, machine, outer, context, stream, beside)
        stack.callback(made.restore)
        valve.reset()
        yield made


def _ended() -> Any:
    raise ValueError("this driver was for a world that has ended")

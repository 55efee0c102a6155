"""Endurance: launches and one-shot calls without end, after which the process holds no more than soon after they began.

What is looked at is what Python has allocated, the sizes of all the library's own stores, and the driver's objects. The
fake driver runs no kernel, and keeps nothing of what was launched.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import random
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sized
from pathlib import Path
from typing import Any, NamedTuple, SupportsInt

import numpy as np
from cuda.bindings import driver as cu

import lowlevel_reduce as lr
from lowlevel_reduce.calls import forms, places, threads
from lowlevel_reduce.driver import Buffer, Context, Stream, binding, current, waits
from lowlevel_reduce.parts import groups
from tests.fuzz.tally import Tally
from tests.fuzz.worlds import Machine, world

sys.path.append(str(Path(__file__).resolve().parents[1] / "unit"))  # where pytest finds it by itself
from fake_driver import FakeDriver, Result

__all__ = ["Grown", "bound_launches", "one_shot_calls", "shapes", "simulated_launches"]

_numbers = itertools.count(1)


class Store(NamedTuple):
    """How much is in one of the library's stores, and the most that may be, if it has a bound."""

    size: int
    most: int | None = None


class Grown:
    """What has grown since this was made: Python's blocks and the library's stores.

    A store with a bound, which its module states in `BOUNDS`, may hold anything up to that: it is filled, emptied at
    once, and filled again. Others hold no more than they did.
    """

    def __init__(self) -> None:
        gc.collect()
        self._stores = stores()
        self._blocks = sys.getallocatedblocks()

    def found(self, calls: int) -> list[str]:
        """Return what has grown by more than chance, a sentence each: by a block in fifty calls, for one."""
        gc.collect()
        more = sys.getallocatedblocks() - self._blocks
        found = [f"{more} blocks more after {calls} calls"] if more > calls // 50 + 500 else []
        for name, (size, most) in stores().items():
            before = self._stores.get(name, Store(0)).size
            if most is None and size > before + 64:
                found.append(f"{name} has {size} items, and had {before}, after {calls} calls")
            elif most is not None and size > most:
                found.append(f"{name} has {size} items after {calls} calls, and is to have {most} at most")
        return found


_NO_STORES = (str, bytes, type, np.ndarray)


def stores() -> dict[str, Store]:
    """Return the library's module-level collections, its caches without a bound, and what threads and drivers keep."""
    found: dict[str, Store] = {}
    other_bounds: dict[str, int] = {}  # of what drivers, threads and groups keep
    for module in [name for name in sys.modules if name.split(".")[0] == "lowlevel_reduce"]:
        names = vars(sys.modules[module])
        bounds: dict[str, int] = names.get("BOUNDS", {})
        other_bounds |= {name: most for name, most in bounds.items() if name not in names}
        for name, value in list(names.items()):
            if hasattr(value, "cache_info") and getattr(value, "__module__", "") == module:
                if value.cache_info().maxsize is None:
                    found[f"{module}.{name}"] = Store(value.cache_info().currsize)
            elif isinstance(value, Sized) and not isinstance(value, _NO_STORES) and not name.startswith("__"):
                found[f"{module}.{name}"] = Store(len(value), bounds.get(name))
    thread = getattr(threads._threads, "kept", None)
    if thread is not None:
        for name in ("calls", "forms", "kinds", "spots", "problems", "others", "_met", "_places", "_streams"):
            found[f"{name} of the thread"] = Store(len(getattr(thread, name)), threads.BOUNDS.get(name))
        found["_kept by the waits of the thread"] = Store(len(thread.wait._kept), waits.BOUNDS["_kept"])
        found["push of the thread"] = Store(len(current._thread.push), current.BOUNDS["push"])
        for number, form in enumerate(thread.forms.values()):
            found[f"_choices of form {number}"] = Store(len(form._choices), forms.MAX_CHOICES)
        for number, kept in enumerate(thread.problems.values()):
            found[f"problems of place {number}"] = Store(len(kept), threads.MAX_PREPARED)
        for number, place in enumerate(thread._places.values()):
            found[f"_launchers of place {number}"] = Store(len(place._launchers), places.MAX_LAUNCHERS)
        for name, each in thread.others.items():
            found[f"{name} of the thread"] = Store(len(each), other_bounds.get(name))
    for number, (_, group) in enumerate(groups._of_engines.values()):
        for name in ("plans", "marks", "_letters"):
            found[f"{name} of group {number}"] = Store(len(getattr(group, name)), other_bounds.get(name))
    for name, value in binding.selected().kept.items():
        found[f"kept {name}"] = Store(len(value) if isinstance(value, Sized) else 0, other_bounds.get(name))
        for inner, each in _slots(value):
            found[f"kept {name}{inner}"] = Store(len(each))
    return found


def _slots(value: Any) -> Iterator[tuple[str, Sized]]:
    for name, each in getattr(value, "__dict__", {}).items():
        if isinstance(each, Sized):
            yield f".{name}", each


class _Sink(list[Any]):
    """Forgets what it is given."""

    def append(self, item: Any) -> None:
        """Forget it."""


class EnduringDriver(FakeDriver):
    """The fake driver, with every kernel, and without a memory of its calls, launches and freed allocations."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.launches = _Sink(), _Sink()
        self.launched = 0

    def cuLibraryGetKernel(self, library: SupportsInt, name: bytes) -> Result:  # noqa: N802 - the driver's name
        """Return a kernel by any name."""
        return cu.CUresult.CUDA_SUCCESS, cu.CUkernel(0xCE1)

    def cuCtxDestroy(self, handle: SupportsInt) -> Result:  # noqa: N802
        """End the context alone: a pool's memory outlives it."""
        return self._kill("context", handle)

    def cuStreamGetId(self, stream: SupportsInt) -> Result:  # noqa: N802
        """Return the handle as the number: none is used twice."""
        return cu.CUresult.CUDA_SUCCESS, int(stream)

    def cuPointerGetAttribute(self, attribute: Any, pointer: int) -> Result:  # noqa: N802
        """Return the only device that has memory here."""
        return cu.CUresult.CUDA_SUCCESS, 0

    def cuMemcpyDtoHAsync(  # noqa: N802
        self, destination: int, source: int, size: int, stream: SupportsInt
    ) -> Result:
        """Copy."""
        return self.cuMemcpyAsync(destination, source, size, stream)

    def cuLaunchKernelEx(self, config: Any, function: SupportsInt, pointers: int, extra: Any) -> Result:  # noqa: N802
        """Count the launch."""
        self.launched += 1
        return (cu.CUresult.CUDA_SUCCESS,)

    def _free(self, pointer: int) -> Result:
        self.memory.pop(int(pointer), None)
        return super()._free(pointer)


@contextlib.contextmanager
def _fake() -> Iterator[tuple[EnduringDriver, Stream]]:
    driver, name = EnduringDriver(), f"enduring {next(_numbers)}"
    binding.register(name, lambda: driver)
    with binding.use(name), Context.create() as context, context.pushed(), Stream.create(context) as stream:
        yield driver, stream
    binding.register(name, _ended)


def _ended() -> Any:
    raise ValueError("this driver was for an endurance that has ended")


def bound_launches(seed: int, count: int) -> Tally:
    """Launch a bound reduction on the fake driver."""
    tally = Tally("launches of a bound reduction, fake driver", seed)
    with _fake() as (driver, stream):
        with lr.plan("sum", shape=(1000,), dtype="float32", context=stream.context) as plan:
            with (
                Buffer.allocate(4096) as source,
                Buffer.allocate(8) as result,
                contextlib.closing(plan.bind(stream)) as bound,
            ):
                call = functools.partial(bound, source.pointer, result.pointer)
                _endure(tally, count, lambda number: call())
        if driver.launched < tally.tried:
            tally.lose(f"{driver.launched} of {tally.tried} launches came to the driver")
    return tally


def one_shot_calls(seed: int, count: int) -> Tally:
    """Reduce arrays of one shape after the other on the fake driver, each ten times."""
    tally = Tally("one-shot calls of many shapes, fake driver", seed)
    with _fake() as (driver, stream):
        draw, x, axis = shapes(seed), None, None

        def call(number: int) -> None:
            nonlocal x, axis
            if number % 10 == 0 or x is None:
                shape, axis = next(draw)
                x = lr.DeviceArray.empty(shape, np.float32, stream)
            lr.sum(x, axis=axis, stream=stream)

        _endure(tally, count, call)
        x = None
        if len(driver.living("memory")) > 1000:
            tally.lose(f"{len(driver.living('memory'))} allocations left after {tally.tried} calls")
    return tally


def simulated_launches(seed: int, count: int, machine: Machine | None = None) -> Tally:
    """Launch a bound reduction on the simulator, and look at its result in the end."""
    tally = Tally("launches of a bound reduction, simulator", seed)
    x = np.random.default_rng(seed).standard_normal(100).astype(np.float32)
    with world(machine or Machine()) as one:
        with lr.plan("sum", shape=x.shape, dtype="float32", context=one.context) as plan:
            source, value = lr.DeviceArray.from_numpy(x, one.stream), np.empty((), np.float32)
            with Buffer.allocate(4, one.context) as result, contextlib.closing(plan.bind(one.stream)) as bound:

                def call(number: int) -> None:
                    del one.valve.names[:]
                    bound(source.pointer, result.pointer)
                    if number % 1000 == 999:
                        result.copy_to(value)
                        if value.tobytes() != lr.tree.reduce(x).tobytes():
                            tally.lose(f"a wrong result after {number} launches")

                _endure(tally, count, call)
    return tally


def _endure(tally: Tally, count: int, call: Callable[[int], object]) -> None:
    """Call so often, and note what has grown; two tenths of the calls are traced, the first of them to fill caches."""
    tenth = count // 10
    numbers = iter(range(count))

    def some(calls: int) -> None:
        for number in itertools.islice(numbers, calls):
            call(number)

    some(tenth)
    tracemalloc.start()
    some(tenth)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    some(tenth)
    gc.collect()
    more = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    if more > tenth + 2**18:
        tally.lose(f"{more} bytes more after {tenth} calls")
    grown, rest = Grown(), count - 3 * tenth
    some(rest)
    tally.lost += grown.found(rest)
    tally.accept(count)


def shapes(seed: int) -> Iterator[tuple[tuple[int, ...], int | None]]:
    """Yield shapes and the axis that is reduced: lines, rows and columns, hardly one of them twice."""
    draw = random.Random(seed)
    while True:
        kind = draw.randrange(3)
        if kind == 0:
            yield (draw.randrange(1, 20_000),), None
        else:
            yield (draw.randrange(1, 200), draw.randrange(1, 200)), kind - 1

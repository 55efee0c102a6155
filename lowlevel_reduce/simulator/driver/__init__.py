"""The facade: an object that has the CUDA driver's functions by name, and runs kernels on a machine of NumPy."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable
from types import MethodType
from typing import Any, get_args, get_origin, get_type_hints

from cuda.bindings import driver as cu

from lowlevel_reduce.simulator.devices import H200, SimulatedDevice, by_name
from lowlevel_reduce.simulator.driver.contexts import Contexts
from lowlevel_reduce.simulator.driver.device import Devices
from lowlevel_reduce.simulator.driver.engine import Engine, default_engine
from lowlevel_reduce.simulator.driver.faults import Faults
from lowlevel_reduce.simulator.driver.graphs import Graphs
from lowlevel_reduce.simulator.driver.green import GreenContexts
from lowlevel_reduce.simulator.driver.launches import Launches
from lowlevel_reduce.simulator.driver.libraries import Libraries
from lowlevel_reduce.simulator.driver.memory import Memories
from lowlevel_reduce.simulator.driver.nodes import Nodes
from lowlevel_reduce.simulator.driver.occupancy import Occupancies
from lowlevel_reduce.simulator.driver.peers import Peers
from lowlevel_reduce.simulator.driver.pools import Pools
from lowlevel_reduce.simulator.driver.records import LaunchRecord
from lowlevel_reduce.simulator.driver.state import (
    INSTRUCTIONS_VARIABLE,
    LAUNCHES_KEPT,
    SEED_VARIABLE,
    Refusal,
    Seed,
    State,
)
from lowlevel_reduce.simulator.driver.streams import Events, Streams
from lowlevel_reduce.simulator.driver.turn import ReentrantCallError

__all__ = [
    "INSTRUCTIONS_VARIABLE",
    "LAUNCHES_KEPT",
    "SEED_VARIABLE",
    "Engine",
    "FunctionNotFoundError",
    "LaunchRecord",
    "ReentrantCallError",
    "Seed",
    "SimulatedDriver",
]

_NOUNS = (
    *(Devices, Contexts, GreenContexts, Streams, Events, Memories, Pools),
    *(Libraries, Occupancies, Launches, Graphs, Nodes, Peers),
)
_SUCCESS = cu.CUresult.CUDA_SUCCESS
_BEFORE_INIT = frozenset({"cuInit", "cuDriverGetVersion", "cuGetErrorString", "cuGetErrorName"})
_TEXTS = frozenset({"cuGetErrorString", "cuGetErrorName"})


class FunctionNotFoundError(RuntimeError):
    """A driver function is not simulated; raised when it is called, as by the bindings with an old driver."""


class SimulatedDriver:
    """A driver with simulated devices: every function takes and returns what its counterpart in the bindings does.

    Work runs as soon as it is put into a stream, in program order. A launch that may start before the kernel ahead of
    it has ended runs after it, too, but what it touches before its wait is checked against what that kernel did. If a
    kernel does something wrong, the launch raises the machine's fault, and the context stays usable. Threads may call
    concurrently; one call runs at a time, and what becomes of a call from within a call is said in ``turn``. Where the
    host's memory does not suffice, a call returns ``CUDA_ERROR_OUT_OF_MEMORY``, and nothing has changed.

    Parameters
    ----------
    device : SimulatedDevice or str
        The GPU to simulate.
    devices : int, optional
        How many such GPUs there are.
    seed : int, "environment" or None, optional
        Seed for a random order of the blocks and warps of a launch, and for when asynchronous copies arrive; None for
        their natural order, and for copies that arrive when they are waited for. By default the one in
        ``LOWLEVEL_REDUCE_SIMULATED_SEED``, which each launch reads, or None if it is not set.
    instructions : int, "environment" or None, optional
        How many instructions a launch may execute, counted once for all threads that execute one together; one that has
        not ended by then raises the machine's fault, which names the loop. None for 10 million. By default that of
        ``LOWLEVEL_REDUCE_SIMULATED_INSTRUCTIONS``, which each launch reads, or 10 million if it is not set.
    engine : Engine, optional
        A machine to use instead of the simulator's own.

    Attributes
    ----------
    IMAGE : str
        The format that its libraries are loaded from: "ptx".
    device : SimulatedDevice
        The GPU.
    launches : list of LaunchRecord
        The kernels that ran, oldest first; the last `LAUNCHES_KEPT` of them.
    calls : Counter
        How often each function was called.
    """

    IMAGE = "ptx"

    def __init__(
        self,
        device: SimulatedDevice | str = H200,
        *,
        devices: int = 1,
        seed: Seed = "environment",
        instructions: Seed = "environment",
        engine: Engine | None = None,
    ) -> None:
        self.device = by_name(device) if isinstance(device, str) else device
        self.calls: Counter[str] = Counter()
        self._state = State(self.device, engine or default_engine(), seed, devices, instructions)
        self._faults = Faults()
        self._lock = threading.RLock()
        self._functions = {name: self._function(name, routine) for name, routine in _routines(self._state)}

    def __getattr__(self, name: str) -> Any:
        # Called only for names that are not attributes. A function of the bindings that is not simulated is refused
        # when it is called.
        found = self.__dict__.get("_functions", {}).get(name)
        if found is not None:
            return found
        if not name.startswith("cu") or not hasattr(cu, name):
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
        return functools.partial(_not_found, name)

    @property
    def launches(self) -> list[LaunchRecord]:
        """The last kernels that ran, oldest first."""
        return list(self._state.launches)

    def counters(self) -> dict[str, Any]:
        """Return the counters of every kernel that ran by its name, each added up over the kernel's launches."""
        with self._lock:
            return self._state.counters()

    @property
    def call_count(self) -> int:
        """The number of calls so far that count for `fail`: all but those that ask for the text of an error."""
        return sum(count for name, count in self.calls.items() if name not in _TEXTS)

    def leaks(self) -> dict[str, int]:
        """Return how many contexts, streams, events, allocations, libraries, graphs and executables still exist."""
        with self._lock:
            self._state.turn.settle()
            return self._state.leaks()

    def fail(self, k: int, code: Any) -> None:
        """Make the `k`-th call from now on return `code` without doing anything; the next call is number 1.

        Parameters
        ----------
        k : int
            Which call; calls that ask for the text of an error do not count.
        code : CUresult, int or str
            The result code, by value or by name.
        """
        with self._lock:
            self._faults.add(None, k, code)

    def fail_call(self, name: str, nth: int, code: Any) -> None:
        """Make the `nth` call of the function `name` from now on return `code` without doing anything."""
        with self._lock:
            self._faults.add(name, nth, code)

    def _function(self, name: str, routine: MethodType) -> Callable[..., Any]:
        nothing = _values(routine.__func__)

        def called(*args: Any) -> tuple[Any, ...]:
            with self._lock:
                answer = self._call(name, routine, nothing, args)  # not returned from here: see `Turn.take`
            return answer

        called.__name__ = name
        return called

    def _call(self, name: str, routine: Callable[..., Any], nothing: int, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return self._state.turn.take(name, lambda: self._answer(name, routine, nothing, args))

    def _answer(self, name: str, routine: Callable[..., Any], nothing: int, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.calls[name] += 1
        code = None if name in _TEXTS else self._faults.due(name)
        if code is None and not self._state.initialised and name not in _BEFORE_INIT:
            code = cu.CUresult.CUDA_ERROR_NOT_INITIALIZED
        if code is None:
            try:
                value = routine(*args)
            except Refusal as refusal:
                code = refusal.code
            except MemoryError:  # NumPy's among them: the host's memory is the device's
                code = cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
            else:
                return (_SUCCESS, *_spread(value, nothing))
        return (code, *(None,) * nothing)


def _routines(state: State) -> list[tuple[str, MethodType]]:
    nouns = [noun(state) for noun in _NOUNS]
    return [(name, getattr(noun, name)) for noun in nouns for name in dir(noun) if name.startswith("cu")]


@functools.cache  # evaluating the annotations of all routines takes 30 ms, and tests make many drivers
def _values(function: Callable[..., Any]) -> int:
    """Return how many values a routine returns besides its result code, according to its annotation."""
    answer = get_type_hints(function)["return"]
    return 0 if answer is type(None) else len(get_args(answer)) if get_origin(answer) is tuple else 1


def _spread(value: Any, count: int) -> tuple[Any, ...]:
    return () if count == 0 else (value,) if count == 1 else tuple(value)


def _not_found(name: str, *args: Any) -> None:
    raise FunctionNotFoundError(f"function {name} is not found: it is not simulated")

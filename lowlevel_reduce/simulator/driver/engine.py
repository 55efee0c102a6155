"""What the facade needs from the machine behind it: a parser, memory, and a way to run a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

__all__ = ["Allocation", "Engine", "KernelCode", "Memory", "Parameter", "default_engine", "watched_engine"]


class Parameter(Protocol):
    """One parameter of a kernel: its place in the parameter block."""

    @property
    def size(self) -> int:
        """Size in bytes."""

    @property
    def offset(self) -> int:
        """Offset from the beginning of the block, in bytes."""


class KernelCode(Protocol):
    """A parsed kernel and what it declares."""

    @property
    def name(self) -> str:
        """The entry's name."""

    @property
    def parameters(self) -> Sequence[Parameter]:
        """The parameters, in order."""

    @property
    def static_shared_bytes(self) -> int:
        """Bytes of shared memory that it declares for a block."""

    @property
    def local_bytes(self) -> int:
        """Bytes of local memory that it declares for a thread."""

    @property
    def max_threads(self) -> int:
        """The most threads of a block by its launch bounds; 1024 without launch bounds."""

    @property
    def min_blocks(self) -> int:
        """The least blocks per multiprocessor by its launch bounds; 0 if they give none."""

    @property
    def registers(self) -> Mapping[str, str]:
        """The type of each virtual register, by its name."""


class Allocation(Protocol):
    """One allocation of the device's memory."""

    @property
    def base(self) -> int:
        """Its first address."""

    @property
    def size_bytes(self) -> int:
        """Its size in bytes."""

    @property
    def freed(self) -> bool:
        """Whether it was freed."""


class Memory(Protocol):
    """The device's memory, at simulated addresses."""

    def allocate(self, size_bytes: int, *, alignment: int = 256) -> int:
        """Return the address of newly allocated memory."""

    def free(self, address: int) -> None:
        """Free an allocation."""

    def reserve(self, size_bytes: int, owner: object, *, alignment: int = 256) -> int:
        """Return an address at which `revive` brings about memory, as often as it was freed, while `owner` lives."""

    def revive(self, address: int) -> None:
        """Allocate memory at a reserved address, with undefined content."""

    def read(self, address: int, size: int) -> bytes:
        """Return bytes."""

    def write(self, address: int, data: bytes) -> None:
        """Set bytes."""

    def fill(self, address: int, byte: int, size: int) -> None:
        """Set every byte to one value."""

    def copy(self, dst: int, src: int, size: int) -> None:
        """Copy within the device."""

    def find(self, address: int) -> Allocation | None:
        """Return the allocation that contains an address, None if there is none."""


def _place_nothing(module: Any, memory: Memory) -> Mapping[str, int]:
    """Place the variables of a module that has none."""
    del module, memory
    return {}


def _trace_nothing(before: Sequence[Any]) -> Any:
    """Return no trace: the machine checks nothing about launches that overlap."""
    del before


@dataclass(frozen=True)
class Engine:
    """A machine, as six functions.

    Attributes
    ----------
    parse : callable
        Turns PTX text into an object whose ``kernels`` are `KernelCode` by name.
    memory : callable
        Makes the memory of one device.
    launch : callable
        Makes a launch from its parts, passed as keyword arguments.
    run : callable
        Runs a launch on a memory and returns its counters.
    place : callable
        Places a parsed module's variables in a memory and returns their addresses by name.
    trace : callable
        Makes what a launch is noted in, given the traces of those launches in front of which it may start; its method
        ``finish`` is called when the host has waited for the launch. None if nothing is noted.
    """

    parse: Callable[[str], Any]
    memory: Callable[[], Memory]
    launch: Callable[..., Any]
    run: Callable[[Any, Any], Any]
    place: Callable[[Any, Memory], Mapping[str, int]] = _place_nothing
    trace: Callable[[Sequence[Any]], Any] = _trace_nothing


def default_engine() -> Engine:
    """Return the simulator's own machine."""
    from lowlevel_reduce.simulator import machine, ptx  # noqa: PLC0415 - a facade can be made with another
    from lowlevel_reduce.simulator.ptx import code  # noqa: PLC0415 - a facade can be made with another

    def _place(module: code.Module, memory: Memory) -> Mapping[str, int]:
        return machine.place_variables(module.variables, memory)

    return Engine(ptx.parse, machine.GlobalMemory, machine.Launch, machine.run, _place, machine.Trace)


def watched_engine(watch: Any) -> Engine:
    """Return the simulator's own machine with somebody who sees every instruction: a ``machine.watch.Watch``."""
    engine = default_engine()
    return replace(engine, launch=partial(engine.launch, watch=watch))

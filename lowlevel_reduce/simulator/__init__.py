"""A driver without a GPU: NVRTC's PTX run by NumPy, behind the driver's own functions; used only on request.

The driver layer knows it as "simulator", so ``LOWLEVEL_REDUCE_DRIVER=simulator`` selects it; its device is the one that
``LOWLEVEL_REDUCE_SIMULATED_DEVICE`` names, by default an H200. `use` selects a fresh one for a ``with`` block.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lowlevel_reduce.driver import binding
from lowlevel_reduce.simulator import report
from lowlevel_reduce.simulator.devices import SimulatedDevice, by_name, device_names
from lowlevel_reduce.simulator.driver import (
    INSTRUCTIONS_VARIABLE,
    SEED_VARIABLE,
    LaunchRecord,
    ReentrantCallError,
    Seed,
    SimulatedDriver,
)
from lowlevel_reduce.simulator.driver.engine import watched_engine

if TYPE_CHECKING:  # the machine is imported with the first driver
    from lowlevel_reduce.simulator.machine.watch import Watch

__all__ = [
    "DEVICE_VARIABLE",
    "INSTRUCTIONS_VARIABLE",
    "SEED_VARIABLE",
    "LaunchRecord",
    "ReentrantCallError",
    "SimulatedDevice",
    "SimulatedDriver",
    "by_name",
    "counters",
    "counters_table",
    "device_names",
    "selected",
    "use",
]

DEVICE_VARIABLE = "LOWLEVEL_REDUCE_SIMULATED_DEVICE"
"""Environment variable that names the device of the driver "simulator"; read at that driver's first use."""

_NAME = "simulator"
_numbers = itertools.count(1)
_drivers: dict[str, SimulatedDriver] = {}  # by the name under which the driver layer knows them


@contextmanager
def use(
    name: str = "H200",
    *,
    devices: int = 1,
    seed: Seed = "environment",
    instructions: Seed = "environment",
    watch: Watch | None = None,
) -> Iterator[SimulatedDriver]:
    """Select a fresh simulated driver inside the block, for the whole process; yields it.

    Parameters
    ----------
    name : str
        One of `device_names`.
    devices : int, optional
        How many such devices there are, each with its own contexts, pools and memory. Kernels are not prevented from
        accessing the memory of a device for which peer access is not enabled.
    seed : int, "environment" or None, optional
        Seed for a random order of the blocks and warps of a launch, and for when asynchronous copies arrive; None for
        their natural order, and for copies that arrive when they are waited for. By default the one in
        ``LOWLEVEL_REDUCE_SIMULATED_SEED``, which each launch reads, or None if it is not set.
    instructions : int, "environment" or None, optional
        How many instructions a launch may execute, counted once for all threads that execute one together, so that a
        kernel that never ends is a fault: `KernelFault` names its loop. None for 10 million. By default the number in
        ``LOWLEVEL_REDUCE_SIMULATED_INSTRUCTIONS``, which each launch reads, or 10 million if it is not set.
    watch : Watch, optional
        Who sees every instruction of every launch; see ``machine.watch``. That makes launches several times slower.

    Raises
    ------
    ValueError
        If no such device can be simulated.
    """
    engine = None if watch is None else watched_engine(watch)
    driver = SimulatedDriver(by_name(name), devices=devices, seed=seed, instructions=instructions, engine=engine)
    # A name of its own: what is kept by the driver's name, such as loaded kernels, is not shared with other drivers.
    own = f"{_NAME} {driver.device.key} #{next(_numbers)}"
    _drivers[own] = driver
    binding.register(own, lambda: _drivers[own])
    try:
        with binding.use(own):
            yield driver
    finally:
        del _drivers[own]
        binding.register(own, _ended)  # lets go of the driver and its memory


def selected() -> SimulatedDriver:
    """Return the simulated driver that calls go to.

    Raises
    ------
    ValueError
        If calls go to another driver.
    """
    name = binding.selected().name
    if name not in _drivers:
        raise ValueError(f"calls go to the driver {name!r}, which is not simulated")
    return _drivers[name]


def counters() -> dict[str, Any]:
    """Return the counters of the selected simulated driver by kernel name, each added up over the kernel's launches."""
    return selected().counters()


def counters_table() -> str:
    """Return `counters` as a readable table in plain text, with a dash where a time would be."""
    return report.counters_table(counters())


def by_environment() -> SimulatedDriver:
    """Return a fresh driver of the device that the environment names, by default an H200."""
    try:
        device = by_name(os.environ.get(DEVICE_VARIABLE) or "H200")
    except ValueError as error:
        raise ValueError(f"{DEVICE_VARIABLE}: {error}") from None
    driver = _drivers[_NAME] = SimulatedDriver(device)
    return driver


def _ended() -> SimulatedDriver:
    raise ValueError("this simulated driver was for a block that has ended")

"""Where a command runs: on a GPU, or on a simulated one, on request or as a substitute for a missing GPU."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from lowlevel_reduce import driver, simulator
from lowlevel_reduce.driver import Context, binding

__all__ = ["Session", "Target", "open_session", "simulated"]


class Target(str, Enum):
    """The values of ``--device``."""

    cuda = "cuda"
    simulator = "simulator"


@dataclass(frozen=True)
class Session:
    """An open context to run in.

    Attributes
    ----------
    context : Context
        The primary context of device 0, current.
    simulated : bool
        Whether the device is simulated: then there are counters but no times.
    note : str or None
        The first line to print if the device is simulated: which device, and why.
    """

    context: Context
    simulated: bool
    note: str | None


@contextlib.contextmanager
def open_session(target: Target | None) -> Iterator[Session]:
    """Open the device that a command runs on, and close it after the block.

    Parameters
    ----------
    target : Target, optional
        By default the driver that the environment selects; if that cannot be used, a simulated device.

    Raises
    ------
    NoDriverError
        If a GPU was requested and there is no driver.
    ValueError
        If the environment names a driver or a device that does not exist.
    """
    with contextlib.ExitStack() as stack:
        why = _enter_driver(stack, target)
        context = stack.enter_context(Context.primary())
        stack.enter_context(context.pushed())
        yield Session(
            context, simulated=why is not None, note=None if why is None else f"simulated {context.device.name}: {why}"
        )


def simulated() -> bool:
    """Tell whether the currently selected driver is a simulated one."""
    try:
        simulator.selected()
    except ValueError:
        return False
    return True


def _enter_driver(stack: contextlib.ExitStack, target: Target | None) -> str | None:
    """Select the driver; return why it is a simulated one, or None if it is not."""
    if target is Target.cuda:
        stack.enter_context(binding.use("cuda"))
        return None
    missing = driver.why_unavailable() if target is None else None
    if target is Target.simulator or missing is not None:
        stack.enter_context(simulator.use(os.environ.get(simulator.DEVICE_VARIABLE) or "H200"))
        return missing or "as asked"
    return f"{binding.VARIABLE} says so" if simulated() else None

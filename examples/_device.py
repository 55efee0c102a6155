"""Shared by the examples: they run on a GPU if there is one, else on a simulated one, and say so in the first line."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from lowlevel_reduce import driver, simulator


@contextlib.contextmanager
def any_device(devices: int = 1) -> Iterator[bool]:
    """Select simulated GPUs for the block, so many, if there is no real one; yields whether the GPU is simulated."""
    missing = driver.why_unavailable()
    if missing is None:
        simulated = driver.binding.selected().image == "ptx"
        if simulated:
            print(f"simulated {driver.Device(0).name}: {driver.binding.VARIABLE} says so")
        yield simulated
        return
    with simulator.use(os.environ.get(simulator.DEVICE_VARIABLE) or "H200", devices=devices) as chosen:
        print(f"simulated {chosen.device.name}: {missing}")
        yield True

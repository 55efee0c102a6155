"""The machine that executes PTX: all threads in flight at once, and one NumPy array for each register."""

from __future__ import annotations

from lowlevel_reduce.simulator.machine.control.counters import Counters
from lowlevel_reduce.simulator.machine.control.engine import run
from lowlevel_reduce.simulator.machine.control.faults import KernelFault
from lowlevel_reduce.simulator.machine.control.flight import Launch
from lowlevel_reduce.simulator.machine.memory.spaces import Allocation, GlobalMemory
from lowlevel_reduce.simulator.machine.races.prerequisites import Trace
from lowlevel_reduce.simulator.ptx.variables import place_variables

__all__ = ["Allocation", "Counters", "GlobalMemory", "KernelFault", "Launch", "Trace", "place_variables", "run"]

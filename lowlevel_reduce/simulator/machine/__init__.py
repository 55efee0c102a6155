"""The machine that executes PTX: all threads in flight at once, and one NumPy array for each register."""

from __future__ import annotations

from lowlevel_reduce.simulator.machine.counters import Counters
from lowlevel_reduce.simulator.machine.engine import run
from lowlevel_reduce.simulator.machine.faults import KernelFault
from lowlevel_reduce.simulator.machine.flight import Launch
from lowlevel_reduce.simulator.machine.memory import Allocation, GlobalMemory
from lowlevel_reduce.simulator.machine.prerequisites import Trace
from lowlevel_reduce.simulator.ptx_variables import place_variables

__all__ = ["Allocation", "Counters", "GlobalMemory", "KernelFault", "Launch", "Trace", "place_variables", "run"]

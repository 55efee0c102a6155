"""The ladder: the steps from one atomic per element to the memory roof; one file for each rung, and one runner.

>>> from lowlevel_reduce.ladder import RUNGS, iterate
>>> for record in iterate([RUNGS["v0_atomic"], RUNGS["v6_block_atomic"]], n=1 << 24, context=context):
...     print(record.rung, record.gb_per_s)

The kernels are in ``cuda_src/ladder``. They are meant to be read one at a time: each file is complete in itself.
"""

from lowlevel_reduce.ladder.record import Record
from lowlevel_reduce.ladder.registry import RUNGS, SYSTEMS, Rung, System, rung_before
from lowlevel_reduce.ladder.runner import iterate, run
from lowlevel_reduce.ladder.study import KernelFacts, rung_prose, rung_resources, source_diff

__all__ = [
    "RUNGS",
    "SYSTEMS",
    "KernelFacts",
    "Record",
    "Rung",
    "System",
    "iterate",
    "run",
    "rung_before",
    "rung_prose",
    "rung_resources",
    "source_diff",
]

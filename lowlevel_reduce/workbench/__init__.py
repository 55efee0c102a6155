"""One's own kernels: compiled with their lines, run on the simulator, and told at those lines what is wrong and slow.

>>> from pathlib import Path
>>> from lowlevel_reduce.workbench import LaunchOptions, examine, read_source
>>> source = read_source(Path("mine.cu"), "sm_90")
>>> kernel = source.kernel(None)
>>> for finding in examine(source, kernel, None, 4099, LaunchOptions()).findings:
...     print(finding.place, finding.kind, finding.message)
"""

from lowlevel_reduce.workbench.convention import Convention
from lowlevel_reduce.workbench.examine import Examined, examine, time_us
from lowlevel_reduce.workbench.findings import Finding, Place
from lowlevel_reduce.workbench.launching import LaunchOptions
from lowlevel_reduce.workbench.program import OwnKernel, OwnSource, read_source

__all__ = [
    "Convention",
    "Examined",
    "Finding",
    "LaunchOptions",
    "OwnKernel",
    "OwnSource",
    "Place",
    "examine",
    "read_source",
    "time_us",
]

"""Imports what a process's first call needs, 20 ms of modules: a thread does, while the driver makes a context.

Where nothing is compiled yet it loads the compiler as well.
"""

from lowlevel_reduce.calls import forms
from lowlevel_reduce.compiler import installed_kernels
from lowlevel_reduce.compiler.readiness import ready_compiler
from lowlevel_reduce.compiler.sources import source_tree

__all__ = ["HEADERS", "forms", "installed_kernels", "ready_compiler", "source_tree"]

HEADERS = '#include "operators.cuh"\n#include "tree/grid.cuh"\n#include "tree/overlap.cuh"\n'
"""What kernels include: all of them the first, and those of whole arrays all but their own."""

if installed_kernels() is not None:
    import lzma  # noqa: F401 - which unpacks what the package has

source_tree().likely_digest(HEADERS)
ready_compiler(HEADERS)

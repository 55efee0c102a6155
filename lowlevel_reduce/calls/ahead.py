"""Imports what a process's first call needs, 20 ms of modules: a thread does, while the driver makes a context."""

from lowlevel_reduce.calls import forms
from lowlevel_reduce.compiler import installed_kernels
from lowlevel_reduce.compiler.sources import source_tree

__all__ = ["forms", "installed_kernels", "source_tree"]

if installed_kernels() is not None:
    import lzma  # noqa: F401 - which unpacks what the package has

source_tree().likely_digest('#include "operators.cuh"\n')  # every kernel includes it: its headers are read then

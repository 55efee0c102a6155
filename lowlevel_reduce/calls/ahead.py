"""Imports what a process's first call needs, 20 ms of modules: a thread does, while the driver makes a context."""

from lowlevel_reduce.calls import forms
from lowlevel_reduce.compiler import installed_kernels

__all__ = ["forms", "installed_kernels"]

if installed_kernels() is not None:
    import lzma  # noqa: F401 - which unpacks what the package has

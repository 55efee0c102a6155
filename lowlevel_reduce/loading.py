"""Kernels compiled and loaded once per process and architecture, and shared by the plans that use them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from lowlevel_reduce.compiler import Cubin, Output, Program, Resources, compile_program
from lowlevel_reduce.driver import Kernel, Library, binding
from lowlevel_reduce.kernels import OPTIONS, KernelSource

__all__ = ["LoadedKernel", "load_kernel"]

MAX_LOADED = 256
"""Kernels kept when no plan uses them any more; the least recently used is unloaded first."""


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel and what the compiler says it uses; None for PTX, which nothing has assembled."""

    kernel: Kernel
    resources: Resources | None
    from_cache: bool


_lock = threading.Lock()
_loaded: OrderedDict[tuple[binding.Implementation, str, str], LoadedKernel] = OrderedDict()


def load_kernel(source: KernelSource, architecture: str) -> LoadedKernel:
    """Return the kernel, compiling or loading it if this process has not done so. Threads may call this at once.

    Parameters
    ----------
    source : KernelSource
        What `kernels.kernel_sources` made.
    architecture : str
        The device's, e.g. ``"sm_90"``.

    Raises
    ------
    CompileError, NoCompilerError, CacheError
        From the compiler.
    CudaError
        If the driver does not take the cubin.
    """
    driver = binding.selected()
    key = (driver, architecture, source.text)
    with _lock:
        found = _loaded.get(key)
        if found is not None:
            _loaded.move_to_end(key)
            return found
    output: Output = "ptx" if driver.image == "ptx" else "cubin"
    cubin = compile_program(Program(source.entry, source.text, options=OPTIONS), architecture, output=output)
    fresh = _load(cubin, source.entry)
    with _lock:
        # Another thread may have been faster: its kernel is used, and this one unloads itself.
        kept = _loaded.setdefault(key, fresh)
        while len(_loaded) > MAX_LOADED:
            _loaded.popitem(last=False)
        return kept


def _load(cubin: Cubin, entry: str) -> LoadedKernel:
    library = Library.load(cubin.data, name=entry)
    return LoadedKernel(library.kernel(entry), cubin.kernels.get(entry), cubin.from_cache)

"""Kernels compiled and loaded once per process and architecture, and shared by the plans that use them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from lowlevel_reduce.driver import Kernel, Library, binding
from lowlevel_reduce.errors import ReduceError
from lowlevel_reduce.strategy.stubs import OPTIONS, KernelSource

if TYPE_CHECKING:
    from lowlevel_reduce.compiler import Cubin, DiskCache, Output, Resources, SourceTree

__all__ = ["LoadedKernel", "compile_kernel", "load_beside", "load_kernel", "processors"]

MAX_LOADED = 256
"""How many kernels are kept loaded even if nothing uses them any more; the least recently used are dropped first."""


class LoadedKernel(NamedTuple):
    """A loaded kernel, the resources that the compiler reports (None for PTX, which is not assembled), its origin."""

    kernel: Kernel
    resources: Resources | None
    from_cache: bool


_lock = threading.RLock()  # reentrant: a signal handler may need a kernel while this thread holds the lock
_KEPT = "loaded kernels"

BOUNDS = {_KEPT: MAX_LOADED}
"""The most entries of what is kept here, by its name: who watches for growth tells it from what has no bound."""


def _in_child() -> None:
    global _lock  # noqa: PLW0603 - another thread of the parent may have held it at the fork
    _lock = threading.RLock()


binding.after_fork(_in_child)


def load_kernel(source: KernelSource, architecture: str, *, cubin: Cubin | None = None) -> LoadedKernel:
    """Return the kernel, compiling and loading it if this process has not done so. Threads may call this concurrently.

    Parameters
    ----------
    source : KernelSource
        A kernel's source, as `kernels.kernel_sources` returns it.
    architecture : str
        The device's architecture, e.g. ``"sm_90"``.
    cubin : Cubin, optional
        What `compile_kernel` returned for the two, if the caller has it.

    Raises
    ------
    CompileError, NoCompilerError, CacheError
        From the compiler.
    CudaError
        If the driver refuses to load the cubin.
    """
    driver = binding.selected()
    key = (architecture, source.text)
    with _lock:
        loaded: OrderedDict[tuple[str, str], LoadedKernel] = driver.kept.setdefault(_KEPT, OrderedDict())
        found = loaded.get(key)
        if found is not None:
            loaded.move_to_end(key)
            return found
    if cubin is None:
        cubin = compile_kernel(source, architecture, output="ptx" if driver.image == "ptx" else "cubin")
    fresh = _load(cubin, source.entry)
    with _lock:
        # Another thread may have been faster: then its kernel is used, and the one loaded here unloads itself.
        kept = loaded.setdefault(key, fresh)
        while len(loaded) > MAX_LOADED:
            loaded.popitem(last=False)
        return kept


def load_beside(source: KernelSource, architecture: str) -> Callable[[], None]:
    """Have a thread load a kernel while the caller loads another: NVRTC compiles in several threads at once.

    Returns
    -------
    callable
        Waits for the thread, and tells of no error: who then calls `load_kernel` for the kernel meets it again.
    """

    def load() -> None:
        with contextlib.suppress(ReduceError, Warning):  # the latter where a filter makes errors of warnings
            load_kernel(source, architecture)

    thread = threading.Thread(target=load, name="load a kernel")
    thread.start()
    return thread.join


def compile_kernel(
    source: KernelSource,
    architecture: str,
    *,
    output: Output = "cubin",
    into: DiskCache | None = None,
    tree: SourceTree | None = None,
    options: tuple[str, ...] = OPTIONS,
) -> Cubin:
    """Return the kernel, compiled for the most blocks per multiprocessor with which the compiler spills no registers.

    How many registers an operator takes is not known beforehand, least of all for a user's operator. Every attempt is
    cached, or stored in the directory of prebuilt kernels `into`, because a later call makes the same attempts again.
    The installed package of kernels has the last attempt alone, and says of those before it that they spill. Headers
    come from `tree`, by default this installation's ``cuda_src``.

    Raises
    ------
    CompileError, NoCompilerError, CacheError
        From the compiler.
    """
    from lowlevel_reduce.compiler import Program, compile_program, is_known_to_spill  # noqa: PLC0415 - at the first

    asks_installed = into is None and tree is None and output == "cubin"
    for left, text in zip(range(len(source.spare), -1, -1), (source.text, *source.spare), strict=True):
        program = Program(source.entry, text, options=options)
        if left and asks_installed and is_known_to_spill(program, architecture):
            continue
        cubin = compile_program(program, architecture, output=output, into=into, tree=tree)
        resources = cubin.kernels.get(source.entry)
        if resources is None or not resources.spill_store_bytes:
            break
    return cubin


def processors() -> int:
    """Return how many processors this process may use, to compile on each."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _load(cubin: Cubin, entry: str) -> LoadedKernel:
    library = Library.load(cubin.data, name=entry)
    return LoadedKernel(library.kernel(entry), cubin.kernels.get(entry), cubin.from_cache)

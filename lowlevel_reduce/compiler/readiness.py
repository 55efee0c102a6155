"""Readies the compiler while a process waits for its first context, where its first kernel has to be compiled."""

from __future__ import annotations

import os

from lowlevel_reduce.compiler import nvrtc
from lowlevel_reduce.compiler.cache import open_cache, open_prebuilt
from lowlevel_reduce.compiler.installed import installed_kernels
from lowlevel_reduce.compiler.sources import source_tree

__all__ = ["is_nothing_compiled", "ready_compiler"]


def is_nothing_compiled() -> bool:
    """Tell whether no kernel is there to be found: none installed, no directory of prebuilt ones, and none cached.

    Raises
    ------
    CacheError
        If what the environment names is no directory, or this user has none for a cache.
    """
    if installed_kernels() is not None or open_prebuilt() is not None:
        return False
    cache = open_cache()
    return cache is None or not _has_code(cache.directory)


def ready_compiler(source: str) -> None:
    """Load NVRTC, and read the headers that a source includes, if the first kernel certainly has to be compiled.

    That takes 100 ms on the host of an H200, four fifths of them the library: a fifth of what a first result waited for
    with an empty cache. Where anything is compiled already, nothing is done: the first kernel may be there, and
    then NVRTC is never needed.

    Raises
    ------
    NoCompilerError, CacheError, CompileError
        What the first call meets as well.
    """
    if is_nothing_compiled():
        source_tree().closure("ahead.cu", source)
        nvrtc.load()


def _has_code(directory: str) -> bool:
    """Tell whether a directory has an entry of code, read or not; the record of a compiler is none."""
    try:
        with os.scandir(directory) as found:
            return any(item.name.startswith(("cubin-", "ptx-")) for item in found)
    except OSError:  # missing or inaccessible, so that nothing is found there later either
        return False

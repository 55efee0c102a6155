"""Tells which NVRTC compiles here, without loading it if an earlier process has left a record.

A cache key contains NVRTC's version, and loading 60 to 100 MB of compiler to learn it would cost a hundred times the
rest of a lookup. The record is stored under a fingerprint of everything that decides which file is loaded. It is valid
as long as that file and its directory are unchanged.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from lowlevel_reduce.compiler import nvrtc
from lowlevel_reduce.compiler.cache import DiskCache, make_key
from lowlevel_reduce.errors import CacheError

__all__ = ["Toolchain", "ask", "fingerprint", "identify", "recall"]

# The distributions that contain NVRTC or choose which one is loaded, by the names of their metadata directories.
_DISTRIBUTIONS = (
    "nvidia_cuda_nvrtc",
    "nvidia_cuda_nvrtc_cu12",
    "nvidia_cuda_nvrtc_cu13",
    "cuda_bindings",
    "cuda_pathfinder",
)
_METADATA = (".dist-info", ".egg-info")
_VARIABLES = ("CUDA_PATH", "CUDA_HOME", "CONDA_PREFIX", "LD_LIBRARY_PATH")
if sys.platform == "win32":
    _VARIABLES = (*_VARIABLES, "PATH")  # where Windows looks for DLLs
_LINKER_CACHE = "/etc/ld.so.cache"  # rewritten whenever a system-wide library is installed or removed


class Toolchain(NamedTuple):
    """The properties of a compiler on which a cubin depends.

    Attributes
    ----------
    version : (int, int)
        NVRTC's version.
    library_bytes : int
        Size of its library, 0 if the file is not known. Patch releases share a version but differ in size: a
        miscompilation that one of them fixed must not survive in the cache.
    """

    version: tuple[int, int]
    library_bytes: int

    def __str__(self) -> str:
        return f"{self.version[0]}.{self.version[1]}/{self.library_bytes}"


def identify(cache: DiskCache | None) -> Toolchain:
    """Return the NVRTC that this process compiles with: from the record if there is a valid one, else by loading it.

    An NVRTC that is already loaded is asked directly, whoever loaded it; and so is NVRTC if there is no cache.
    """
    if cache is not None and not nvrtc.is_loaded():
        recorded = recall(cache)
        if recorded is not None:
            return recorded
    return ask(cache)


def ask(cache: DiskCache | None) -> Toolchain:
    """Load NVRTC, ask it for its version, and leave a record for later processes."""
    library = nvrtc.load()
    file = None if library.path is None else _describe_file(library.path)
    toolchain = Toolchain(library.version, 0 if file is None else file["size"])
    # An NVRTC that other code had loaded is not recorded: in the next process, the environment may choose another one.
    if cache is not None and file is not None and library.chosen and recall(cache) != toolchain:
        _record(cache, {"version": list(library.version), "file": file})
    return toolchain


def recall(cache: DiskCache) -> Toolchain | None:
    """Return the NVRTC that an earlier process recorded, or None if there is no record or something has changed."""
    stored = cache.load(_record_name())
    if stored is None:
        return None
    try:
        file = stored.metadata["file"]
        # A path that is a number would be a descriptor.
        if not isinstance(file["path"], str) or _describe_file(file["path"]) != file:
            return None
        major, minor = stored.metadata["version"]
        if not isinstance(major, int) or not isinstance(minor, int):
            return None
        return Toolchain((major, minor), file["size"])
    except (KeyError, TypeError, ValueError):  # complete, and named like a record, but not written by this code
        return None


def fingerprint() -> str:
    """Return a digest of everything, apart from the library's file itself, that decides which file is loaded."""
    # As bytes, because a path need not be valid text: what stands for such bytes in a string cannot be encoded.
    variables = [os.fsencode(f"{name}={os.environ[name]}") for name in _VARIABLES if name in os.environ]
    linker = _describe_file(_LINKER_CACHE)
    return make_key(*_distributions(sys.path), "variables", *variables, "linker", repr(linker))


def _record(cache: DiskCache, metadata: dict[str, Any]) -> None:
    try:
        cache.store(_record_name(), metadata, b"")
    except CacheError:
        # The record only saves time. Hits must work even in a read-only cache; after a miss, keeping the compiled entry
        # fails for the same reason and tells.
        return


def _record_name() -> str:
    return f"toolchain-{fingerprint()}.llr"


def _describe_file(path: str) -> dict[str, Any] | None:
    try:
        info = os.stat(path)
        # The directory too: a libnvrtc of another major version, installed beside this one, would be loaded instead.
        parent = os.stat(os.path.dirname(path))
    except OSError:
        return None
    return {"path": path, "size": info.st_size, "mtime_ns": info.st_mtime_ns, "directory_mtime_ns": parent.st_mtime_ns}


def _distributions(path: Iterable[str]) -> Iterator[str]:
    # The versions that importlib.metadata would report, read from the names of the metadata directories: importing that
    # module takes 30 ms, listing site-packages 0.2 ms.
    for directory in path:
        try:
            names = os.listdir(directory or ".")
        except OSError:
            continue  # sys.path also contains zip files and places that do not exist
        # Check the ending first: only few of the hundreds of names have it, and this is done for each kernel.
        for name in sorted(name for name in names if name.endswith(_METADATA)):
            if name.rpartition(".")[0].partition("-")[0].lower().replace(".", "_") in _DISTRIBUTIONS:
                yield name

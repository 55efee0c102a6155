"""The kernels of the installed package lowlevel-reduce-kernels: found by its name, read before the user's cache.

The package has data alone, a pack for each architecture. It is trusted as installed code is, and each kernel is
verified by its digest. What it lacks is compiled as without it. What is wrong with it (another version, a damaged file,
an architecture that is not in it) is a miss as well, of which a warning tells once in each process.
"""

from __future__ import annotations

import functools
import importlib
import os
import warnings
from typing import NamedTuple

from lowlevel_reduce.compiler.cache import Stored
from lowlevel_reduce.compiler.pack import DamagedPackError, Pack
from lowlevel_reduce.errors import CacheWarning
from lowlevel_reduce.version import __version__

__all__ = ["DISTRIBUTION", "PACKAGE", "InstalledKernels", "PackState", "installed_kernels", "load_installed"]

DISTRIBUTION, PACKAGE = "lowlevel-reduce-kernels", "lowlevel_reduce_kernels"
"""The name that pip knows, and the name of the package that is imported."""

SUFFIX = ".pack"
"""What the names of packs end with, after the architecture."""

_NO_LZMA = "cannot be unpacked, since this Python was built without lzma"


class PackState(NamedTuple):
    """What a file of the package is: its architecture, kernels and bytes; what is wrong with it, None if nothing is."""

    architecture: str
    kernels: int
    size_bytes: int
    problem: str | None


class InstalledKernels:
    """The packs of one directory.

    Parameters
    ----------
    directory : str
        Where they are.
    version : str
        The version of the package.
    damage : str, optional
        Why it cannot be imported.
    """

    def __init__(self, directory: str, version: str, damage: str | None = None) -> None:
        self.directory = directory
        self.version = version
        self._damage = damage
        # No lock, which a thread of a parent may hold as it forks: at worst two threads open the same pack.
        self._packs: dict[str, Pack | None] = {}
        self._told: dict[str, object] = {}

    @property
    def problem(self) -> str | None:
        """Why none of its kernels is used; None if there is no reason."""
        if self._damage is not None:
            return f"{DISTRIBUTION} cannot be imported ({self._damage}): reinstall it"
        if self.version == __version__:
            return None
        return (
            f"{DISTRIBUTION} {self.version} in {self.directory} is for another version of lowlevel-reduce than this, "
            f'{__version__}: pip install "{DISTRIBUTION}=={__version__}"'
        )

    def load(self, name: str, architecture: str) -> Stored | None:
        """Return the entry of a name, or None; a CacheWarning tells once what is wrong with the package."""
        pack = self._pack(architecture)
        if pack is None:
            return None
        try:
            return pack.load(name)
        except DamagedPackError as error:
            self._tell(f"{pack.path} {error}: reinstall {DISTRIBUTION}")
        except ImportError as error:
            self._tell(f"{pack.path} {_NO_LZMA}: {error}")
        return None

    def is_spilled(self, name: str, architecture: str) -> bool:
        """Tell whether an entry was left out because its kernel spills; a CacheWarning as for `load`."""
        pack = self._pack(architecture)
        return pack is not None and pack.is_spilled(name)

    def states(self) -> list[PackState]:
        """Return what each file of the package is, by architecture; for that every block of it is read."""
        try:
            names = sorted(name for name in os.listdir(self.directory) if name.endswith(SUFFIX))
        except OSError:
            names = []
        return [_state_of(os.path.join(self.directory, name)) for name in names]

    def _pack(self, architecture: str) -> Pack | None:
        if self.problem is not None:
            self._tell(self.problem)
            return None
        if architecture not in self._packs:
            self._packs[architecture] = self._opened(architecture)
        return self._packs[architecture]

    def _opened(self, architecture: str) -> Pack | None:
        path = os.path.join(self.directory, architecture + SUFFIX)
        if not os.path.exists(path):
            self._tell(f"{DISTRIBUTION} {self.version} has no kernels for {architecture}")
            return None
        try:
            return _pack_at(path, architecture)
        except DamagedPackError as error:
            self._tell(f"{path} {error}: reinstall {DISTRIBUTION}")
            return None

    def _tell(self, problem: str) -> None:
        first = object()
        if self._told.setdefault(problem, first) is not first:  # one step, so that one thread tells
            return
        warnings.warn(f"{problem}. Until then kernels come from the cache or are compiled.", CacheWarning, stacklevel=2)


@functools.cache
def installed_kernels() -> InstalledKernels | None:
    """Return the kernels of the installed package, looked for once in a process; None if it is not installed."""
    # Not importlib.metadata, which takes 30 ms to import. Whoever has no such package pays for the look: 0.1 ms.
    try:
        package = importlib.import_module(PACKAGE)
    except Exception as error:  # noqa: BLE001 - of any kind, by what damage made of its first file
        if isinstance(error, ModuleNotFoundError) and error.name == PACKAGE:
            return None
        return InstalledKernels("", "unknown", f"{type(error).__name__}: {error}")
    file = getattr(package, "__file__", None)
    if file is None:  # a folder of that name that is no package of ours
        return None
    return InstalledKernels(os.path.dirname(os.path.abspath(file)), str(getattr(package, "__version__", "unknown")))


def load_installed(name: str, architecture: str) -> Stored | None:
    """Return an entry of the installed package, or None; a CacheWarning tells once what is wrong with the package."""
    kernels = installed_kernels()
    return None if kernels is None else kernels.load(name, architecture)


def _pack_at(path: str, architecture: str) -> Pack:
    """Return the pack in a file; raises DamagedPackError, also if it is for anything else than its name says."""
    pack = Pack(path)
    if (pack.architecture, pack.version) != (architecture, __version__):
        raise DamagedPackError(f"is of version {pack.version}, for {pack.architecture}")
    return pack


def _state_of(path: str) -> PackState:
    architecture = os.path.basename(path).removesuffix(SUFFIX)
    try:
        size = os.stat(path).st_size
        pack = _pack_at(path, architecture)
        pack.verify()
    except OSError as error:
        return PackState(architecture, 0, 0, str(error))
    except DamagedPackError as error:
        return PackState(architecture, 0, size, f"{path} {error}")
    except ImportError as error:
        return PackState(architecture, 0, size, f"{path} {_NO_LZMA}: {error}")
    return PackState(architecture, len(pack), size, None)

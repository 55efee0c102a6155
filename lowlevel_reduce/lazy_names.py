"""Names of a package that are imported at first use, so that programs that do not use them do not wait for them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["imported_later"]


def imported_later(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package; it is called once for each name.

    A name must not be that of the module that it comes from, unless it stands for the module: importing a module makes
    it an attribute of its package.

    Parameters
    ----------
    package : str
        The package's ``__name__``.
    modules : Mapping[str, str]
        For each name, the module of the package that it comes from, as ``plans`` or ``parts.distributed``; a module's
        own name stands for the module, unless it has that name too.
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{modules[name]}")
        is_module = name == modules[name].rpartition(".")[2] and name not in vars(module)
        value = module if is_module else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return find

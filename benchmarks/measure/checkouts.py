"""A whole other checkout of the library in this process, so that an old commit and a new one stand in one run.

Its modules have the names of this library's: they are put in their places while the other is used, and taken out again.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.measure.harness import Inputs, Ready, ours
from benchmarks.measure.problems import Case
from lowlevel_reduce import Stream
from lowlevel_reduce.driver import binding

__all__ = ["Checkout"]

_PACKAGE = "lowlevel_reduce"


class Checkout:
    """The library of another directory, imported when it is first used.

    Parameters
    ----------
    root : Path
        The directory, with ``lowlevel_reduce`` and ``cuda_src`` in it.

    Raises
    ------
    ValueError
        If they are not there.
    """

    def __init__(self, root: Path) -> None:
        if not (root / _PACKAGE / "__init__.py").is_file() or not (root / "cuda_src").is_dir():
            raise ValueError(f"{root} is no checkout: it lacks {_PACKAGE} or cuda_src")
        self.root = root.resolve()
        self._modules: dict[str, ModuleType] = {}

    @contextmanager
    def entered(self) -> Iterator[Any]:
        """Have its modules in the places of this library's inside the block; yields the package."""
        outside = _taken_out()
        sys.modules.update(self._modules)
        sys.path.insert(0, str(self.root))
        try:
            if not self._modules:
                self._check_and_share(importlib.import_module(_PACKAGE))
            yield sys.modules[_PACKAGE]
        finally:
            sys.path.remove(str(self.root))
            self._modules = _taken_out()
            sys.modules.update(outside)

    def _check_and_share(self, package: ModuleType) -> None:
        """Check that it is the other one, and send its calls to the driver that this library's go to."""
        if Path(str(package.__file__)).resolve().parent.parent != self.root:
            raise ValueError(f"{package.__file__} was imported, which is not in {self.root}")
        here = binding.selected()
        if here.name != "cuda":  # a simulated one, whose memory another simulated one would not have
            other = importlib.import_module(f"{_PACKAGE}.driver.binding")
            other.register("of the first checkout", lambda: here._offers)
            self._selected = other.use("of the first checkout")
            self._selected.__enter__()

    def ready(self, case: Case, inputs: Inputs, stream: Stream, name: str, **options: Any) -> Ready:
        """Return its contender for a case, in the same stream; `options` go to its plan."""
        with self.entered() as package:
            context = package.Context.primary()
            own = package.Stream.from_handle(stream.handle, context=context)
            ready = ours(case, inputs, stream, package=package, own=own, **options)
        enqueue, close = ready.enqueue, ready.close

        def entered(i: int) -> object:
            with self.entered():
                return enqueue(i)

        def closed() -> None:
            with self.entered():
                close()
                context.close()

        return replace(ready, name=name, enqueue=entered, close=closed)


def _taken_out() -> dict[str, ModuleType]:
    """Take the package's modules out of those that are imported, and return them."""
    names = [name for name in sys.modules if name == _PACKAGE or name.startswith(f"{_PACKAGE}.")]
    return {name: sys.modules.pop(name) for name in names}

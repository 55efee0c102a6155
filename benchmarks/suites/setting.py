"""What the cells of a suite are measured with: a harness, how thorough to be, and this machine's competitors."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks import peers
from benchmarks.measure.harness import Harness, Inputs, Mode
from benchmarks.measure.problems import Case
from benchmarks.measure.selected import compile_ahead
from benchmarks.measure.situations import Neighbour
from benchmarks.suites.cell import Cell
from lowlevel_reduce import Stream

__all__ = ["Setting"]


@dataclass
class Setting:
    """One run of suites.

    Attributes
    ----------
    harness : Harness
        Compares contenders.
    quick : bool
        Whether fewer rounds are enough.
    mode : {"rotated", "hot", "events"}
        How the harness times cells that do not set a mode themselves.
    situations : bool
        Whether cells are measured after their producer and alone, too.
    seed : int
        What cells draw at random is drawn from this.
    missing : dict
        Competitors that were requested and are not available, with the reason.
    """

    harness: Harness
    quick: bool = False
    mode: Mode = "rotated"
    situations: bool = True
    seed: int = 0
    missing: dict[str, str] = field(default_factory=dict)
    _found: dict[str, Any] = field(default_factory=dict)
    _neighbours: Any = None
    _kept: dict[str, Any] = field(default_factory=dict)

    @property
    def stream(self) -> Stream:
        """The stream on which everything runs."""
        return self.harness.stream

    def peers(self, *names: str) -> list[Any]:
        """Return those of the named competitors that are available; the others are noted in `missing`."""
        unknown = [name for name in names if name not in self._found and name not in self.missing]
        found, missing = peers.find(unknown, self.stream)
        self._found |= found
        self.missing |= missing
        return [self._found[name] for name in names if name in self._found]

    def peer(self, name: str) -> Any:
        """Return one competitor, None if it is missing."""
        return next(iter(self.peers(name)), None)

    def neighbours(self, case: Case, *, consumed: bool = False) -> Callable[[Inputs], Sequence[Neighbour]] | None:
        """Return what makes the kernels around a case of its inputs; None without PyTorch, which has these kernels.

        None in the modes that the pages do not quote, too.
        """
        torch = self.peer("torch") if self.situations and self.mode == "rotated" else None
        if torch is None:
            return None
        if self._neighbours is None:
            self._neighbours = importlib.import_module("benchmarks.peers.neighbours").Neighbours(torch)
        made = self._neighbours
        return lambda inputs: list(made.of(case, inputs, consumed=consumed))

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what cells share, made when the first of them asks for it."""
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def opened(self, name: str) -> Any:
        """Return a competitor if it has been opened already, else None; nothing is opened."""
        return self._found.get(name)

    def prepare(self, cells: Sequence[Cell]) -> None:
        """Compile what the cells need of CUB and of this library, open their other competitors, and wait for all.

        Nothing is compiled while cells are measured, because the same host launches their work.
        """
        cases = [cell.case for cell in cells if cell.case is not None and "CUB" in cell.peers]
        cub = self.peer("CUB") if cases else None
        if cub is not None:
            cub.prefetch(cases)
        compile_ahead([cell.case for cell in cells if cell.case is not None], self.stream.context)
        self.peers(*dict.fromkeys(name for cell in cells for name in cell.peers))
        compiled = self.opened("torch.compile")
        if compiled is not None:
            compiled.prefetch([cell.case for cell in cells if cell.case is not None and "torch.compile" in cell.peers])
        self.settle()

    def settle(self) -> None:
        """Wait until nothing is being compiled, so that the host does nothing but measure."""
        cub = self.opened("CUB")
        if cub is not None:
            cub.settle()

    def versions(self) -> dict[str, str]:
        """Return CUB's version, if it has been opened; if its headers could not be compiled, the error instead."""
        cub = self.opened("CUB")
        if cub is None:
            return {}
        try:
            return {"cub": str(cub.version())}
        except Exception as error:  # noqa: BLE001  it is reported, and must not lose what was measured
            return {"cub": f"{type(error).__name__}: {error}"[:120]}

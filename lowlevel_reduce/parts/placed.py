"""A plan's launches in a place of a thread, called as a bound launch is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lowlevel_reduce.calls.prepared import Prepared

if TYPE_CHECKING:
    from lowlevel_reduce.calls.places import Place
    from lowlevel_reduce.plans.base import BasePlan
    from lowlevel_reduce.plans.launch import Extents

__all__ = ["PlacedLaunch"]


class PlacedLaunch:
    """What `BasePlan.bind` returns, for who calls it in the place's thread while its context is current.

    It shares the launchers and the workspace of the place, and does not ask what is current: in a default stream, of
    PyTorch for one, a call takes a fifth of a bound launch's time. It must not be captured.
    """

    __slots__ = ("_launch", "_prepared")

    def __init__(self, plan: BasePlan, place: Place, initial: Any = None) -> None:
        self._prepared = prepared = Prepared.of_plan(plan, place, initial)
        self._launch = None if prepared.is_nothing else prepared.launch

    @property
    def extents(self) -> Extents:
        """Which bytes a launch touches."""
        return self._prepared.extents

    def __call__(self, source: int, result: int, second: int | None = None) -> None:
        """Put it into the place's stream; raises as `Prepared.refuse` where something was closed."""
        launch = self._launch
        if launch is not None and not launch(source, result, second or 0):
            self._prepared.refuse()

    def check(self, source: int, result: int, second: int | None = None) -> None:
        """Refuse addresses that a launch must not be given, as `BoundReduction.check`."""
        self._prepared.check(source, result, second, trusted=(False, False, False))

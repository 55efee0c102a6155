"""Values of launch attributes that are more than a number or a word; few launches have one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from lowlevel_reduce.driver.attributes import ACCESS, integer, word
from lowlevel_reduce.driver.event import Event

__all__ = ["AccessPolicyWindow", "LaunchCompletionEvent", "ProgrammaticEvent"]


@dataclass(frozen=True)
class AccessPolicyWindow:
    """How the level-2 cache treats one window of global memory during a launch.

    Parameters
    ----------
    pointer : int
        Where the window begins; the driver may align it.
    size_bytes : int
        How far it reaches; limited by the device's MAX_ACCESS_POLICY_WINDOW_SIZE.
    hit_ratio : float
        The share of its lines that get `hit`, 0 to 1; the others get `miss`.
    hit, miss : str
        "normal", "streaming" (evicted first) or, for `hit` only, "persisting" (evicted last).
    """

    pointer: int
    size_bytes: int
    hit_ratio: float = 1.0
    hit: str = "persisting"
    miss: str = "streaming"

    def __post_init__(self) -> None:
        integer("the window's pointer", self.pointer, 0, 2**64 - 1)
        integer("the window's size_bytes", self.size_bytes, 0, 2**64 - 1)
        if not 0.0 <= self.hit_ratio <= 1.0:
            raise ValueError(f"hit_ratio is 0 to 1, not {self.hit_ratio}")
        word("hit", self.hit, ACCESS)
        word("miss", self.miss, {name: value for name, value in ACCESS.items() if name != "persisting"})


@dataclass(frozen=True)
class _RecordedEvent:
    """An event that a launch records; `_field` is the attribute's name in errors."""

    _field: ClassVar[str]

    event: Event

    def __post_init__(self) -> None:
        _untimed(self._field, self.event)


@dataclass(frozen=True)
class LaunchCompletionEvent(_RecordedEvent):
    """An event that is recorded when all blocks of the launch have begun; only as a best effort, says the driver.

    Parameters
    ----------
    event : Event
        One without timing.
    """

    _field = "launch_completion_event"


@dataclass(frozen=True)
class ProgrammaticEvent(_RecordedEvent):
    """An event that is recorded when every block of the launch has triggered it (``griddepcontrol.launch_dependents``).

    Parameters
    ----------
    event : Event
        One without timing.
    trigger_at_block_start : bool
        Whether a block triggers it as it begins, with no instruction in the kernel.
    """

    _field = "programmatic_event"

    trigger_at_block_start: bool = False


def _untimed(name: str, event: Any) -> None:
    if not isinstance(event, Event):
        raise TypeError(f"{name} takes an Event, not {type(event).__name__}")
    if event.timing:
        raise ValueError(f"{name} takes an event without timing: Event.create(timing=False)")

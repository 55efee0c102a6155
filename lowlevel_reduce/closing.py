"""What is closed at the end of a ``with`` block."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, TypeVar

__all__ = ["Closing"]

Self = TypeVar("Self", bound="Closing")


class _Closable(Protocol):
    def close(self) -> None: ...


class Closing:
    """A context manager that is its own value, and whose end calls the method ``close()`` of the class that has it."""

    # No abstract class: whose metaclass has a slower isinstance, and handles are asked for their class often.
    __slots__ = ()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self: _Closable, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

"""What is closed at the end of a ``with`` block."""

from __future__ import annotations

from types import TracebackType
from typing import NoReturn, Protocol, SupportsIndex, TypeVar

__all__ = ["Closing"]

Self = TypeVar("Self", bound="Closing")


class _Closable(Protocol):
    def close(self) -> None: ...


class Closing:
    """A context manager that is its own value, and whose end calls the method ``close()`` of the class that has it.

    There is one of it: it is not copied.
    """

    # No abstract class: whose metaclass has a slower isinstance, and handles are asked for their class often.
    __slots__ = ()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self: _Closable, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse ``copy`` and ``pickle``, whose copy would use what the other one has closed, or another process's.

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError(
            f"{type(self).__name__} objects are neither copied nor pickled: each is closed once, where it was made"
        )

"""A base class for objects that are closed at the end of a ``with`` block."""

from __future__ import annotations

from types import TracebackType
from typing import NoReturn, Protocol, SupportsIndex, TypeVar

from lowlevel_reduce.errors import ReduceError

__all__ = ["Closing"]

Self = TypeVar("Self", bound="Closing")


class _Closable(Protocol):
    def close(self) -> None: ...


class Closing:
    """A context manager that returns itself, and at the end of the block calls the ``close()`` of its subclass.

    It cannot be copied or pickled.
    """

    # Not an abstract class: its metaclass would make isinstance slower, which is often called for handles.
    __slots__ = ()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self: _Closable, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except ReduceError:  # it was refused, or done
            raise
        except BaseException:  # an interrupt, or no memory: nobody but this block would close it again
            self.close()
            raise

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

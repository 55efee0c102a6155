"""How a result behaves as a value: it is shown, converted, compared and computed with, on the host."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from lowlevel_reduce.driver import Stream

__all__ = ["MOST_SHOWN", "Value"]

MOST_SHOWN = 1000
"""The most elements that `str` brings to the host to show them: as many as NumPy shows whole by default."""

_COMPUTED = (numbers.Number, np.generic, np.ndarray)
_COMPARED = (*_COMPUTED, list, tuple)  # Python would take a refusal of both sides' == for False
_COMPARISONS = frozenset((operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge))


def _operator(function: Callable[[Any, Any], Any], *, reflected: bool = False) -> Any:
    """Return a method of a value that applies an operator, with the value on the left, or on the right."""
    taken = _COMPARED if function in _COMPARISONS else _COMPUTED

    def method(mine: Value, other: Any) -> Any:
        if isinstance(other, Value):
            other = other._scalar()
        elif not isinstance(other, taken):
            if hasattr(other, "__dlpack__") or hasattr(other, "__cuda_array_interface__"):
                # Python would take a refusal of both sides' == for False.
                raise TypeError(
                    f"a DeviceArray and a {type(other).__name__} are not computed with: item() gives the value, and "
                    "the array's own library makes both its own, as torch.from_dlpack does"
                )
            return NotImplemented
        return function(other, mine._scalar()) if reflected else function(mine._scalar(), other)

    return method


class Value:
    """What an array on the device is on the host: conversions, comparisons and arithmetic, which wait for its stream.

    A single value, of whatever shape, is its value: comparisons and arithmetic with it are those of the NumPy scalar
    of its type, and their results are NumPy's, too. Arrays of several elements refuse both, since their results would
    have to be brought to the host element by element: ``numpy()`` does that once, and ``torch.from_dlpack`` or
    ``cupy.asarray`` compute on the device. A list or tuple is compared as NumPy's array of it; a list times an integer
    stays Python's, a longer list.

    It has no hash, as NumPy's and JAX's arrays have none: what is equal by value must have the hash of that value,
    which ``out=`` may change while a set or a dictionary relies on it. For a key, take ``item()``, or ``id()`` for the
    array itself.
    """

    __slots__ = ()

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    stream: Stream

    __hash__: ClassVar[None]  # type: ignore[assignment]

    if TYPE_CHECKING:  # what `DeviceArray` has

        def numpy(self) -> npt.NDArray[Any]:
            """Return a copy on the host."""

        def item(self) -> Any:
            """Return the only element as a Python number."""

    def tolist(self) -> Any:
        """Return Python numbers: one, or nested lists of them; waits for the array's stream."""
        return self.numpy().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        """Return a single integer, such as the index that argmax found; raises TypeError for any other value."""
        if self.dtype.kind not in "iu" or math.prod(self.shape) != 1:
            raise TypeError(f"an array of shape {self.shape} of {self.dtype} is no integer")
        return int(self.item())

    def __str__(self) -> str:
        """Return the value as text, else what `repr` does.

        That is so for more than `MOST_SHOWN` elements, within a capture, and where the stream or its context has gone.
        """
        if math.prod(self.shape) > MOST_SHOWN or self.stream.is_closed:
            return repr(self)
        context = self.stream.context
        if context.is_closed or context.life.over or self.stream.is_capturing:
            return repr(self)
        return str(self.numpy()[()])

    def __format__(self, specification: str) -> str:
        """Return a single value in a format of its Python number; without one, what `str` returns."""
        if not specification:
            return str(self)
        if math.prod(self.shape) != 1:
            raise TypeError(f"an array of shape {self.shape} is no single value to be formatted: format numpy()")
        return format(self.item(), specification)

    def _scalar(self) -> Any:
        """Return a single value as a NumPy scalar."""
        if math.prod(self.shape) != 1:
            raise TypeError(
                f"an array of shape {self.shape} on the device is not compared or computed with: numpy() brings it to "
                "the host, and torch.from_dlpack or cupy.asarray compute on the device"
            )
        return self.numpy().reshape(())[()]

    __eq__ = _operator(operator.eq)
    __ne__ = _operator(operator.ne)
    __lt__ = _operator(operator.lt)
    __le__ = _operator(operator.le)
    __gt__ = _operator(operator.gt)
    __ge__ = _operator(operator.ge)
    __add__ = _operator(operator.add)
    __radd__ = _operator(operator.add, reflected=True)
    __sub__ = _operator(operator.sub)
    __rsub__ = _operator(operator.sub, reflected=True)
    __mul__ = _operator(operator.mul)
    __rmul__ = _operator(operator.mul, reflected=True)
    __truediv__ = _operator(operator.truediv)
    __rtruediv__ = _operator(operator.truediv, reflected=True)
    __floordiv__ = _operator(operator.floordiv)
    __rfloordiv__ = _operator(operator.floordiv, reflected=True)
    __mod__ = _operator(operator.mod)
    __rmod__ = _operator(operator.mod, reflected=True)
    __pow__ = _operator(operator.pow)
    __rpow__ = _operator(operator.pow, reflected=True)

    def __neg__(self) -> Any:
        return -self._scalar()

    def __pos__(self) -> Any:
        return +self._scalar()

    def __abs__(self) -> Any:
        return abs(self._scalar())

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._scalar(), digits)

"""Keywords that a function does not have: the error names the keyword that it has for the same.

NumPy, PyTorch and the array API spell some options differently, and who takes their spelling should not have to read
the documentation. Nothing is looked at before a call has failed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["message_of", "own_keywords"]

_F = TypeVar("_F", bound=Callable[..., Any])

# How other libraries spell what a function here may have; the first spelling that it has is named.
_ELSEWHERE = {
    **dict.fromkeys(("dim", "dims", "axes"), ("axis",)),
    **dict.fromkeys(("keepdim", "keep_dims"), ("keepdims",)),
    **dict.fromkeys(("a", "arr", "array", "input", "self", "x1"), ("x",)),
    **dict.fromkeys(("b", "other", "tensor", "x2"), ("y", "second")),
    **dict.fromkeys(("correction", "unbiased"), ("ddof",)),
    **dict.fromkeys(("p", "order"), ("ord",)),
    **dict.fromkeys(("mask",), ("where",)),
    **dict.fromkeys(("acc_dtype", "preferred_element_type"), ("accumulate",)),
}
_REMARKS = {"unbiased": " (unbiased=True is ddof=1, and 0 is what it is by default)"}

_functions: list[Callable[..., Any]] = []


def own_keywords(function: _F) -> _F:
    """Return a function that says what it has in place of a keyword that it does not have; else it is the same.

    Type checkers see the function itself, and so do ``help`` and ``inspect.signature``. A call costs 0.1 µs more, and
    about 30 ns more for each keyword.
    """
    _functions.append(function)
    if TYPE_CHECKING:
        return function

    @functools.wraps(function)
    def call(*values: Any, **options: Any) -> Any:
        try:
            return function(*values, **options)
        except TypeError:
            clearer = message_of(function, values, options)  # None for an error of a line of the function
            if clearer is None:
                raise
        raise TypeError(clearer)

    return call


def message_of(function: Callable[..., Any], values: tuple[Any, ...], options: dict[str, Any]) -> str | None:
    """Return what is wrong with a call that Python refused, in our words; None if Python's own say it as well."""
    import inspect  # noqa: PLC0415 - only an error pays for it

    name, parameters = function.__name__, inspect.signature(function).parameters
    by_place = [each.name for each in parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]
    for option in options:
        if option not in parameters:
            return f"{name} has no keyword {option!r}: {_instead(option, parameters)}"
    if len(values) > len(by_place):
        return f"{name} takes {', '.join(by_place)} by position, and all else by its keyword: {', '.join(parameters)}"
    return None


def _instead(option: str, parameters: Any) -> str:
    for ours in _ELSEWHERE.get(option, ()):
        if ours in parameters:
            return f"it is {ours}= here{_REMARKS.get(option, '')}"
    import difflib  # noqa: PLC0415 - as above
    import inspect  # noqa: PLC0415

    signatures = {each.__name__: inspect.signature(each).parameters for each in _functions}
    takers = [name for name, others in signatures.items() if option in others and "op" not in others]
    if takers:
        return f"{', '.join(takers)} {'has' if len(takers) == 1 else 'have'} it"
    near = difflib.get_close_matches(option, parameters, n=1)
    return f"did you mean {near[0]}=?" if near else f"it has {', '.join(parameters)}"

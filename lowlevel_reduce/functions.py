"""The reductions by their names: `api.reduce` with the operator filled in."""

from __future__ import annotations

from typing import Any

from lowlevel_reduce.arguments import shown
from lowlevel_reduce.calls.reduce import reduce

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "dot",
    "logsumexp",
    "max",
    "mean",
    "mean_var",
    "min",
    "minmax",
    "norm",
    "prod",
    "softmax_stats",
    "std",
    "sum",
    "sum_squares",
    "var",
]


def sum(x: Any, **options: Any) -> Any:
    """Return the sum, 0 over no elements. The options are those of `reduce`.

    Integers and bool are summed in 64 bits.
    """
    return reduce(x, "sum", **options)


def prod(x: Any, **options: Any) -> Any:
    """Return the product; 1 over no elements. The options are those of `reduce`."""
    return reduce(x, "prod", **options)


def min(x: Any, **options: Any) -> Any:
    """Return the smallest element, NaN if any is one, unless ``nan="ignore"``. The options are those of `reduce`."""
    return reduce(x, "min", **options)


def max(x: Any, **options: Any) -> Any:
    """Return the largest element, NaN if any is one, unless ``nan="ignore"``. The options are those of `reduce`."""
    return reduce(x, "max", **options)


def minmax(x: Any, **options: Any) -> Any:
    """Return (min, max) in one pass, as a named tuple. The options are those of `reduce`."""
    return reduce(x, "minmax", **options)


def argmin(x: Any, **options: Any) -> Any:
    """Return the index of the smallest element as int64; of equal ones the first, or with ``last=True`` the last.

    The index counts along the reduced axes in C order; a NaN counts as smallest. The options are those of `reduce`.
    """
    return reduce(x, "argmin", **options)


def argmax(x: Any, **options: Any) -> Any:
    """Return the index of the largest element as int64; of equal ones the first, or with ``last=True`` the last.

    The index counts along the reduced axes in C order; a NaN counts as largest. The options are those of `reduce`.
    """
    return reduce(x, "argmax", **options)


def any(x: Any, **options: Any) -> Any:
    """Tell whether any element is nonzero, as bool; NaN counts as nonzero. The options are those of `reduce`."""
    return reduce(x, "any", **options)


def all(x: Any, **options: Any) -> Any:
    """Tell whether all elements are nonzero, as bool. The options are those of `reduce`."""
    return reduce(x, "all", **options)


def count_nonzero(x: Any, **options: Any) -> Any:
    """Count the elements that are nonzero, as int64. The options are those of `reduce`."""
    return reduce(x, "count_nonzero", **options)


def mean(x: Any, **options: Any) -> Any:
    """Return the arithmetic mean; for integers as float64. The options are those of `reduce`.

    Integers of fewer than 64 bits are summed exactly, in 64 bits. With more than 2**32 elements of 32 bits in a row,
    the sum may exceed that range and wrap around: use ``accumulate="float64"`` for such rows.
    """
    return reduce(x, "mean", **options)


def var(x: Any, *, correction: float | None = None, **options: Any) -> Any:
    """Return the variance, in one pass, with n - `ddof` as the divisor; real for complex elements, as in NumPy.

    `ddof` is any real number from 0 on; `correction` is the array API's name of it. The options are those of `reduce`.

    Raises
    ------
    TypeError
        If both are given.
    """
    return reduce(x, "var", **_with_ddof(correction, options))


def std(x: Any, *, correction: float | None = None, **options: Any) -> Any:
    """Return the standard deviation, in one pass; `ddof` and `correction` as for `var`, whose options it has."""
    return reduce(x, "std", **_with_ddof(correction, options))


def mean_var(x: Any, *, correction: float | None = None, **options: Any) -> Any:
    """Return (mean, var) in one pass, as a named tuple; `ddof` and `correction` as for `var`, whose options it has."""
    return reduce(x, "mean_var", **_with_ddof(correction, options))


def _with_ddof(correction: float | None, options: dict[str, Any]) -> dict[str, Any]:
    if correction is None:
        return options
    if "ddof" in options:
        raise TypeError("correction= is the array API's name of ddof=: pass one of them")
    return {**options, "ddof": correction}


def norm(x: Any, ord: float = 2, **options: Any) -> Any:
    """Return a vector norm: `ord` 1, 2 or infinity. The options are those of `reduce`.

    Raises
    ------
    ValueError
        If `ord` is anything else.
    """
    names = {1: "norm1", 2: "norm2", float("inf"): "norm_inf"}
    try:
        name = None if isinstance(ord, bool) else names.get(ord)
    except TypeError:  # not hashable
        name = None
    if name is None:
        raise ValueError(f"a norm is of order 1, 2 or inf, not {shown(ord)}")
    return reduce(x, name, **options)


def sum_squares(x: Any, **options: Any) -> Any:
    """Return the sum of the squares. The options are those of `reduce`."""
    return reduce(x, "sum_squares", **options)


def logsumexp(x: Any, **options: Any) -> Any:
    """Return log(sum(exp(x))) in one pass, without overflow. The options are those of `reduce`."""
    return reduce(x, "logsumexp", **options)


def softmax_stats(x: Any, **options: Any) -> Any:
    """Return (max, sum of exp(x - max)) in one pass, as a named tuple. The options are those of `reduce`."""
    return reduce(x, "softmax_stats", **options)


def dot(x: Any, y: Any, **options: Any) -> Any:
    """Return the sum of x * y; `y` has the type of `x`, and is broadcast to it. The options are those of `reduce`."""
    return reduce(x, "dot", second=y, **options)

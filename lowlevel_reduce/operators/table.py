"""The built-in operators by name, and `resolve`: from a name and options to the `Reduction` that the rest uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from lowlevel_reduce.arguments import flag, real, shown
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.operators import exponentials, extremes, moments, sums
from lowlevel_reduce.operators.adapters import counted, ignoring_nan, masked, with_initial
from lowlevel_reduce.operators.base import Reduction
from lowlevel_reduce.operators.masked_moments import masked_moments

if TYPE_CHECKING:
    from lowlevel_reduce.operators.user import ElementMap, Operator

__all__ = ["MAX_DDOF", "OPERATORS", "check_options", "resolve"]

MAX_DDOF = (1 << 63) - 1
"""The largest `ddof` that the kernels accept."""


class _Entry(NamedTuple):
    """An operator and the options that it accepts."""

    make: Callable[[float, bool], Reduction]
    options: frozenset[str] = frozenset()


def _plain(reduction: Reduction, *options: str) -> _Entry:
    return _Entry(lambda ddof, last: reduction, frozenset(options))


def _arg(first: Reduction, last: Reduction) -> _Entry:
    return _Entry(lambda ddof, is_last: last if is_last else first, frozenset({"last", "map"}))


def _moment(make: Callable[[float], Reduction]) -> _Entry:
    return _Entry(lambda ddof, last: make(ddof), frozenset({"ddof", "map", "where"}))


_TABLE: dict[str, _Entry] = {
    "sum": _plain(sums.SUM, "nan", "where", "initial", "map"),
    "prod": _plain(sums.PROD, "where", "initial", "map"),
    "min": _plain(extremes.MIN, "nan", "where", "initial", "map"),
    "max": _plain(extremes.MAX, "nan", "where", "initial", "map"),
    "minmax": _plain(extremes.MINMAX, "map"),
    "argmin": _arg(extremes.ARGMIN, extremes.LAST_ARGMIN),
    "argmax": _arg(extremes.ARGMAX, extremes.LAST_ARGMAX),
    "any": _plain(extremes.ANY, "where", "map"),
    "all": _plain(extremes.ALL, "where", "map"),
    "count_nonzero": _plain(sums.COUNT_NONZERO, "where", "map"),
    "mean": _plain(sums.MEAN, "nan", "where", "map"),
    "var": _moment(moments.var),
    "std": _moment(moments.std),
    "mean_var": _moment(moments.mean_var),
    "norm1": _plain(sums.NORM1, "where", "map"),
    "norm2": _plain(sums.NORM2, "where", "map"),
    "norm_inf": _plain(extremes.NORM_INF, "where", "map"),
    "sum_squares": _plain(sums.SUM_SQUARES, "where", "map"),
    "logsumexp": _plain(exponentials.LOGSUMEXP, "where", "map"),
    "softmax_stats": _plain(exponentials.SOFTMAX_STATS, "where", "map"),
    "dot": _plain(sums.DOT),
}

OPERATORS: Mapping[str, Reduction] = MappingProxyType({name: entry.make(0, False) for name, entry in _TABLE.items()})
"""The built-in operators by name, without options."""


def resolve(
    op: str | Operator | Reduction,
    *,
    nan: str = "propagate",
    where: bool = False,
    initial: bool = False,
    ddof: float = 0,
    last: bool = False,
    map: str | ElementMap | None = None,
) -> Reduction:
    """Return an operator with its options applied.

    Parameters
    ----------
    op : str, Operator or Reduction
        Name of a built-in operator, or a user's own. A Reduction already has its options and is returned unchanged.
    nan : {"propagate", "ignore"}
        Whether NaN elements propagate to the result, or are left out; "ignore" is for sum, mean, min and max.
    where : bool
        Whether the second array is a mask: for sum, prod, min, max, any, all, count_nonzero, mean, var,
        std, mean_var, the norms, sum_squares, logsumexp and softmax_stats, and for a user's operator of one array.
    initial : bool
        Whether there is an initial value: for sum, prod, min and max.
    ddof : float
        Subtracted from the divisor of var, std and mean_var: any real number from 0 on.
    last : bool
        Whether argmin and argmax return the last of several equal extremes instead of the first.
    map : str or ElementMap, optional
        A CUDA C++ expression in `x` (and `y`, with a second array) that is reduced in place of the elements; for all
        built-in operators but dot. For var, std and mean_var it may use one array only.

    Returns
    -------
    Reduction
        The operator as kernels and the tree use it.

    Raises
    ------
    UnsupportedError
        If there is no such operator.
    TypeError
        If `op` is neither a name nor an Operator, or `ddof` is not a real number.
    ValueError
        If the operator does not accept an option.
    """
    check_options(op, nan=nan, map=map)
    ddof = real(ddof, "ddof is a real number")
    if not 0 <= ddof <= MAX_DDOF:
        raise ValueError(f"ddof is 0 or more, and at most {MAX_DDOF}, not {ddof}")
    where, initial, last = flag(where, "where"), flag(initial, "initial"), flag(last, "last")
    given = {"nan": nan == "ignore", "where": where, "initial": initial, "ddof": ddof != 0, "last": last}
    given["map"] = map is not None
    entry = _find(op)
    name = op if isinstance(op, str) else op.name
    for option, is_given in given.items():
        if is_given and option not in entry.options:
            takers = ", ".join(each for each, other in _TABLE.items() if option in other.options)
            raise ValueError(f"{name} does not take {option}=; {takers} do")
    reduction = entry.make(ddof, last)
    if isinstance(op, str):  # a user's own may have the name of a built-in one
        if where and reduction.empty is None and not initial:
            raise ValueError(f"{name} has no identity, so with where= it needs initial=")
        if name == "mean" and (where or given["nan"]):
            reduction = counted(reduction)
        if where and "ddof" in entry.options:
            reduction = masked_moments(name, ddof)
    return _adapt(reduction, nan=given["nan"], where=where, initial=initial, map_=map)


def check_options(op: Any, *, nan: Any, map: Any) -> None:
    """Refuse an invalid `op`, `nan` or `map`, which might not even be hashable; raises what `resolve` raises."""
    _find(op)
    if not isinstance(nan, str) or nan not in ("propagate", "ignore"):
        raise ValueError(f'nan is "propagate" or "ignore", not {shown(nan)}')
    if map is not None and not isinstance(map, str):
        from lowlevel_reduce.operators.user import ElementMap  # noqa: PLC0415 - as in _find

        if not isinstance(map, ElementMap):
            raise TypeError(f"a map is CUDA C++ text or an ElementMap, not {shown(map)}")


def _find(op: Any) -> _Entry:
    if isinstance(op, Reduction):
        return _plain(op)
    if isinstance(op, str):
        if op not in _TABLE:
            import difflib  # noqa: PLC0415 - only an error pays for it

            near = difflib.get_close_matches(op, _TABLE, n=1)
            meant = f" (did you mean {near[0]!r}?)" if near else ""
            raise UnsupportedError(f"there is no operator {shown(op)}{meant}; there is {', '.join(_TABLE)}")
        return _TABLE[op]
    from lowlevel_reduce.operators.user import Operator  # noqa: PLC0415 - only those who wrote one pay for the import

    if not isinstance(op, Operator):
        raise TypeError(f"an operator is a name or an Operator, not {shown(op)}")
    own = op.reduction
    return _plain(own, *(() if own.second else ("where",)))


def _adapt(reduction: Reduction, *, nan: bool, where: bool, initial: bool, map_: str | ElementMap | None) -> Reduction:
    """Put the adapters around an operator, in the order that ``operator_adapters.cuh`` gives."""
    if nan:
        reduction = ignoring_nan(reduction)
    if map_ is not None:
        from lowlevel_reduce.operators.user import ElementMap, mapped  # noqa: PLC0415 - as in _find

        reduction = mapped(reduction, map_ if isinstance(map_, ElementMap) else ElementMap(map_))
        if where and reduction.second:
            raise ValueError("a map of two arrays leaves no second array for where=")
    if where:
        reduction = masked(reduction)
    if initial:
        reduction = with_initial(reduction)
    return reduction

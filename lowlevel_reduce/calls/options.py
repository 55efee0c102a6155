"""Arguments of calls in a form for keys: hashable, and equal only if they mean the same."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from lowlevel_reduce.arguments import flag, shown
from lowlevel_reduce.dtypes import accumulator_dtype, numpy_dtype

__all__ = ["STRATEGY_VARIABLE", "forced_strategy", "initial_key", "key_options"]

STRATEGY_VARIABLE = "LOWLEVEL_REDUCE_STRATEGY"
"""Names the strategy of whole arrays."""

# os.environ.get encodes, looks up and decodes: 0.4 µs. Looking into its dictionary takes a tenth of that.
_environment: Any = getattr(os.environ, "_data", os.environ)
_variable: Any = os.environ.encodekey(STRATEGY_VARIABLE) if _environment is not os.environ else STRATEGY_VARIABLE


forced_strategy: Callable[[], Any] = functools.partial(_environment.get, _variable)
"""Return what stands for the value of the variable that forces a strategy, in keys."""


def key_options(op: Any, *, dtype: Any, accumulate: Any, nan: Any, last: Any, map: Any) -> dict[str, Any]:
    """Return a plan's options in a form for keys.

    Raises
    ------
    TypeError, ValueError, UnsupportedError
        With the message of the function that interprets the option, rather than one about an unhashable value.
    """
    from lowlevel_reduce.operators import check_options  # noqa: PLC0415 - with the first plan

    check_options(op, nan=nan, map=map)
    return {
        "result_dtype": dtype if dtype is None or isinstance(dtype, str) else numpy_dtype(dtype),
        "accumulate": accumulate if isinstance(accumulate, str) else accumulator_dtype(accumulate),
        "nan": nan,
        "last": flag(last, "last"),
        "map": map,
    }


def initial_key(value: Any) -> tuple[Any, ...] | None:
    """Return a key that two initial values share only if they are equal in type and in every bit; None for None."""
    if value is None:
        return None
    try:
        number = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"the initial value is a number, not {shown(value)}") from error
    # An integer of more than 64 bits is an object. For all others, `repr` may leave out digits, or the type.
    content = repr(value) if number.dtype.hasobject else number.tobytes()
    return (type(value), number.dtype, number.shape, content)

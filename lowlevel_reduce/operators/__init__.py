"""The operators: the definition of each in NumPy, and the CUDA C++ struct that implements it on the GPU.

`resolve` turns a name, or a user's `Operator`, and options into a `Reduction`: everything that kernels, plans and the
tree need to know about an operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowlevel_reduce.lazy_names import imported_later
from lowlevel_reduce.operators.base import Array, Fields, Items, Reduction, Row, Types, result_tuple
from lowlevel_reduce.operators.table import OPERATORS, check_options, resolve

if TYPE_CHECKING:
    from lowlevel_reduce.operators.user import ElementMap, NumpyMeaning, Operator

__all__ = [
    "OPERATORS",
    "Array",
    "ElementMap",
    "Fields",
    "Items",
    "NumpyMeaning",
    "Operator",
    "Reduction",
    "Row",
    "Types",
    "check_options",
    "resolve",
    "result_tuple",
]

# Imported at first use: the built-in operators need none of these.
_LATER = dict.fromkeys(("ElementMap", "NumpyMeaning", "Operator"), "user")

if not TYPE_CHECKING:  # a type checker would accept any name as an attribute
    __getattr__ = imported_later(__name__, _LATER)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})

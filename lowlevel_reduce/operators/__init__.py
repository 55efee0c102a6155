"""The operators: what each means in NumPy, and which CUDA C++ struct says the same.

`resolve` turns a name, or a user's `Operator`, and options into a `Reduction`: all that kernels, plans and the tree
need.
"""

from lowlevel_reduce.operators.base import Array, Fields, Items, Reduction, Row, Types, result_tuple
from lowlevel_reduce.operators.table import OPERATORS, resolve
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
    "resolve",
    "result_tuple",
]

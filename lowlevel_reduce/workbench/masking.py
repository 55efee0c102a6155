"""The order of a summation that cannot be looked into: recovered from its results, by large values that cancel. Pure.

The method is that of FPRev (Xie, Jiang, Wang: "FPRev: revealing the order of floating-point summation in tensor
programs", 2024). Element i is M, element j is -M, and all others are 1. Each 1 that is added to a partial sum with
exactly one of the two is absorbed, since M is so large; the two meet at their lowest common node and cancel. The result
is therefore the number of elements outside that node. The sizes for one i and all j tell the nodes above i and what
hangs from each, and the same is done for each of these sets: about n log2(n) sums for a balanced tree, n^2 / 2 at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.workbench.summation import Node, Tree

__all__ = ["MASKS", "masked_tree"]

MASKS = {"float32": 2.0**100, "float64": 2.0**600}
"""M for each type of elements: it absorbs any number of ones in float64, too, in which float32 may be added up."""

Values = npt.NDArray[Any]


def masked_tree(run: Callable[[Values], float], n: int, dtype: str) -> Tree:
    """Return the tree of a sum of `n` elements.

    Parameters
    ----------
    run : callable
        Sums an array; called many times.
    n : int
        Elements, 1 or more.
    dtype : str
        Their type, one of `MASKS`.

    Raises
    ------
    UnsupportedError
        If the type has no room for such values, or if the results are those of no tree of additions of pairs.
    """
    if dtype not in MASKS:
        raise UnsupportedError(f"{dtype} has no number that absorbs ones: name elements of {' or '.join(MASKS)}")
    return _Masked(run, n, dtype).tree()


class _Masked:
    def __init__(self, run: Callable[[Values], float], n: int, dtype: str) -> None:
        self._run, self._n, self._dtype = run, n, dtype
        self._nodes: list[Node] = []

    def tree(self) -> Tree:
        if self._run(np.ones(self._n, self._dtype)) != self._n:
            raise UnsupportedError(f"{self._n} ones do not sum to {self._n}: this is no sum of the elements")
        self._build(list(range(self._n)))
        return Tree(tuple(self._nodes))

    def _build(self, elements: list[int]) -> int:
        """Add the nodes of the subtree of these elements; return the place of its root."""
        first, *others = elements
        self._nodes.append(Node("element", (), first, "", 0.0))
        place, size = len(self._nodes) - 1, 1
        beside: dict[int, list[int]] = {}
        for other in others:
            beside.setdefault(self._size(first, other), []).append(other)
        for total, group in sorted(beside.items()):
            size += len(group)
            if size != total:
                raise UnsupportedError(
                    f"elements {first} and {group[0]} meet in a sum of {total}, of which {size} are accounted for: "
                    "these are no additions of pairs in one order"
                )
            sibling = self._build(group)
            self._nodes.append(Node("add", (place, sibling), -1, "", 0.0))
            place = len(self._nodes) - 1
        return place

    def _size(self, first: int, second: int) -> int:
        """Return how many elements are below the lowest node that two elements have in common."""
        values = np.ones(self._n, self._dtype)
        values[first], values[second] = MASKS[self._dtype], -MASKS[self._dtype]
        outside = self._run(values)
        if not 0 <= outside <= self._n - 2 or outside != int(outside):
            raise UnsupportedError(f"with elements {first} and {second} masked the sum is {outside!r}: no sum of ones")
        return self._n - int(outside)

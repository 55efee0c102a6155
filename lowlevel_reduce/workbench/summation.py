"""Summation trees: which partial sums a kernel added, with equality, differences and a drawing in text. Pure.

A tree is given by its nodes in an order in which what a node is made of stands before it, so that chains of thousands
of additions need no recursion. Two trees are the same order if each partial sum of the one is a partial sum of the
other: the operands of an addition may be exchanged, which changes no bit of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

__all__ = ["Node", "Tree", "difference", "tree_of"]

_INLINE = 8


class _Term(Protocol):
    @property
    def operation(self) -> str: ...
    @property
    def arguments(self) -> tuple[int, ...]: ...
    @property
    def kind(self) -> str: ...
    @property
    def value(self) -> float: ...


@dataclass(frozen=True)
class Node:
    """One value of a tree.

    Attributes
    ----------
    operation : str
        "element", "number", "add", or another one.
    children : tuple of int
        The places of the nodes that it is made of.
    element : int
        The element's place; -1 for another node.
    kind : str
        The type that it was computed in.
    value : float
        A number's value.
    """

    operation: str
    children: tuple[int, ...]
    element: int
    kind: str
    value: float


@dataclass(frozen=True)
class Tree:
    """A summation tree; the last node is the result."""

    nodes: tuple[Node, ...]

    @cached_property
    def elements(self) -> tuple[tuple[int, ...], ...]:
        """The elements below each node, in ascending order, each as often as it occurs."""
        found: list[tuple[int, ...]] = []
        for node in self.nodes:
            own = (node.element,) if node.operation == "element" else ()
            found.append(tuple(sorted(own + sum((found[child] for child in node.children), ()))))
        return tuple(found)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """The additions and other operations on the longest way to each node."""
        found: list[int] = []
        for node in self.nodes:
            below = max((found[child] for child in node.children), default=-1)
            found.append(below + (1 if node.operation != "round" else 0) if node.children else 0)
        return tuple(found)

    @property
    def depth(self) -> int:
        """The operations between the result and the element that is farthest from it."""
        return self.depths[-1]

    @property
    def additions(self) -> int:
        """How many additions there are."""
        return sum(node.operation == "add" for node in self.nodes)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The types that additions are computed in."""
        return tuple(sorted({node.kind for node in self.nodes if node.operation == "add"}))

    @cached_property
    def key(self) -> int:
        """A hash that equal orders share: operands may be exchanged, types and roundings do not count."""
        found: list[int] = []
        for node in self.nodes:
            below = [found[child] for child in node.children]
            if node.operation == "round":
                found.append(below[0])
                continue
            if node.operation in ("add", "mul", "min", "max"):
                below.sort()
            found.append(hash((node.operation, node.element, node.value if not below else 0, *below)))
        return found[-1]

    def same_order(self, other: Tree) -> bool:
        """Tell whether two kernels add in the same order, whatever types they add in."""
        return self.key == other.key

    def parts(self, place: int) -> tuple[int, ...]:
        """Return the places that a node is made of; of a sum, the one with the lowest element first."""
        children = self.nodes[place].children
        if self.nodes[place].operation != "add":
            return children
        return tuple(sorted(children, key=lambda child: self.elements[child][:1] or (-1,)))

    def counts(self) -> Mapping[int, int]:
        """Return how often each element occurs."""
        found: dict[int, int] = {}
        for element in self.elements[-1]:
            found[element] = found.get(element, 0) + 1
        return found

    def wrong_elements(self, n: int) -> list[int]:
        """Return those of `n` elements that the result has not exactly once."""
        counts = self.counts()
        return [element for element in range(n) if counts.get(element, 0) != 1]

    def shape(self) -> str:
        """Return the kind of order in a word or two."""
        sums = [place for place, node in enumerate(self.nodes) if node.operation == "add"]
        if not sums:
            return "no addition"
        single = sum(1 for place in sums if 1 in [len(self.elements[child]) for child in self.nodes[place].children])
        if single == len(sums) and len(sums) > 1 and self.depth == len(sums):
            return "one after the other"
        if (1 << self.depth) >= len(self.elements[-1]) > 1 << (self.depth - 1):
            return "balanced"
        return "mixed"

    def formula(self) -> str:
        """Return the tree as a formula; only for trees that are not deep."""
        return _formula(self, len(self.nodes) - 1)

    def text(self) -> str:
        """Return the tree in lines: each partial sum above what it is made of, small ones as formulas."""
        lines: list[str] = []
        pending = [(len(self.nodes) - 1, "", "")]
        while pending:
            place, first, rest = pending.pop()
            node = self.nodes[place]
            if len(self.elements[place]) <= _INLINE and self.depths[place] < _INLINE:
                lines.append(f"{first}{_formula(self, place)}")
                continue
            sign = "+" if node.operation == "add" else node.operation
            lines.append(f"{first}{sign} {_ranges(self.elements[place])}")
            parts = self.parts(place)
            for number, child in reversed(list(enumerate(parts))):
                last = number == len(parts) - 1
                pending.append((child, rest + ("`- " if last else "|- "), rest + ("   " if last else "|  ")))
        return "\n".join(lines)


def tree_of(terms: Sequence[_Term], result: int) -> Tree:
    """Return the tree of a term, given all terms of a trace."""
    wanted = {result}
    for place in range(result, -1, -1):
        if place in wanted and terms[place].operation != "element":
            wanted.update(terms[place].arguments)
    places = {place: number for number, place in enumerate(sorted(wanted))}
    return Tree(tuple(_node(terms[place], places) for place in sorted(wanted)))


def _node(term: _Term, places: Mapping[int, int]) -> Node:
    if term.operation == "element":
        return Node("element", (), term.arguments[0], term.kind, 0.0)
    children = tuple(places[argument] for argument in term.arguments)
    return Node(term.operation, children, -1, term.kind, term.value if not children else 0.0)


def difference(first: Tree, second: Tree) -> str | None:
    """Return in words the smallest partial sum that only the first of two trees has; None for the same order."""
    if first.same_order(second):
        return None
    there = {second.elements[place] for place, node in enumerate(second.nodes) if node.operation == "add"}
    here = [place for place, node in enumerate(first.nodes) if node.operation == "add"]
    alone = [place for place in here if first.elements[place] not in there]
    if not alone:
        return "the same partial sums, made of other operations"
    place = min(alone, key=lambda each: len(first.elements[each]))
    parts = " and ".join(_ranges(first.elements[child]) for child in first.parts(place))
    return f"the first adds {parts}, whose sum the second never has"


def _formula(tree: Tree, place: int) -> str:
    node = tree.nodes[place]
    parts = [_formula(tree, child) for child in tree.parts(place)]
    if node.operation == "element":
        return str(node.element)
    if node.operation == "number":
        return f"[{node.value:g}]"
    if node.operation == "add":
        return f"({parts[0]} + {parts[1]})"
    if node.operation == "round":
        return parts[0]
    return f"{node.operation}({', '.join(parts)})"


def _ranges(elements: Sequence[int]) -> str:
    """Return elements in words: runs with a constant step are written as such."""
    if len(elements) == 1:
        return str(elements[0])
    steps = {b - a for a, b in pairwise(elements)}
    if len(steps) == 1:
        (step,) = steps
        by = "" if step == 1 else f" by {step}"
        return f"{elements[0]}..{elements[-1]}{by}"
    return f"{len(elements)} elements from {elements[0]} to {elements[-1]}"

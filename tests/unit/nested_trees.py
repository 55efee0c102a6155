"""Summation trees, written as nested pairs."""

from typing import Any

from lowlevel_reduce.workbench.summation import Node, Tree

__all__ = ["tree"]


def tree(shape: Any) -> Tree:
    """Return the tree of nested pairs of elements, each given by its index."""
    nodes: list[Node] = []

    def add(part: Any) -> int:
        if isinstance(part, int):
            nodes.append(Node("element", (), part, "f32", 0.0))
        else:
            children = tuple(add(each) for each in part)
            nodes.append(Node("add", children, -1, "f32", 0.0))
        return len(nodes) - 1

    add(shape)
    return Tree(tuple(nodes))

"""A summation tree as an SVG picture: elements at the bottom, in the order of the tree, and additions above."""

from __future__ import annotations

from html import escape

from lowlevel_reduce.workbench.summation import Tree

__all__ = ["svg"]

_STEP, _ROW, _MARGIN = 16, 28, 14
_LABELLED = 256
"""Up to this many elements have their numbers below them."""


def svg(tree: Tree, title: str) -> str:
    """Return a picture whose lines take the colour of the text around it, so that it suits light and dark pages.

    Parameters
    ----------
    tree : Tree
        The tree.
    title : str
        What a reader who does not see it is told.
    """
    across, leaves = _places(tree)
    width = _STEP * max(1, len(leaves) - 1) + 2 * _MARGIN
    height = _ROW * (tree.depth + 1) + 2 * _MARGIN
    label = escape(title, quote=True)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{label}" '
        'fill="none" stroke="currentColor" font-family="sans-serif" font-size="9">',
        f"<title>{escape(title)}</title>",
    ]
    bottom = height - _MARGIN - 10
    for place, node in enumerate(tree.nodes):
        x, y = across[place], bottom - _ROW * tree.depths[place]
        for child in node.children:
            below = bottom - _ROW * tree.depths[child]
            lines.append(f'<path d="M{x:g} {y}H{across[child]:g}V{below}"/>')
        if node.operation not in ("add", "element", "round", "number"):
            lines.append(_text(x, y - 3, node.operation))
    if len(leaves) <= _LABELLED:
        for place in leaves:
            node = tree.nodes[place]
            text = str(node.element) if node.operation == "element" else f"{node.value:g}"
            lines.append(_text(across[place], bottom + 11, text))
    return "\n".join((*lines, "</svg>", ""))


def _places(tree: Tree) -> tuple[list[float], list[int]]:
    """Return where each node is across the picture, and the leaves from left to right."""
    leaves: list[int] = []
    pending = [len(tree.nodes) - 1]
    across: list[float] = [0.0] * len(tree.nodes)
    seen: set[int] = set()
    while pending:
        place = pending.pop()
        if place in seen:
            continue
        seen.add(place)
        if not tree.nodes[place].children:
            across[place] = _MARGIN + _STEP * float(len(leaves))
            leaves.append(place)
        pending += reversed(tree.parts(place))
    for place, node in enumerate(tree.nodes):
        if node.children:
            across[place] = sum(across[child] for child in node.children) / len(node.children)
    return across, leaves


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle" fill="currentColor" stroke="none">{escape(text)}</text>'

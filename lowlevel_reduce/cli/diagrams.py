"""Diagrams for the lesson, computed and not drawn by hand: banks, divergence, clusters, and a rung's summation tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from lowlevel_reduce.errors import ReduceError
from lowlevel_reduce.ladder import Rung
from lowlevel_reduce.workbench.drawing import svg
from lowlevel_reduce.workbench.order import orders_of_rung

__all__ = ["BANKS", "bank_counts", "banks", "clusters", "divergence", "tree"]

BANKS, _WARP = 32, 32
_TREE_ELEMENTS = 32
_CELL = 18


def tree(rung: Rung) -> str | None:
    """Return the summation tree of a rung over a few elements as SVG; None for a rung whose order cannot be told.

    It is recovered by a traced run on the simulator or, if the rung takes its elements apart, by masks.
    """
    if rung.operation != "sum" or not rung.expected_correct:
        return None
    for by in ("trace", "masks"):
        try:
            orders = orders_of_rung(rung, _TREE_ELEMENTS, 32, seeds=(None,), blocks=(), by=by)
        except (ReduceError, ValueError):  # what cannot be told is not drawn: the page says nothing wrong
            continue
        return svg(orders.tree, f"the order in which {rung.id} adds {_TREE_ELEMENTS} elements")
    return None


def bank_counts(address: Callable[[int], int]) -> list[int]:
    """Return how many different words of each bank the lanes of a warp access, given the word that a lane accesses."""
    words = {address(lane) for lane in range(_WARP)}
    counts = Counter(word % BANKS for word in words)
    return [counts[bank] for bank in range(BANKS)]


def banks() -> str:
    """Return a picture of the banks that a warp accesses with several patterns."""
    patterns: tuple[tuple[str, Callable[[int], int]], ...] = (
        ("s[t]: neighbours", lambda lane: lane),
        ("s[2 t]: every second word", lambda lane: 2 * lane),
        ("s[8 t]: every eighth word", lambda lane: 8 * lane),
        ("tile[t][0] of 32 x 32", lambda lane: 32 * lane),
        ("tile[t][0] of 32 x 33", lambda lane: 33 * lane),
        ("tile[t][0 ^ t] of 32 x 32", lambda lane: 32 * lane + (0 ^ lane)),
        ("s[0]: one word for all", lambda _: 0),
    )
    rows = [(f"{name}: {max(counts)} pass{'es' * (max(counts) > 1)}", counts)
            for name, counts in ((name, bank_counts(address)) for name, address in patterns)]  # fmt: skip
    return _cells(rows, "how many words of each of the 32 banks a warp accesses; the most of them is its passes")


def divergence() -> str:
    """Return a picture of the threads of two warps that add in each step of two trees over 64 elements."""
    steps = (1, 2, 4, 8, 16, 32)
    interleaved = [[int(t % (2 * s) == 0) for t in range(64)] for s in steps]
    sequential = [[int(t < s) for t in range(64)] for s in reversed(steps)]
    rows = [
        (f"{name}, step {number}: {_divergent(active)} of 2 warps diverge", active)
        for name, tree_steps in (("interleaved", interleaved), ("sequential", sequential))
        for number, active in enumerate(tree_steps, 1)
    ]
    return _cells(rows, "which threads of a block of 64 add in each step of a tree", numbers=False)


def clusters() -> str:
    """Return a picture of four blocks of a cluster whose sums meet in the shared memory of the first one."""
    parts = []
    for rank in range(4):
        x = 20 + 150 * rank
        parts.append(f'<rect x="{x}" y="20" width="120" height="46" rx="4"/>')
        parts.append(_text(x + 60, 40, f"block of rank {rank}"))
        parts.append(_text(x + 60, 56, "adds its tile"))
        if rank:
            parts.append(
                f'<path d="M{x + 60} 66V{80 + 8 * rank}H{60 + 10 * rank}V68" marker-end="url(#cluster-arrow)"/>'
            )
    parts.append('<path d="M50 66V126" marker-end="url(#cluster-arrow)"/>')
    parts.append(_text(60, 142, "one atomic for all four"))
    arrow = (
        '<defs><marker id="cluster-arrow" markerWidth="8" markerHeight="8" refX="6" refY="3" orient="auto">'
        '<path d="M0 0L6 3L0 6" /></marker></defs>'
    )
    return _svg(640, 152, "the sums of a cluster's blocks meet in the shared memory of the first", [arrow, *parts])


def _divergent(active: Sequence[int]) -> int:
    warps = [active[first : first + _WARP] for first in range(0, len(active), _WARP)]
    return sum(0 < sum(warp) < len(warp) for warp in warps)


def _cells(rows: Sequence[tuple[str, Sequence[int]]], title: str, *, numbers: bool = True) -> str:
    """Return rows of cells below their names; a cell is the fuller, the more it counts."""
    count = max(len(cells) for _, cells in rows)
    size = _CELL if numbers else _CELL // 2
    height = size + 22
    parts = []
    for row, (name, cells) in enumerate(rows):
        top = row * height
        parts.append(_text(0, top + 12, name, anchor="start"))
        most = max([1, *cells])
        for place, value in enumerate(cells):
            shade = 0 if value == 0 else 0.1 + 0.35 * value / most
            parts.append(
                f'<rect x="{1 + size * place}" y="{top + 17}" width="{size - 1}" height="{size - 1}" '
                f'fill="currentColor" fill-opacity="{shade:.2f}" stroke-opacity="0.4"/>'
            )
            if numbers and value:
                parts.append(_text(size * place + size / 2, top + 17 + size * 0.7, str(value)))
    return _svg(size * count + 2, height * len(rows) + 4, title, parts)


def _svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}" '
        'fill="none" stroke="currentColor" font-family="sans-serif" font-size="11">'
    )
    return "\n".join((head, f"<title>{title}</title>", *parts, "</svg>"))


def _text(x: float, y: float, text: str, *, anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="currentColor" stroke="none">{text}</text>'

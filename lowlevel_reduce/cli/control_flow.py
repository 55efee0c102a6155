"""Finds the loops and the straight-line parts of a kernel's machine code by its control flow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["loops", "straight_parts"]

_LABEL = re.compile(r"^\s*(\.L_x_\d+):")
# The target of a BSSY is where its BSYNC arrives.
_TARGET = re.compile(r"\b(?:BRA|BSSY)\b.*`\((\.L_x_\d+)\)")
_BRANCH = re.compile(r"\b(?:BRA|EXIT|RET)\b")
_LEAVES = re.compile(r"^\s*(?:BRA `|EXIT\b|RET\b)")  # without predicate and condition: never falls through

Edges = Sequence[Sequence[int]]


def loops(lines: Sequence[str]) -> list[list[str]]:
    """Return the natural loops of a listing, each including its label and its branch, in the order of their ends.

    A backward branch closes a loop only if its target dominates it. Compilers put rarely executed code, such as the
    shuffles of a diverged warp, behind the end of a kernel, and branch back from there.
    """
    return [[lines[place] for place in sorted(body)] for body in _bodies(lines)]


def straight_parts(lines: Sequence[str]) -> list[list[str]]:
    """Return the parts of a listing outside of loops that are executed from their first to their last line."""
    inside = set().union(*_bodies(lines))
    found: list[list[str]] = [[]]
    for place, line in enumerate(lines):
        if _LABEL.match(line) or place in inside:
            found.append([])
        if place not in inside:
            found[-1].append(line)
        if _BRANCH.search(line):
            found.append([])
    return [part for part in found if part]


def _bodies(lines: Sequence[str]) -> list[set[int]]:
    after = _successors(lines)
    before: list[list[int]] = [[] for _ in lines]
    for place, targets in enumerate(after):
        for target in targets:
            before[target].append(place)
    reachable = _reached(after, [0])
    found = []
    for place in sorted(reachable):
        for head in after[place]:
            if head < place and place not in _reached(after, [0], without=head):
                found.append(_reached(before, [place], without=head) | {head})
    return found


def _successors(lines: Sequence[str]) -> Edges:
    labels = {match[1]: place for place, line in enumerate(lines) if (match := _LABEL.match(line))}
    found = []
    for place, line in enumerate(lines):
        target = _TARGET.search(line)
        to = [labels[target[1]]] if target and target[1] in labels else []
        if not _LEAVES.match(line) and place + 1 < len(lines):
            to.append(place + 1)
        found.append(to)
    return found


def _reached(edges: Edges, starts: Iterable[int], without: int | None = None) -> set[int]:
    """Return the places that are reachable from `starts`, including these, on paths that avoid the place `without`."""
    found = {start for start in starts if start != without and start < len(edges)}
    left = list(found)
    while left:
        for place in edges[left.pop()]:
            if place != without and place not in found:
                found.add(place)
                left.append(place)
    return found

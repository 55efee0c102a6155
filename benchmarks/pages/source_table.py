"""The table of source D, of sums and maxima beside PyTorch on an A100, with what the same takes here."""

from __future__ import annotations

from pathlib import Path

from benchmarks.measure.figures import AFTER, BACK_TO_BACK, OURS, us_at
from benchmarks.measure.runs import load_cards, with_cell

__all__ = ["CELLS", "beside_torch"]

CELLS = (
    ("sum, 256 x 256", "2.12", "flat", "2^16"),
    ("sum, 256 x 256, axis 0", "1.87", "axes", "sum 2^8 x 2^8, axis 0"),
    ("sum, 256 x 256, axis 1", "–", "axes", "sum 2^8 x 2^8, axis 1"),
    ("sum, 1024 x 1024", "–", "flat", "2^20"),
    ("max, 1024 x 1024", "0.16", "stats", "max 2^20"),
)
"""What source D's table has, and its neighbours: with the source's figure, the suite and its cell."""


def beside_torch(results: Path) -> list[str]:
    """Return the table's lines: each cell of the newest run of each kind of GPU that has it; none if none has any.

    Raises
    ------
    FileError
        If there is no file of suites, or one is malformed.
    """
    cards = list(load_cards(results))
    heads = [f"{card}: one tree, µs | PyTorch, µs | ×" for card in cards]
    lines = [f"| what | the source, × PyTorch | {' | '.join(heads)} |", "| --- | ---: |" + " ---: |" * 3 * len(cards)]
    used = set()
    for what, theirs, suite_name, cell in CELLS:
        cells = []
        found = with_cell(results, suite_name, cell, OURS, "torch")
        for suite in map(found.get, cards):
            if suite is None:
                cells.append("– | – | –")
                continue
            mode = AFTER if AFTER in suite.modes else BACK_TO_BACK
            used.add(f"`{suite.file}` ({'after the kernel that wrote the input' if mode == AFTER else 'back to back'})")
            rows = (suite.of(mode) if len(suite.modes) > 1 else suite).rows
            ours, torch = us_at(rows, cell), us_at(rows, cell, "torch")
            cells.append(f"{ours:.2f} | {torch:.2f} | {torch / ours:.2f}")
        lines.append(f"| {what} | {theirs} | {' | '.join(cells)} |")
    if not used:
        return []
    return [*lines, "", f"From {' and '.join(sorted(used))}; a dash is not measured."]

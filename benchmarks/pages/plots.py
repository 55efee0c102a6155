"""The plots of docs/performance.md: SVG without a background, in colours that are visible on white and on black."""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from benchmarks.measure.figures import OURS, SITUATIONS, Row, digest, median_us

__all__ = ["COLOURS", "GREY", "drawn", "grey", "plot"]

GREY = "#808080"
COLOURS = (
    "#d9730d", "#2f80d0", "#2e9e6b", "#b455c8", "#c9a000", "#d04a5a", "#7a8a99", "#159ca8", "#8a6d3b", "#6b8e23",
)  # fmt: skip
"""As many as whole arrays have contenders; if there were more, colours would repeat."""


WIDE = 6.0
"""Over a wider range of ratios, numbers between 1, 2 and 5 would run into each other."""


def plot(name: str, rows: Sequence[Row], peak_gb_per_s: float | None, file: Path) -> None:
    """Write a suite's plot: for `flat` bandwidth over the length, else ratios to the best peer.

    Of `shapes` it is the distribution of the ratios, of other suites the ratio in each cell. The same rows give the
    same file: it stores text as text and has neither date nor version. Its last line is the digest of the rows
    (`figures.digest`).
    """
    tall = 4.5 if name in ("flat", "shapes") else max(2.5, 0.19 * len(rows))
    with drawn(name, (8, tall)) as (figure, text):
        axes = figure.add_subplot()
        grey(axes)
        if name == "flat":
            _bandwidths(axes, rows, peak_gb_per_s)
        elif name == "shapes":
            _distributions(axes, rows)
        else:
            _ratios(axes, rows)
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    file.write_text("\n".join([*lines, f"<!-- rows {digest(rows)} -->", ""]), encoding="utf-8")


@contextlib.contextmanager
def drawn(name: str, size: tuple[float, float]) -> Iterator[tuple[Figure, io.StringIO]]:
    """Give a figure to draw in, and what holds its SVG after the block, which the same drawing makes the same."""
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none", "font.size": 9}):
        figure, text = Figure(figsize=size, layout="constrained"), io.StringIO()
        yield figure, text
        figure.savefig(
            text, format="svg", transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )


def _bandwidths(axes: Axes, rows: Sequence[Row], peak_gb_per_s: float | None) -> None:
    names = list(dict.fromkeys([OURS, *(name for row in rows for name in row["entries"])]))
    aligned = [row for row in rows if not row.get("shift")]
    for name, colour in zip(names, itertools.cycle(COLOURS), strict=False):
        points = [(row["shape"][0], row["size_bytes"] / us / 1e3) for row in aligned if (us := median_us(row, name))]
        if points:
            axes.plot(*zip(*points, strict=True), label=name, color=colour, linewidth=2.2 if name == OURS else 1.2)
    if peak_gb_per_s:
        axes.axhline(peak_gb_per_s, color=GREY, linestyle="--", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("elements of float32", color=GREY)
    axes.set_ylabel("GB/s", color=GREY)
    axes.legend(frameon=False, labelcolor=GREY)


def _ratios(axes: Axes, rows: Sequence[Row]) -> None:
    measured: list[Any] = [row for row in rows if row.get("ratio") is not None]
    places = range(len(measured))
    ratios = [row["ratio"] for row in measured]
    # Bars begin at 1, where both are equally fast.
    lengths = [ratio - 1 for ratio in ratios]
    axes.barh(places, lengths, left=1, color=[COLOURS[0] if ratio < 1 else COLOURS[1] for ratio in ratios])
    _ratio_axis(axes)
    axes.set_yticks(places, [f"{row['cell']} ({row['best_peer']})" for row in measured], fontsize=7)
    axes.invert_yaxis()


def _distributions(axes: Axes, rows: Sequence[Row]) -> None:
    """Draw, for each situation, what part of the cells has at most which ratio to the best peer."""
    for (mode, name), colour in zip(SITUATIONS.items(), COLOURS, strict=False):
        ratios = sorted(row["ratio"] for row in rows if row.get("mode") == mode and row["ratio"] is not None)
        if ratios:
            parts = [100 * (place + 1) / len(ratios) for place in range(len(ratios))]
            axes.step(ratios, parts, where="post", label=name, color=colour, linewidth=1.6)
    _ratio_axis(axes)
    axes.set_ylabel("% of random cells at or below", color=GREY)
    axes.legend(frameon=False, labelcolor=GREY)


def _ratio_axis(axes: Axes) -> None:
    """Let the axis of ratios be logarithmic, with as many numbers as there is room for."""
    axes.axvline(1, color=GREY, linewidth=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    low, high = axes.get_xlim()
    if high / low > WIDE:
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_minor_formatter("{x:g}")
    axes.set_xlabel("times the speed of the best peer", color=GREY)


def grey(axes: Axes) -> None:
    """Draw the axes in a colour that is visible on white and on black."""
    axes.tick_params(colors=GREY, which="both")
    for spine in axes.spines.values():
        spine.set_color(GREY)

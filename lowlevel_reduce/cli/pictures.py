"""Pictures of the ladder in PNG or SVG: bandwidth and a roofline, or the counters of a simulated run.

They are drawn by matplotlib, which comes with the extra ``plot`` and needs no display.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lowlevel_reduce.cli.rungs import Result
from lowlevel_reduce.cli.session import Session
from lowlevel_reduce.cli.tables import ratio
from lowlevel_reduce.driver import Context

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "SUFFIXES",
    "Roof",
    "counters_picture",
    "inline_svg",
    "intensity_picture",
    "of_session",
    "save",
    "timed_picture",
]

SUFFIXES = (".png", ".svg")
"""The suffixes of picture files."""

_INK = "#1b1f24"  # everything but the bars; `inline_svg` replaces it by the page's text colour
_ROOF = "#d1495b"
_COLOURS = ("#3a7ca5", "#e09f3e", "#5b8e4a", "#8e6bb0", "#a0695a")  # one per system; readable on white and on black
_ROW, _WIDTH = 0.28, 7.5  # inches: the height for a bar, and a picture's width
_LABEL_STEP = 0.052  # the least distance of two labels, as a fraction of the roofline's height, if there is room

# Additions of float32 that a multiprocessor starts per clock (CUDA C++ Programming Guide, arithmetic instructions).
_LANES = {(7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}
_LANES_SINCE_8_6 = 128


@dataclass(frozen=True)
class Roof:
    """The peak performance of a device.

    Attributes
    ----------
    name : str
        Name of the device.
    gb_per_s : float
        Memory bandwidth in 10**9 bytes per second.
    additions_per_s : float
        float32 additions per second.
    """

    name: str
    gb_per_s: float
    additions_per_s: float

    @classmethod
    def of(cls, context: Context) -> Roof:
        """Return the roof for the multiprocessors of a context, at the device's peak clocks."""
        device = context.device
        lanes = _LANES.get(device.compute_capability, _LANES_SINCE_8_6)
        clock_hz = device.attribute("CLOCK_RATE") * 1e3
        return cls(device.name, device.peak_bandwidth / 1e9, context.multiprocessor_count * lanes * clock_hz)


def of_session(results: Sequence[Result], session: Session) -> Figure:
    """Draw a session's results: times, or counters if the device is simulated."""
    return counters_picture(results) if session.simulated else timed_picture(results, Roof.of(session.context))


def timed_picture(results: Sequence[Result], roof: Roof, part: str = "both") -> Figure:
    """Draw bandwidth and roofline of a run on a GPU, side by side, or only one of them.

    Parameters
    ----------
    results : sequence of Result
        The results; those without a time are left out.
    roof : Roof
        The device's roof.
    part : {"both", "bandwidth", "roofline"}
        What to draw.
    """
    timed = [result for result in results if result.record.microseconds and result.record.gb_per_s]
    parts = ("bandwidth", "roofline") if part == "both" else (part,)
    figure = _figure(len(parts) * _WIDTH, max(3.6, 1.2 + _ROW * len(timed)))
    panels = figure.subplots(1, len(parts), squeeze=False)[0]
    for name, axes in zip(parts, panels, strict=True):
        (_bandwidth if name == "bandwidth" else _roofline)(axes, timed, roof)
        _ink(axes)
    return figure


def counters_picture(results: Sequence[Result]) -> Figure:
    """Draw what a simulated device counted for each rung: the reasons for times that it cannot give.

    Parameters
    ----------
    results : sequence of Result
        The results; those without counters, because their kernels were stopped, are left out.
    """
    results = [result for result in results if result.record.counters]
    panels: tuple[tuple[str, list[float]], ...] = (
        (
            "sectors per load request",
            [ratio(result.record.counters, "global_load_sectors", "global_loads") or 0.0 for result in results],
        ),
        *(
            (key.replace("_", " "), [float((result.record.counters or {}).get(key, 0)) for result in results])
            for key in ("bank_conflicts", "divergent_branches", "atomics")
        ),
    )
    figure = _figure(1.6 * _WIDTH, max(3.0, 1.2 + _ROW * len(results)))
    for axes, (title, values) in zip(figure.subplots(1, len(panels), sharey=True), panels, strict=True):
        _bars(axes, results, values)
        axes.set_title(title, fontsize="medium")
        if title != panels[0][0]:
            axes.set_xscale("symlog", linthresh=1)
            axes.set_xlim(0, max(10.0, 30 * max(values, default=0.0)))
            axes.set_xlabel("count (logarithmic above 1)")
        else:
            axes.set_xlim(0, 1.3 * max([1.0, *values]))
            axes.set_xlabel("32-byte sectors")
        _ink(axes)
    return figure


def intensity_picture(results: Sequence[Result], roof: Roof) -> Figure:
    """Draw the roofline with the arithmetic intensity of each rung by its counters: what the roof would allow it.

    W is an addition or comparison for each element but one, Q the bytes that the simulated device counted as read and
    written; no time is needed.

    Parameters
    ----------
    results : sequence of Result
        The results; those without counters of bytes, and transposes, which compute nothing, are left out.
    roof : Roof
        The device's roof.
    """
    points = []
    for result in results:
        counters = result.record.counters or {}
        moved = counters.get("bytes_read", 0) + counters.get("bytes_written", 0)
        if moved and result.rung.operation != "transpose":
            intensity = max(1, result.record.n - 1) / moved
            points.append((result, (intensity, min(intensity * roof.gb_per_s, roof.additions_per_s / 1e9))))
    figure = _figure(1.2 * _WIDTH, max(4.0, 1.2 + 0.2 * len(points)))
    axes = figure.subplots()
    _roof_line(axes, roof, points)
    axes.set_xlabel("arithmetic intensity W/Q, additions per byte read and written")
    axes.set_ylabel("what the roof allows, 10⁹ additions a second")
    _ink(axes)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a picture on a white background, as PNG or SVG according to the file's suffix."""
    import matplotlib  # noqa: PLC0415 - here and below: the extra may not be installed

    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(path, dpi=150, facecolor="white")


def inline_svg(figure: Figure, name: str) -> str:
    """Return a picture as an ``<svg>`` element for a page: transparent, with the page's text colour as its ink.

    Parameters
    ----------
    figure : Figure
        The picture.
    name : str
        Prefix for all ids, which makes them unique among the pictures of a page.
    """
    import matplotlib  # noqa: PLC0415

    file = io.StringIO()
    # Laid out once, since each layout begins at the last one's end and moves it by hundredths of a pixel.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    # With these four set to None there is no metadata block, which would contain network addresses and the time.
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    text = file.getvalue()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'href="#', f'href="#{name}-', text)
    return re.sub(r"url\(#", f"url(#{name}-", text)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure  # noqa: PLC0415

    return Figure(figsize=(width, height), layout="constrained")


def _ink(axes: Axes) -> None:
    axes.tick_params(colors=_INK, which="both")
    for spine in axes.spines.values():
        spine.set_color(_INK)
    for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
        text.set_color(_INK)


def _colours(results: Sequence[Result]) -> list[str]:
    systems = sorted({result.rung.system for result in results})
    return [_COLOURS[systems.index(result.rung.system) % len(_COLOURS)] for result in results]


def _bars(axes: Axes, results: Sequence[Result], values: Sequence[float]) -> None:
    places = range(len(results))
    axes.barh(places, values, color=_colours(results), height=0.7)
    axes.set_yticks(places, [result.rung.id for result in results], fontsize="small")
    axes.set_ylim(len(results) - 0.4, -0.6)  # the first rung on top
    for place, value in zip(places, values, strict=True):
        axes.annotate(f"{value:,.3g}" if value < 1000 else f"{value:,.0f}", (value, place), xytext=(3, 0),
                      textcoords="offset points", va="center", fontsize="x-small", color=_INK)  # fmt: skip


def _bandwidth(axes: Axes, results: Sequence[Result], roof: Roof) -> None:
    _bars(axes, results, [float(result.record.gb_per_s or 0) for result in results])
    axes.axvline(roof.gb_per_s, color=_ROOF, linewidth=1.5)
    axes.annotate(f"peak {roof.gb_per_s:,.0f}", (roof.gb_per_s, 1), xycoords=("data", "axes fraction"), xytext=(-4, -4),
                  textcoords="offset points", ha="right", va="top", fontsize="small", color=_ROOF)  # fmt: skip
    axes.set_xlim(0, 1.12 * max([roof.gb_per_s, *(float(result.record.gb_per_s or 0) for result in results)]))
    axes.set_xlabel("bandwidth, GB/s (10⁹ bytes a second)")
    axes.set_title(f"Bandwidth of each rung on {roof.name}")


def _roofline(axes: Axes, results: Sequence[Result], roof: Roof) -> None:
    results = [result for result in results if result.rung.operation != "transpose"]  # a transpose computes nothing
    _roof_line(axes, roof, [(result, _point(result)) for result in results])
    axes.set_xlabel("arithmetic intensity, operations per byte of input")
    axes.set_ylabel("performance, 10⁹ operations a second")


def _roof_line(axes: Axes, roof: Roof, points: Sequence[tuple[Result, tuple[float, float]]]) -> None:
    """Draw the roof, with its ridge, and a labelled point for each result."""
    ridge = roof.additions_per_s / (roof.gb_per_s * 1e9)
    low, high = 0.03125, max(64.0, 16 * ridge)
    axes.loglog([low, ridge, high], [low * roof.gb_per_s, ridge * roof.gb_per_s, ridge * roof.gb_per_s], color=_ROOF)
    at = [place for _, place in points]
    axes.scatter([x for x, _ in at], [y for _, y in at], c=_colours([result for result, _ in points]), s=18, zorder=3)
    axes.set_xlim(low, high)
    axes.set_ylim(min([1.0, *(y / 2 for _, y in at)]), 3 * ridge * roof.gb_per_s)
    _label_points(axes, [result.rung.id for result, _ in points], at, (1.25 * ridge, 0.9 * ridge * roof.gb_per_s))
    axes.annotate(f"ridge: {ridge:,.1f} additions a byte", (ridge, ridge * roof.gb_per_s), xytext=(0, 6),
                  textcoords="offset points", ha="right", fontsize="small", color=_ROOF)  # fmt: skip
    axes.set_title(f"Roofline: {roof.gb_per_s:,.0f} GB/s, {roof.additions_per_s / 1e12:,.1f}·10¹² float32 additions/s")


def _point(result: Result) -> tuple[float, float]:
    """Return a rung's (operations per byte, 10**9 operations per second)."""
    record = result.record
    operations = max(1, record.n - 1)  # additions or maxima
    microseconds, gb_per_s = float(record.microseconds or math.nan), float(record.gb_per_s or math.nan)
    return operations / (gb_per_s * microseconds * 1e3), operations / (microseconds * 1e3)


def _label_points(
    axes: Axes, names: Sequence[str], points: Sequence[tuple[float, float]], corner: tuple[float, float]
) -> None:
    """Label the points in a column without overlaps, which begins at the corner, right of them, and goes down."""
    to_axes: Any = axes.transData + axes.transAxes.inverted()
    column, top = map(float, to_axes.transform(corner))
    ranked = sorted(zip(points, names, strict=True), key=lambda pair: pair[0][1])
    heights = _spread([float(to_axes.transform(point)[1]) for point, _ in ranked], top)
    for (point, name), height in zip(ranked, heights, strict=True):
        axes.annotate(
            name, point, xytext=(column, height), textcoords="axes fraction", va="center", fontsize="x-small",
            color=_INK, arrowprops={"arrowstyle": "-", "color": _INK, "linewidth": 0.4, "relpos": (0, 0.5)},
        )  # fmt: skip


def _spread(heights: Sequence[float], top: float = 0.97) -> list[float]:
    """Move ascending heights apart where they are too close to each other, within 0.03 and `top`."""
    step = min(_LABEL_STEP, (top - 0.03) / max(1, len(heights)))
    spread = list(heights)
    above = top + step
    for i in reversed(range(len(spread))):
        above = spread[i] = min(spread[i], above - step)
    below = 0.03 - step
    for i in range(len(spread)):
        below = spread[i] = max(spread[i], below + step)
    return spread

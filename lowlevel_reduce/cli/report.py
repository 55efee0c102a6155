"""The ladder as one self-contained HTML page, a lesson: prose beside sources, pictures, times beside counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from typing import Any

from lowlevel_reduce.cli import diagrams, pictures, sass
from lowlevel_reduce.cli.counting import counter_meanings
from lowlevel_reduce.cli.highlighting import marked_html, style_sheet
from lowlevel_reduce.cli.rungs import SIMULATED_N, Options, Result, by_system, climb
from lowlevel_reduce.cli.session import Session, Target, open_session
from lowlevel_reduce.cli.tables import BESIDE, columns, rows, source_b
from lowlevel_reduce.driver import Context
from lowlevel_reduce.errors import ReduceError
from lowlevel_reduce.ladder import SYSTEMS, rung_before, rung_prose, rung_resources, source_diff

__all__ = ["SUFFIXES", "page"]

SUFFIXES = (".html", ".htm")
"""The suffixes of report files."""

Counted = Mapping[str, Mapping[str, Any] | str]


def page(results: Sequence[Result], options: Options, session: Session) -> str:
    """Return the page. After a run on a GPU, this simulates a run of `SIMULATED_N` elements for the counters."""
    import jinja2  # noqa: PLC0415

    counted = _counted(results, options, session)
    layout = columns(simulated=session.simulated)
    if not session.simulated:
        layout = (*layout, *BESIDE)
        results = [_with_counters(result, counted.get(result.rung.id)) for result in results]
    device = session.context.device
    text = resources.files("lowlevel_reduce.cli").joinpath("templates/ladder.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string(text).render(
        title=f"The ladder on {'a simulated ' if session.simulated else ''}{device.name}",
        subtitle=f"{options.n:,} elements of {options.dtype}, block {options.block}, "
        f"compute capability {device.compute_capability[0]}.{device.compute_capability[1]}, "
        f"peak bandwidth {device.peak_bandwidth / 1e9:,.0f} GB/s",
        note=session.note,
        pictures=_pictures(results, session),
        diagrams=_diagrams(),
        colours=style_sheet("pre.source"),
        columns=layout,
        counted_n=None if session.simulated else SIMULATED_N,
        counted=counter_meanings(),
        systems=[
            {
                "name": system,
                "of": SYSTEMS[system],
                "printed": source_b(group, options) if system == "B" else None,
                "rungs": [
                    _section(result, cells, options, session.context, counted.get(result.rung.id, {}))
                    for result, cells in zip(group, rows(group, layout), strict=True)
                ],
            }
            for system, group in by_system(results)
        ],
    )


def _with_counters(result: Result, counters: Mapping[str, Any] | str | None) -> Result:
    """Return a result of a GPU with the counters of a simulated run, for the table."""
    if not isinstance(counters, Mapping):
        return result
    return replace(result, record=replace(result.record, counters=counters))


def _diagrams() -> list[dict[str, str]]:
    return [
        {"name": "divergence", "svg": diagrams.divergence(), "caption": "Divergence: neighbours that add in turn leave "
         "idle lanes in every warp; the first threads that add leave whole warps idle, which cost nothing."},
        {"name": "banks", "svg": diagrams.banks(), "caption": "Banks: shared memory has 32, each 4 bytes wide, and a "
         "warp's access takes as many passes as the fullest bank has words. One word for several lanes is one pass."},
        {"name": "cluster", "svg": diagrams.clusters(), "caption": "Cluster: blocks store into the shared memory of "
         "another one. What that saves is launches and atomics, not bandwidth."},
    ]  # fmt: skip


def _counted(results: Sequence[Result], options: Options, session: Session) -> Counted:
    """Return the counters of each rung: those of the run or, after a run on a GPU, of a simulated one.

    If a rung could not be simulated, the reason is in the place of its counters.
    """
    if session.simulated:
        return {result.rung.id: result.record.counters for result in results if result.record.counters}
    fewer = Options(n=SIMULATED_N, dtype=options.dtype, block=options.block, repeat=1)
    counted: dict[str, Mapping[str, Any] | str] = {}
    with open_session(Target.simulator) as simulated:
        for result in results:
            try:
                (run,) = climb([result.rung], fewer, simulated, title="counting")
                counted[result.rung.id] = run.record.counters or {}
            except ReduceError as error:  # there are times, so the page is written, and says this too
                counted[result.rung.id] = str(error)
    return counted


def _pictures(results: Sequence[Result], session: Session) -> list[dict[str, str]]:
    roof = pictures.Roof.of(session.context)
    if session.simulated:
        caption = "What the simulated device counted for each rung that it did not stop. It tells no time."
        counted = _picture("counters", pictures.counters_picture(results), caption)
        allowed = (
            "W/Q by the counters: the additions that the task takes, and the bytes that a rung reads and writes. All "
            "lie far left of the ridge: what the roof allows follows from the bytes alone."
        )
        return [counted, _picture("roofline", pictures.intensity_picture(results, roof), allowed)]
    bandwidth = (
        "Bytes of the input (of a transpose's output too) by time, for each rung; the line is the peak of the memory, "
        "by its clock and width."
    )
    roofline = (
        "Every rung adds or compares once an element, so all of one element type stand on one vertical, far left of "
        "the ridge: the memory, not the arithmetic, is the roof."
    )
    return [
        _picture("bandwidth", pictures.timed_picture(results, roof, "bandwidth"), bandwidth),
        _picture("roofline", pictures.timed_picture(results, roof, "roofline"), roofline),
    ]


def _picture(name: str, figure: Any, caption: str) -> dict[str, str]:
    return {"name": name, "svg": pictures.inline_svg(figure, name), "caption": caption}


def _section(
    result: Result, cells: list[str], options: Options, context: Context, counters: Mapping[str, Any] | str
) -> dict[str, Any]:
    rung = result.rung
    before = rung_before(rung)
    return {
        "id": rung.id,
        "title": rung.title,
        "cells": cells,
        "as_expected": result.as_expected,
        "before": None if before is None else before.id,
        "prose": rung_prose(rung),
        "tree": diagrams.tree(rung),
        "source": marked_html(source_diff(rung)),
        "kernels": _kernels(result, options, context),
        "counters": [(told.replace("_", " "), counter, f"{count:,}") for told, counter, count in _flat(counters)],
        "uncounted": counters if isinstance(counters, str) else None,
    }


def _flat(counters: Mapping[str, Any] | str) -> list[tuple[str, str, int]]:
    """Return each count with how it is told and the counter that it is of."""
    found: list[tuple[str, str, int]] = []
    if isinstance(counters, str):
        return found
    for name, value in counters.items():
        if isinstance(value, Mapping):
            found.extend((f"{name}: {key}", name, count) for key, count in value.items())
        else:
            found.append((name, name, value))
    return found


def _kernels(result: Result, options: Options, context: Context) -> list[dict[str, Any]]:
    """Return what the page shows of a rung's kernels; if nvdisasm fails, the reason instead of the machine code."""
    dtype = result.record.dtype
    found = []
    for name, facts in rung_resources(result.rung, context, dtype=dtype, block=options.block).items():
        try:
            lines = sass.disassemble(facts.cubin, name)
        except ReduceError as error:  # there are times, so the page is written, and says this too
            what, shown = "not shown", [str(error)]
        else:
            what, shown = sass.hot_part(lines)
        found.append({"name": name, "facts": facts, "sass_heading": f"Machine code of {name}: {what}", "sass": shown})
    return found

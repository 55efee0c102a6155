"""A reduction as it would be launched, in words: its plan and its kernels' resources, alone or side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest

from rich.table import Table

from lowlevel_reduce import layout
from lowlevel_reduce.cli.mapped import Kernel, Shown
from lowlevel_reduce.cli.output import NONE
from lowlevel_reduce.compiler.images import kernel_code
from lowlevel_reduce.dtypes import LANE_BITS
from lowlevel_reduce.strategy.base import RowStrategy
from lowlevel_reduce.strategy.staged_rows import described
from lowlevel_reduce.strategy.whole import Strategy

__all__ = ["Section", "beside", "of_plan", "of_resources", "tables"]

Value = int | str | None
Section = tuple[str, dict[str, Value]]
"""A title, and what is said under it."""


def of_plan(found: Shown) -> list[Section]:
    """Return what would be launched: what is true of all of it, and a section for each kernel, in launch order."""
    kernels = [(kernel.source.entry, _launch(found, kernel)) for kernel in found.kernels]
    return [("", _plan(found)), *kernels]


def of_resources(found: Shown) -> list[Section]:
    """Return what the kernels use, a section for each, after one that says whose kernels they are."""
    whole = {name: said for name, said in _plan(found).items() if name in ("reduction", "GPU", "strategy")}
    return [("", whole), *((kernel.source.entry, _resources(kernel)) for kernel in found.kernels)]


def tables(sections: Sequence[Section]) -> Iterator[Table]:
    """Yield the sections for a console, a table each."""
    for section in sections:
        table = _table(values=1)
        for name, value in _named(section).items():
            table.add_row(name, _text(value))
        yield table


def beside(first: Sequence[Section], second: Sequence[Section]) -> Iterator[Table]:
    """Yield the sections of two reductions side by side, kernel by kernel; what differs is bold and has a mark."""
    nothing: Section = (NONE, {})
    for pair in zip_longest(first, second, fillvalue=nothing):
        table = _table(values=2)
        mine, theirs = map(_named, pair)
        for name in dict.fromkeys((*mine, *theirs)):
            values = [_text(said.get(name)) for said in (mine, theirs)]
            differ = values[0] != values[1]
            table.add_row(f"{'*' if differ else ' '} {name}", *values, style="bold" if differ else "")
        yield table


def _named(section: Section) -> dict[str, Value]:
    title, said = section
    return {"kernel": title, **said} if title else said


def _plan(found: Shown) -> dict[str, Value]:
    request, chosen, device = found.request, found.selection.strategy, found.target.facts
    problem, types = request.problem, request.types
    shape = " x ".join(map(str, request.shape))
    axis = "all axes" if found.wanted.axis is None else f"axis {found.wanted.axis}"
    return {
        "reduction": f"{request.reduction.name} of {shape} {types.element.name}, {axis}",
        "GPU": f"{found.target.architecture}, {device.multiprocessors} multiprocessors"
        f"{'' if device.clusters else ', no clusters'}",
        "problem": f"{_many(problem.rows, 'row')} of {_many(problem.length, 'element')}: {problem.kind}",
        "kept axes": _axes(problem.kept),
        "reduced axes": _axes(problem.reduced),
        "accumulator": f"{types.accumulator}, {request.text.accumulator_bytes} bytes",
        "results": f"{types.result_dtype}, shape {problem.result_shape}"
        f"{'' if request.reduction.results == 1 else f', {request.reduction.results} arrays of them'}",
        "strategy": chosen.name,
        "of which": "; ".join(_numbers(chosen)),
        "because": found.reason,
        "workspace bytes": found.selection.workspace_bytes,
    }


def _axes(axes: Sequence[layout.Axis]) -> str | None:
    """Return axes in words, the innermost first; None if there are none."""
    return ", ".join(f"{axis.size:,} at {axis.stride:,} bytes" for axis in axes) or None


def _numbers(chosen: Strategy | RowStrategy) -> list[str]:
    if isinstance(chosen, Strategy):
        turns = [f"{chosen.tiles_per_block} tiles to a block"] if chosen.tiles_per_block > 1 else []
        partials = _many(chosen.partials, "partial") if chosen.partials else "no partials"
        return [f"{_many(chosen.tiles, 'tile')} of {_leaves(chosen.warps)}", *turns, partials]
    found = [_OF_ROWS[chosen.name](chosen)]
    if chosen.joined > 1:
        found.append(f"{chosen.joined} columns are a row")
    if chosen.staged:
        found = [described(chosen.staged)]
    elif chosen.parts > 1:
        what = "a column" if chosen.joined > 1 else "a row"
        found.append(
            f"{chosen.parts} {'clusters' if chosen.name == 'batch' and chosen.cluster > 1 else 'blocks'} share {what}"
        )
    if chosen.folders:
        found.append(f"{chosen.folders} more fold their partials")
    if chosen.name not in ("columns", "elements"):
        found.append(
            f"{'contiguous' if chosen.contiguous else 'strided'} rows{'' if chosen.aligned else ' at any address'}"
        )
    elif chosen.run > 1:
        found.append(f"first in runs of {chosen.run}")
    elif chosen.parts > 1 and chosen.joined == 1:
        found.append(f"folded by {chosen.folded_by}")
    return found


def _of_columns(chosen: RowStrategy) -> str:
    width, tile = chosen.loads[0], chosen.tile
    each = f"{_many(tile.columns // width, 'thread')} side by side with {_many(width, 'column')} each"
    turns = f", {tile.turns} times" if tile.turns > 1 else ""
    return f"{each}, {_many(tile.vectors, 'vector')} of each column to a block{turns}"


_OF_ROWS: Mapping[str, Callable[[RowStrategy], str]] = {
    "short_rows": lambda chosen: (
        f"{_many(1 << min(chosen.levels, LANE_BITS), 'lane')} to a row, "
        f"{_many(1 << max(chosen.levels - LANE_BITS, 0), 'vector')} to a lane"
    ),
    "rows": lambda chosen: (
        f"{_many(chosen.warps_of_a_row, 'warp')} to a row{', a leaf each' if chosen.in_one_turn else ', in turns'}"
    ),
    "batch": lambda chosen: (
        f"tiles of {_leaves(chosen.warps)}{f', {chosen.cluster} to a cluster' if chosen.cluster > 1 else ''}"
    ),
    "columns": _of_columns,
    "elements": lambda chosen: (
        f"{_many(chosen.tile.columns, 'row')} to a warp, {_many(chosen.warps_of_a_row, 'warp')} to a row, "
        "elements loaded one by one"
    ),
}


def _launch(found: Shown, kernel: Kernel) -> dict[str, Value]:
    config, chosen = kernel.config, found.selection.strategy
    cooperative = isinstance(chosen, Strategy) and chosen.blocks is None  # the device is asked how many blocks it holds
    plain = ("grid", "block", "dynamic_shared_bytes", "cluster")
    attributes = [
        field.name
        for field in dataclasses.fields(config)
        if field.name not in plain and getattr(config, field.name) not in (None, False)
    ]
    return {
        "grid, blocks" + (" at most" if cooperative else ""): config.grid_blocks,
        "block, threads": config.block_threads,
        "cluster, blocks": config.cluster_blocks if config.cluster else None,
        "static shared bytes": kernel.cubin.kernels[kernel.source.entry].shared_bytes,
        "dynamic shared bytes": config.dynamic_shared_bytes,
        "launch attributes": ", ".join(attributes) or None,
    }


def _resources(kernel: Kernel) -> dict[str, Value]:
    use = kernel.cubin.kernels[kernel.source.entry]
    return {
        "registers": use.registers,
        "spilled bytes stored": use.spill_store_bytes,
        "spilled bytes loaded": use.spill_load_bytes,
        "stack bytes": use.stack_bytes,
        "static shared bytes": use.shared_bytes,
        "barriers": use.barriers,
        "code bytes": len(kernel_code(kernel.cubin.data, kernel.source.entry)),
        "threads of a block": kernel.config.block_threads,
        "blocks wanted to fit": kernel.wanted_blocks,
        "that fit unspilled": kernel.resident_blocks,
    }


def _table(*, values: int) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    for _ in range(values):
        table.add_column(overflow="fold")
    return table


def _text(value: Value) -> str:
    if value is None:
        return NONE
    return f"{value:,}" if isinstance(value, int) else value


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _leaves(count: int) -> str:
    return "1 leaf of 4 KiB" if count == 1 else f"{count} leaves of 4 KiB"

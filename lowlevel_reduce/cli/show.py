"""The ``show`` command: what would be launched for a reduction, what its kernels use, their code, or what differs."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import zip_longest
from typing import Any

import typer
from rich.text import Text

from lowlevel_reduce.cli import code, facts, ptx, sass
from lowlevel_reduce.cli.mapped import LINE_INFO, Kernel, Shown, Wanted, shown
from lowlevel_reduce.cli.output import console, note, write_json
from lowlevel_reduce.compiler import compile_program

__all__ = ["View", "against", "run", "view_of", "wanted"]


class View(str, Enum):
    """What is shown."""

    plan = "plan"
    resources = "resources"
    ptx = "ptx"
    sass = "sass"


def run(
    context: typer.Context,
    view: View,
    *,
    lines: bool,
    at: str | None,
    other: str | None,
    no_color: bool,
    as_json: bool,
) -> None:
    """Show a reduction, or how it differs from another.

    Parameters
    ----------
    context : typer.Context
        The command's options.
    view : View
        What to show.
    lines : bool
        Show where code comes from.
    at : str, optional
        Show only the code near this address.
    other : str, optional
        What the other reduction has other options for.
    no_color, as_json : bool
        How to show it.
    """
    of_code = view in (View.ptx, View.sass)
    if (lines or at is not None) and (not of_code or other is not None):
        what = "--lines" if lines else "--at"
        raise ValueError(f"{what} goes with the code of one reduction: with --ptx or --sass, and without --against")
    asked = wanted(context)
    every = [asked] if other is None else [asked, against(context, asked, other)]
    found = [shown(each, lines=lines) for each in every]
    if found[0].note is not None:
        note(found[0].note, as_json=as_json)
    if as_json:
        described = [_as_object(each, view, at) for each in found]
        write_json(described[0] if other is None else {"first": described[0], "second": described[1]})
        return
    out = console(no_color=no_color)
    if of_code:
        for line in _code([_listings(each, view, at) for each in found]):
            out.print(line, soft_wrap=True)
        return
    said = [_said(each, view) for each in found]
    for number, table in enumerate(facts.tables(said[0]) if other is None else facts.beside(*said)):
        out.print(*[""] * (number > 0), table, sep="\n")


def wanted(context: typer.Context) -> Wanted:
    """Return what the options of the command name."""
    return Wanted(**{field.name: context.params[field.name] for field in dataclasses.fields(Wanted)})


def against(context: typer.Context, first: Wanted, text: str) -> Wanted:
    """Return what ``--against`` names: what differs from `first`, written like the options of the command.

    Raises
    ------
    ValueError
        If it is not written like options, or has one that says how to show something.
    """
    names = {field.name for field in dataclasses.fields(Wanted)}
    nested = context.command.make_context("--against", shlex.split(text))
    given = {name for name in nested.params if nested.get_parameter_source(name).name == "COMMANDLINE"}  # type: ignore[union-attr]
    if given - names:
        wrong = ", ".join(sorted(given - names))
        raise ValueError(f"--against takes what to reduce, where and how, and not how to show it: {wrong}")
    changed = {name: nested.params[name] for name in given}
    if "target" in given:
        changed.setdefault("multiprocessors", None)
    return dataclasses.replace(first, **changed)


def view_of(*, plan: bool, resources: bool, ptx: bool, sass: bool) -> View:
    """Return what the options ask for; by default the plan."""
    chosen = [view for view, given in zip(View, (plan, resources, ptx, sass), strict=True) if given]
    if len(chosen) > 1:
        raise ValueError(f"one thing is shown at a time: {' or '.join(f'--{view.value}' for view in chosen)}")
    return chosen[0] if chosen else View.plan


def _said(found: Shown, view: View) -> list[facts.Section]:
    return facts.of_plan(found) if view is View.plan else facts.of_resources(found)


def _as_object(found: Shown, view: View, at: str | None) -> dict[str, Any]:
    if view in (View.ptx, View.sass):
        names = [kernel.source.entry for kernel in found.kernels]
        return {name: code.as_objects(each) for name, each in zip(names, _listings(found, view, at), strict=True)}
    return {title or "plan": said for title, said in _said(found, view)}


def _listings(found: Shown, view: View, at: str | None = None) -> list[code.Listing]:
    every = [_listing(found, kernel, view) for kernel in found.kernels]
    return every if at is None else [code.around(listing, at) for listing in every]


def _listing(found: Shown, kernel: Kernel, view: View) -> code.Listing:
    program, entry = kernel.cubin.program, kernel.source.entry
    lines = LINE_INFO in program.options
    title = f"{entry} for {found.target.architecture}"
    if found.wanted.sources is not None:
        title += f" from {found.wanted.sources}"
    sources = {**found.tree.closure(program.name, program.source).files, program.name: program.source} if lines else {}
    if view is View.sass:
        return code.Listing(title, sass.listing(kernel.cubin.data, entry, places=lines), "04x", sources)
    # A simulated device takes the first text, since PTX is not assembled and so nothing is known to spill.
    program = dataclasses.replace(program, source=kernel.source.text)
    compiled = compile_program(program, found.target.architecture, output="ptx", tree=found.tree)
    return code.Listing(title, ptx.listing(compiled.data.decode()), "5d", sources)


def _code(every: Sequence[Sequence[code.Listing]]) -> Iterator[Text]:
    """Yield the code of a reduction, or how that of two differs, kernel by kernel."""
    if len(every) == 1:
        for listing in every[0]:
            yield Text(listing.title, "bold")
            yield from code.render(listing)
        return
    for before, after in zip_longest(*every):
        nothing = code.Listing("no kernel", (), (before or after).address)
        yield from code.differences(before or nothing, after or nothing)

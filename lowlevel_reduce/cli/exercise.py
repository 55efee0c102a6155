"""``exercise list``, ``start`` and ``check``: a question first, then a kernel to mend, and both checked."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lowlevel_reduce.cli.output import WRONG_RESULT, clean_errors, show, write_json

if TYPE_CHECKING:
    from rich.table import Table

    from lowlevel_reduce.workbench.checking import Checked

__all__ = ["app"]

app = typer.Typer(
    help="Kernels with something to mend: predict, mend, check. No GPU is needed.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON alone on stdout.")]


@app.command(name="list")
def list_all(as_json: Json = False) -> None:
    """Show every exercise, and the ladders whose lesson it is."""
    from lowlevel_reduce.workbench.exercises import EXERCISES  # noqa: PLC0415 - each command pays for its own imports

    with clean_errors():
        if as_json:
            write_json(
                [{"number": e.number, "title": e.title, "systems": e.systems, "file": e.file} for e in EXERCISES]
            )
        else:
            show(_table())


@app.command()
def start(
    number: Annotated[int, typer.Argument(metavar="N", help="The exercise's number.")],
    into: Annotated[Path, typer.Option(metavar="DIR", help="Where to write its file.")] = Path(),
) -> None:
    """Write an exercise's file, with its question and its task, and show what to do next."""
    from lowlevel_reduce.workbench.exercises import exercise  # noqa: PLC0415

    with clean_errors():
        asked = exercise(number)
        target = into / asked.file
        if target.exists():
            raise ValueError(f"{target} is there already: move it away to begin anew")
        shutil.copyfile(asked.start, target)
        head = asked.start.read_text(encoding="utf-8").split("\n\n")[0]
        typer.echo("\n".join(line.removeprefix("//").removeprefix(" ") for line in head.split("\n")))
        typer.echo(f"\n{target} is written: put your answer into its line '// answer: ?', mend the kernel, and run")
        typer.echo(f"    python -m lowlevel_reduce exercise check {target}")


@app.command()
def check(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE...]", help="By default every exercise's file in this folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check files: the answer, the sum, races and other faults, and the counters that the exercise asks for."""
    from lowlevel_reduce.workbench.checking import check as check_file  # noqa: PLC0415

    with clean_errors():
        checked = [(path, check_file(path)) for path in _chosen(files)]
        if as_json:
            write_json([_as_object(path, outcome) for path, outcome in checked])
        else:
            for path, outcome in checked:
                typer.echo("\n".join(_told(path, outcome)))
    if not all(outcome.solved for _, outcome in checked):
        raise typer.Exit(WRONG_RESULT)


def _chosen(files: list[Path] | None) -> list[Path]:
    from lowlevel_reduce.workbench.exercises import EXERCISES  # noqa: PLC0415

    chosen = files or [path for each in EXERCISES if (path := Path(each.file)).exists()]
    if not chosen:
        raise ValueError("there is no exercise's file in this folder: exercise start N writes one")
    return chosen


def _table() -> Table:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from lowlevel_reduce.workbench.exercises import EXERCISES  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("N", "exercise", "ladders"):
        table.add_column(heading, justify="right" if heading == "N" else "left")
    for each in EXERCISES:
        table.add_row(str(each.number), each.title, " ".join(each.systems))
    return table


def _told(path: Path, outcome: Checked) -> list[str]:
    """Return the lines about one file: what is wrong first."""
    asked = outcome.exercise
    lines = [f"{path}: exercise {asked.number}, {asked.title}"]
    if outcome.answer is None:
        lines.append("  the question is not answered: write a letter into the line '// answer: ?', before you mend")
    elif outcome.predicted:
        lines.append(f"  predicted rightly, {asked.answer}): {asked.because}")
    else:
        lines.append(f"  predicted {outcome.answer}), which is not what happens: look at the question again")
    for finding in outcome.wrong:
        lines.append(f"  {finding.place}: {finding.kind}: {finding.message}")
        if finding.text:
            lines.append(f"      {finding.text}")
    for missed in outcome.missed:
        lines.append(f"  {missed.message}" + (f"; most at {', '.join(missed.where)}" if missed.where else ""))
    if outcome.solved:
        lines.append("  solved")
    elif not outcome.reasons:
        lines.append("  the kernel is right, and keeps to what is asked")
    return lines


def _as_object(path: Path, outcome: Checked) -> dict[str, Any]:
    return {
        "file": str(path),
        "exercise": outcome.exercise.number,
        "answer": outcome.answer,
        "predicted": outcome.predicted,
        "solved": outcome.solved,
        "reasons": list(outcome.reasons),
        "missed": [{"what": m.what, "message": m.message, "where": list(m.where)} for m in outcome.missed],
        "found": outcome.found.as_dict(),
    }

"""The ``prebuild --wheel`` command: builds the wheel of kernels, of the documented choice or of named operators."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.table import Table

from lowlevel_reduce.cli.output import progress, show
from lowlevel_reduce.cli.prebuild import named
from lowlevel_reduce.kernel_wheel.building import WheelReport, build_wheel
from lowlevel_reduce.kernel_wheel.choice import ARCHITECTURES, chosen

__all__ = ["as_object", "build", "present"]


def build(
    wheel: Path, ops: Sequence[str], dtypes: Sequence[str], names: Sequence[str], kernels_in: Path | None
) -> WheelReport:
    """Build the wheel, showing the progress.

    Parameters
    ----------
    wheel : Path
        The directory for it.
    ops, dtypes : sequence of str
        Operators and types; without operators those of the documented choice.
    names : sequence of str
        GPUs as ``--for`` names them; without any, the documented architectures.
    kernels_in : Path or None
        Where compiled kernels are kept for another build.

    Raises
    ------
    ValueError
        If types are given without operators.
    """
    if dtypes and not ops:
        raise ValueError("--dtype goes with operators: without any, the wheel has the documented choice of both")
    pairs = list(itertools.product(ops, dtypes or ("float32",))) if ops else list(chosen())
    architectures = [named(name)[0] for name in names] or ARCHITECTURES
    with progress(counted=True) as bar:
        task = bar.add_task("compiling", total=None)

        def advance(total: int) -> None:
            bar.update(task, total=total, advance=1)

        return build_wheel(wheel, architectures, pairs, kernels_in=kernels_in, each=advance)


def as_object(report: WheelReport) -> dict[str, object]:
    """Return the report as ``--json`` prints it."""
    return {
        "wheel": str(report.wheel),
        "bytes": report.size_bytes,
        "kernels": dict(report.kernels),
        "pack_bytes": dict(report.pack_bytes),
    }


def present(report: WheelReport) -> None:
    """Print the report as a table, and where the wheel is on a line of its own, as its path is to be copied."""
    table = Table()
    table.add_column("for")
    table.add_column("kernels", justify="right")
    table.add_column("KiB", justify="right")
    for architecture, kernels in report.kernels.items():
        table.add_row(architecture, str(kernels), f"{report.pack_bytes[architecture] / 2**10:.0f}")
    show(table)
    typer.echo(f"{report.wheel}: {report.size_bytes / 2**20:.1f} MiB")

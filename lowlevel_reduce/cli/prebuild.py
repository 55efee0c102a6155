"""The ``prebuild`` command: compiles the kernels of operators and types for GPUs that need not be present."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from lowlevel_reduce import driver, simulator
from lowlevel_reduce.cli.output import NONE, progress
from lowlevel_reduce.cli.session import open_session
from lowlevel_reduce.errors import NoDriverError
from lowlevel_reduce.prebuilding import BuildTarget, PrebuiltKernel, build_kernels, kernels_of_calls
from lowlevel_reduce.strategy.stubs import KernelSource

__all__ = ["as_objects", "build", "kernels", "named", "render", "targets_of"]


def named(name: str) -> tuple[str, int | None]:
    """Return the architecture that ``--for`` names, by product or itself, and the multiprocessors of a product.

    Raises
    ------
    ValueError
        If there is no such product, or it is not spelled like an architecture.
    """
    if re.fullmatch(r"sm_\w+", name):
        return name, None
    if name not in simulator.device_names():
        known = ", ".join(simulator.device_names())
        raise ValueError(f"--for takes {known}, or an architecture, such as sm_89; not {name!r}")
    device = simulator.by_name(name)
    return "sm_{}{}".format(*device.compute_capability), device.multiprocessors


def targets_of(names: Sequence[str]) -> tuple[BuildTarget, ...]:
    """Return the GPUs that ``--for`` names, each architecture once; without a name, this machine's.

    Raises
    ------
    NoDriverError
        If no GPU is named and this machine has none.
    ValueError, UnsupportedError
        If there is no such product or architecture, or it is too old.
    """
    if names:
        return tuple(dict.fromkeys(BuildTarget.of_architecture(named(name)[0]) for name in names))
    missing = driver.why_unavailable()
    if missing is not None:
        raise NoDriverError(f"there is no GPU to compile for: name one with --for ({missing})")
    with open_session(None) as session:
        return (BuildTarget.of_context(session.context),)


def kernels(
    ops: Sequence[str], dtypes: Sequence[str], target: BuildTarget, *, segmented: bool, options: dict[str, Any]
) -> tuple[KernelSource, ...]:
    """Return the kernels of all combinations, each once."""
    found = (kernels_of_calls(op, dtype, target, segmented=segmented, **options) for op in ops for dtype in dtypes)
    return tuple(dict.fromkeys(itertools.chain.from_iterable(found)))


def build(jobs: Sequence[tuple[BuildTarget, Sequence[KernelSource]]], into: Path | None) -> tuple[PrebuiltKernel, ...]:
    """Compile the kernels of each target, showing the progress."""
    with progress(counted=True) as bar:
        task = bar.add_task("compiling", total=sum(len(sources) for _, sources in jobs))
        built = [
            build_kernels(sources, target, into=into, each=lambda _: bar.advance(task)) for target, sources in jobs
        ]
    return tuple(itertools.chain.from_iterable(built))


def as_objects(built: Sequence[PrebuiltKernel]) -> list[dict[str, object]]:
    """Return the kernels as ``--json`` prints them."""
    return [
        {
            "kernel": kernel.name,
            "architecture": kernel.architecture,
            "registers": kernel.resources.registers if kernel.resources else None,
            "compiled": kernel.compiled,
        }
        for kernel in built
    ]


def render(built: Sequence[PrebuiltKernel]) -> Table:
    """Return the kernels as a table for a console; kernels of the same name, for different launches, share a line."""
    table = Table()
    table.add_column("kernel", overflow="fold")
    table.add_column("for")
    for heading in ("variants", "compiled now", "registers"):
        table.add_column(heading, justify="right")
    by_name: dict[tuple[str, str], list[PrebuiltKernel]] = {}
    for kernel in built:
        by_name.setdefault((kernel.name, kernel.architecture), []).append(kernel)
    for (name, architecture), alike in by_name.items():
        compiled = sum(kernel.compiled for kernel in alike)
        table.add_row(name, architecture, str(len(alike)), str(compiled), _registers(alike))
    return table


def _registers(alike: Sequence[PrebuiltKernel]) -> str:
    """Return the registers of a thread as text, as a range if they differ."""
    found = sorted({kernel.resources.registers for kernel in alike if kernel.resources})
    if not found:
        return NONE
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"

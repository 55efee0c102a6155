"""The ``prebuild`` command: compiles kernels of operators, types and shapes for a GPU that need not be present."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from lowlevel_reduce import driver, simulator
from lowlevel_reduce.cli.output import NONE, progress
from lowlevel_reduce.cli.reduce import parse_axis
from lowlevel_reduce.cli.session import open_session
from lowlevel_reduce.errors import NoDriverError
from lowlevel_reduce.prebuilding import BuildTarget, PrebuiltKernel, build_kernels, kernels_of, kernels_of_segments
from lowlevel_reduce.strategy.stubs import KernelSource

__all__ = ["as_objects", "build", "kernels", "parse_shape", "render", "target_of"]


def target_of(name: str | None, multiprocessors: int | None) -> BuildTarget:
    """Return the GPUs that ``--for`` names, by product or by architecture; without a name, this machine's.

    Raises
    ------
    NoDriverError
        If no GPU is named and this machine has none.
    ValueError
        If there is no such product or architecture, or if ``--multiprocessors`` is missing or not expected.
    """
    if name is not None and re.fullmatch(r"sm_\w+", name):
        if multiprocessors is None:
            raise ValueError(f"--for {name} needs --multiprocessors: how many there are decides which kernels are used")
        return BuildTarget.of_architecture(name, multiprocessors)
    if multiprocessors is not None:
        raise ValueError("--multiprocessors goes with an architecture, such as --for sm_89")
    if name is not None:
        if name not in simulator.device_names():
            known = ", ".join(simulator.device_names())
            raise ValueError(
                f"--for takes {known}, or an architecture, such as sm_89 with --multiprocessors 142; not {name!r}"
            )
        device = simulator.by_name(name)
        return BuildTarget.of_architecture("sm_{}{}".format(*device.compute_capability), device.multiprocessors)
    missing = driver.why_unavailable()
    if missing is not None:
        raise NoDriverError(f"there is no GPU to compile for: name one with --for ({missing})")
    with open_session(None) as session:
        return BuildTarget.of_context(session.context)


def parse_shape(text: str) -> tuple[int, ...]:
    """Return the shape of an argument such as ``--shape 4096x1000``.

    Raises
    ------
    ValueError
        If it is not a shape.
    """
    try:
        return tuple(int(size) for size in text.lower().split("x"))
    except ValueError:
        raise ValueError(f"--shape takes sizes with an x between them, such as 4096x1000; not {text!r}") from None


def kernels(
    ops: Sequence[str],
    dtypes: Sequence[str],
    shapes: Sequence[str],
    axes: Sequence[str],
    target: BuildTarget,
    *,
    segmented: bool,
    options: dict[str, Any],
) -> tuple[KernelSource, ...]:
    """Return the kernels of all combinations, each once."""
    if segmented and (shapes or axes):
        raise ValueError("kernels of segments are the same for all: --shape and --axis do not go with --segments")
    if axes and not shapes:
        raise ValueError("--axis goes with --shape: which kernels reduce an axis depends on the others")
    found: dict[KernelSource, None] = {}
    for op, dtype in itertools.product(ops, dtypes):
        if segmented:
            found.update(dict.fromkeys(kernels_of_segments(op, dtype=dtype, **options)))
        for shape, axis in itertools.product(shapes, axes or (None,)):
            chosen: dict[str, Any] = {**options, "shape": parse_shape(shape), "axis": parse_axis(axis)}
            found.update(dict.fromkeys(kernels_of(op, target, dtype=dtype, **chosen)))
        if not (segmented or shapes):
            found.update(dict.fromkeys(kernels_of(op, target, dtype=dtype, **options)))
    return tuple(found)


def build(sources: Sequence[KernelSource], target: BuildTarget, into: Path | None) -> tuple[PrebuiltKernel, ...]:
    """Compile the kernels, showing the progress."""
    with progress(counted=True) as bar:
        task = bar.add_task("compiling", total=len(sources))
        return build_kernels(sources, target, into=into, each=lambda _: bar.advance(task))


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

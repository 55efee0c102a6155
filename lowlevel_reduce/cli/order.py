"""``order``: the summation tree of a kernel, whether another one has the same, and what it depends on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from lowlevel_reduce import simulator
from lowlevel_reduce.cli.output import write_json
from lowlevel_reduce.errors import ReduceError
from lowlevel_reduce.ladder import RUNGS
from lowlevel_reduce.simulator.machine.control.faults import KernelFault
from lowlevel_reduce.workbench import LaunchOptions, read_source
from lowlevel_reduce.workbench.drawing import svg
from lowlevel_reduce.workbench.findings import fault_finding
from lowlevel_reduce.workbench.order import Orders, orders_of_kernel, orders_of_rung
from lowlevel_reduce.workbench.summation import difference

__all__ = ["Wanted", "run"]

_SHOWN_ADDITIONS = 4096


@dataclass(frozen=True)
class Wanted:
    """What the options of the command name.

    Attributes
    ----------
    kernel, other : str
        Files or rungs; None where there is no other one.
    entry, then, signature : str, optional
        As for ``ladder --source``; of both files.
    n : int
        Elements.
    options : LaunchOptions
        How they are launched.
    by : str
        "trace" or "masks".
    picture : Path, optional
        Where to draw the tree.
    device : str
        The simulated device.
    """

    kernel: str
    other: str | None
    entry: str | None
    then: str | None
    signature: str | None
    n: int
    options: LaunchOptions
    by: str
    picture: Path | None
    device: str = "H200"


def run(wanted: Wanted, *, as_json: bool) -> bool:
    """Recover and print the tree; return whether another kernel, if one is named, adds in the same order.

    Raises
    ------
    ValueError
        If a name is neither a file nor a rung.
    UnsupportedError, CompileError, OSError
        If the kernel cannot be read, launched or traced.
    ReduceError
        If it does something wrong; told at the line of its source.
    """
    if wanted.picture is not None and wanted.picture.suffix != ".svg":
        raise ValueError(f"{wanted.picture} does not end in .svg")
    mine = _orders(wanted, wanted.kernel)
    other = None if wanted.other is None else _orders(wanted, wanted.other)
    if wanted.picture is not None:
        title = f"the order in which {wanted.kernel} adds {wanted.n} elements"
        wanted.picture.write_text(svg(mine.tree, title), encoding="utf-8")
    apart = None if other is None else difference(mine.tree, other.tree)
    if as_json:
        write_json(_as_object(wanted, mine, other, apart))
    else:
        _render(wanted, mine, other, apart)
    return apart is None


def _orders(wanted: Wanted, name: str) -> Orders:
    if name in RUNGS:
        return orders_of_rung(RUNGS[name], wanted.n, wanted.options.block, device=wanted.device, by=wanted.by)
    path = Path(name)
    if path.suffix not in (".cu", ".ptx"):
        raise ValueError(f"{name} is neither a file, .cu or .ptx, nor one of the rungs {', '.join(RUNGS)}")
    major, minor = simulator.by_name(wanted.device).compute_capability
    source = read_source(path, f"sm_{major}{minor}")
    kernel = source.kernel(wanted.entry, wanted.signature)
    then = None if wanted.then is None else source.kernel(wanted.then)
    try:
        return orders_of_kernel(source, kernel, then, wanted.n, wanted.options, device=wanted.device, by=wanted.by)
    except KernelFault as fault:
        found = fault_finding(fault, source)
        raise ReduceError(f"{found.place}: {found.kind}: {found.message}") from fault


def _render(wanted: Wanted, mine: Orders, other: Orders | None, apart: str | None) -> None:
    tree = mine.tree
    kinds = f" in {' and '.join(tree.kinds)}" if any(tree.kinds) else ""
    typer.echo(f"{wanted.kernel}: {wanted.n} elements, blocks of {wanted.options.block} threads")
    typer.echo(f"{tree.shape()}: {tree.additions} additions{kinds}, at most {tree.depth} behind one another")
    if tree.additions <= _SHOWN_ADDITIONS:
        typer.echo(tree.text())
    wrong = tree.wrong_elements(wanted.n)
    if wrong:
        typer.echo(f"not once in the result: {_some(wrong)}")
    typer.echo(_dependence("the schedule", mine.by_schedule, "seed"))
    typer.echo(_dependence("the block size", mine.by_block, "block"))
    if mine.not_run:
        typer.echo(f"it does not run with block {', '.join(map(str, mine.not_run))}")
    if other is not None:
        same = f"{wanted.other} adds in the same order"
        typer.echo(same if apart is None else f"{wanted.other} adds in another order: {apart}")


def _some(elements: list[int]) -> str:
    shown = ", ".join(map(str, elements[:10]))
    return shown if len(elements) <= 10 else f"{shown} and {len(elements) - 10} more"


def _dependence(what: str, tried: tuple[tuple[Any, bool], ...], noun: str) -> str:
    others = [f"{noun} {value}" for value, same in tried if not same]
    if others:
        return f"the order depends on {what}: another one with {', '.join(others)}"
    if not tried:
        return f"no other {noun} was tried"
    return f"the order is the same with {', '.join(f'{noun} {value}' for value, _ in tried)}"


def _as_object(wanted: Wanted, mine: Orders, other: Orders | None, apart: str | None) -> dict[str, Any]:
    tree = mine.tree
    found: dict[str, Any] = {
        "kernel": wanted.kernel,
        "n": wanted.n,
        "shape": tree.shape(),
        "additions": tree.additions,
        "depth": tree.depth,
        "types": list(tree.kinds),
        "tree": [{"operation": node.operation, "element": node.element, "children": list(node.children)}
                 for node in tree.nodes],
        "wrong_elements": tree.wrong_elements(wanted.n),
        "by_schedule": [{"seed": seed, "same": same} for seed, same in mine.by_schedule],
        "by_block": [{"block": block, "same": same} for block, same in mine.by_block],
        "not_run": list(mine.not_run),
    }  # fmt: skip
    if other is not None:
        found |= {"other": wanted.other, "same_order": apart is None, "difference": apart}
    return found

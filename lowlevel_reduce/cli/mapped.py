"""A reduction as it would be launched on a GPU that need not be there: selected, its kernels compiled, not loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lowlevel_reduce import driver
from lowlevel_reduce.cli.prebuild import parse_shape, target_of
from lowlevel_reduce.cli.reduce import parse_axis
from lowlevel_reduce.cli.session import open_session
from lowlevel_reduce.compiler import Cubin, SourceTree
from lowlevel_reduce.compiler.sources import source_tree
from lowlevel_reduce.driver import LaunchConfig
from lowlevel_reduce.plans.array import default_strategy
from lowlevel_reduce.plans.loading import compile_kernel
from lowlevel_reduce.plans.mapping import launch_configs
from lowlevel_reduce.prebuilding import BuildTarget
from lowlevel_reduce.strategy.selection import Request, Selection, choices, request_of, select, why
from lowlevel_reduce.strategy.stubs import OPTIONS, KernelSource

__all__ = ["LINE_INFO", "Kernel", "Shown", "Wanted", "parse_strides", "shown"]

LINE_INFO = "-lineinfo"
"""The compiler's option for code that knows the lines of CUDA C++ that it comes from."""


@dataclass(frozen=True)
class Wanted:
    """A reduction and a GPU, as the options of the command name them; what is not given is None."""

    op: str
    shape: str | None
    axis: str | None
    dtype: str
    strides_bytes: str | None
    accumulate: str | None
    result_dtype: str | None
    where: bool
    initial: bool
    nan: str | None
    map: str | None
    strategy: str | None
    cluster: int | None
    block_threads: int | None
    target: str | None
    multiprocessors: int | None
    sources: str | None


class Kernel(NamedTuple):
    """A kernel of a reduction: its source and cubin, its launch.

    Attributes
    ----------
    wanted_blocks, resident_blocks : int
        How many blocks were to fit on a multiprocessor, and for how many the kernel is compiled, because it spills if
        compiled for more.
    """

    source: KernelSource
    cubin: Cubin
    config: LaunchConfig
    wanted_blocks: int
    resident_blocks: int


class Shown(NamedTuple):
    """A reduction as it would be launched, and a note on the GPU, None if that was named or is there."""

    wanted: Wanted
    target: BuildTarget
    note: str | None
    request: Request
    selection: Selection
    reason: str
    kernels: tuple[Kernel, ...]
    tree: SourceTree


def shown(asked: Wanted, *, lines: bool = False) -> Shown:
    """Return a reduction as it would be launched, its kernels compiled.

    Parameters
    ----------
    asked : Wanted
        The reduction and the GPU.
    lines : bool
        Compile so that the code knows the lines of CUDA C++ that it comes from; it is the same code.
    """
    if asked.shape is None:
        raise ValueError("which kernels a reduction uses depends on the --shape, such as 4096x1000")
    target, note = _target(asked)
    tree = source_tree() if asked.sources is None else _tree(Path(asked.sources))
    request = request_of(
        asked.op,
        shape=parse_shape(asked.shape),
        axis=parse_axis(asked.axis),
        dtype=asked.dtype,
        strides_bytes=None if asked.strides_bytes is None else parse_strides(asked.strides_bytes),
        **{
            name: value
            for name in ("accumulate", "result_dtype", "where", "initial", "nan", "map")
            if (value := getattr(asked, name)) is not None
        },
    )
    strategy, cluster, block_threads = choices(asked.strategy, asked.cluster, asked.block_threads)
    named = strategy or default_strategy(request)
    selection = select(request, target.facts, strategy=named, cluster=cluster, block_threads=block_threads)
    reason = why(request, target.facts)
    if named is not None:
        reason = f"as {'--strategy' if strategy else 'the variable LOWLEVEL_REDUCE_STRATEGY'} says"
    # No device is asked how many blocks of a cooperative grid it holds: what the grid may not exceed is shown.
    chosen = selection.strategy
    configs = launch_configs(chosen, target.facts, lambda: getattr(chosen, "tiles", 1)) if selection.sources else ()
    options = (*OPTIONS, LINE_INFO) if lines else OPTIONS
    kernels = tuple(
        _kernel(source, config, target.architecture, selection, tree, options)
        for source, config in zip(selection.sources, configs, strict=True)
    )
    return Shown(asked, target, note, request, selection, reason, kernels, tree)


def parse_strides(text: str) -> tuple[int, ...]:
    """Return the strides of an argument such as ``--strides-bytes 8000,8``.

    Raises
    ------
    ValueError
        If it does not consist of integers.
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--strides-bytes takes integers with commas between them, not {text!r}") from None


def _target(asked: Wanted) -> tuple[BuildTarget, str | None]:
    """Return the GPU: the one that is named, this machine's, or, without a driver, the simulated one, and a note."""
    if asked.target is None and asked.multiprocessors is None and driver.why_unavailable() is not None:
        with open_session(None) as session:
            return BuildTarget.of_context(session.context)._replace(output="cubin"), session.note
    return target_of(asked.target, asked.multiprocessors)._replace(output="cubin"), None


def _tree(root: Path) -> SourceTree:
    if not (root / "operators.cuh").is_file():
        raise ValueError(f"{root} is no copy of cuda_src: it has no operators.cuh")
    return SourceTree(root)


def _kernel(
    source: KernelSource,
    config: LaunchConfig,
    architecture: str,
    selection: Selection,
    tree: SourceTree,
    options: tuple[str, ...],
) -> Kernel:
    cubin = compile_kernel(source, architecture, tree=tree, options=options)
    given_up = (source.text, *source.spare).index(cubin.program.source)
    wanted = selection.strategy.resident_blocks
    return Kernel(source, cubin, config, wanted, wanted - given_up)

"""A reduction as it would be launched on a GPU that need not be there: selected, its kernels compiled, not loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lowlevel_reduce.arguments import integer
from lowlevel_reduce.cli.prebuild import named
from lowlevel_reduce.cli.reduce import parse_axis
from lowlevel_reduce.cli.session import open_session
from lowlevel_reduce.compiler import Cubin, SourceTree
from lowlevel_reduce.compiler.sources import source_tree
from lowlevel_reduce.driver import LaunchConfig
from lowlevel_reduce.plans.array import default_strategy
from lowlevel_reduce.plans.loading import compile_kernel
from lowlevel_reduce.plans.mapping import facts_of, launch_configs
from lowlevel_reduce.prebuilding import capability_of
from lowlevel_reduce.strategy.selection import Request, Selection, choices, request_of, select, why
from lowlevel_reduce.strategy.stubs import OPTIONS, KernelSource
from lowlevel_reduce.strategy.whole import DeviceFacts

__all__ = ["LINE_INFO", "Kernel", "Shown", "Target", "Wanted", "parse_shape", "parse_strides", "shown", "target_of"]

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


class Target(NamedTuple):
    """The GPU: its architecture, e.g. ``"sm_90"``, and its properties that decide which kernels are used."""

    architecture: str
    facts: DeviceFacts


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
    target: Target
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
    forced = strategy or default_strategy(request)
    selection = select(request, target.facts, strategy=forced, cluster=cluster, block_threads=block_threads)
    reason = why(request, target.facts)
    if forced is not None:
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


def target_of(name: str, multiprocessors: int | None) -> Target:
    """Return the GPU that ``--for`` names, by product or by architecture.

    Raises
    ------
    ValueError, UnsupportedError
        If there is no such product or architecture, or if ``--multiprocessors`` is missing or not expected.
    """
    architecture, of_product = named(name)
    if of_product is None and multiprocessors is None:
        raise ValueError(f"--for {name} needs --multiprocessors: how many there are decides which kernels are used")
    if of_product is not None and multiprocessors is not None:
        raise ValueError("--multiprocessors goes with an architecture, such as --for sm_89")
    capability = capability_of(architecture)
    places = integer(of_product or multiprocessors, "multiprocessors is an integer")
    if places < 1:
        raise ValueError(f"a GPU has a multiprocessor or more, not {places}")
    return Target(architecture, DeviceFacts(capability, places, capability >= (9, 0), cooperative=True))


def _target(asked: Wanted) -> tuple[Target, str | None]:
    """Return the GPU: the one that is named, this machine's, or, without a driver, the simulated one, and a note."""
    if asked.target is not None:
        return target_of(asked.target, asked.multiprocessors), None
    if asked.multiprocessors is not None:
        raise ValueError("--multiprocessors goes with an architecture, such as --for sm_89")
    with open_session(None) as session:
        context = session.context
        return Target(context.device.architecture, facts_of(context)), session.note


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

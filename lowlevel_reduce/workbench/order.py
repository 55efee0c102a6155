"""The order in which a kernel adds, over launches and schedules: by a traced run on the simulator, or by masks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lowlevel_reduce import simulator
from lowlevel_reduce.driver import Buffer, Context, Stream
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.ladder.launches import ReadyRung
from lowlevel_reduce.ladder.registry import Rung, as_switched
from lowlevel_reduce.simulator.machine.control.faults import KernelFault
from lowlevel_reduce.simulator.machine.tracing import Tracing
from lowlevel_reduce.workbench.launching import LaunchOptions, ready
from lowlevel_reduce.workbench.masking import masked_tree
from lowlevel_reduce.workbench.program import OwnKernel, OwnSource
from lowlevel_reduce.workbench.summation import Tree, tree_of

__all__ = ["BLOCKS", "METHODS", "SEEDS", "Orders", "orders_of_kernel", "orders_of_rung"]

SEEDS = (None, 1, 2, 3)
"""Orders of blocks and warps that are tried."""

BLOCKS = (32, 64, 128, 256)
"""Threads of a block that are tried, beside the one that is asked for."""

_KINDS = {"float16": "f16", "float32": "f32", "float64": "f64"}

Values = npt.NDArray[Any]
Made = Callable[[int, Context], AbstractContextManager[Callable[[Values], Values]]]
"""Makes a kernel ready with a block size: what runs it over elements and returns the result, an array of one."""

METHODS = ("trace", "masks")
"""How an order is recovered."""


@dataclass(frozen=True)
class Orders:
    """The orders of a kernel over `n` elements.

    Attributes
    ----------
    tree : Tree
        That of the launch that was asked for, in the natural order of blocks and warps.
    by_schedule : tuple of (int or None, bool)
        Seeds of other orders of blocks and warps, and whether the tree is the same.
    by_block : tuple of (int, bool)
        Other block sizes, and whether the tree is the same.
    not_run : tuple of int
        Block sizes with which the kernel faults, or cannot be launched or traced.
    """

    tree: Tree
    by_schedule: tuple[tuple[int | None, bool], ...]
    by_block: tuple[tuple[int, bool], ...]
    not_run: tuple[int, ...] = ()

    @property
    def depends_on_schedule(self) -> bool:
        """Whether some order of blocks and warps gave another tree."""
        return not all(same for _, same in self.by_schedule)

    @property
    def depends_on_launch(self) -> bool:
        """Whether some block size gave another tree."""
        return not all(same for _, same in self.by_block)


def orders_of_kernel(
    source: OwnSource, kernel: OwnKernel, then: OwnKernel | None, n: int, options: LaunchOptions,
    *, device: str = "H200", seeds: Sequence[int | None] = SEEDS, blocks: Sequence[int] = BLOCKS, by: str = "trace",
) -> Orders:  # fmt: skip
    """Return the orders of one's own kernel.

    Parameters
    ----------
    source, kernel, then : OwnSource, OwnKernel
        The source as PTX, its kernel, and the one that folds its partials, if there is one.
    n : int
        Elements.
    options : LaunchOptions
        The launch that is asked for.
    device, seeds, blocks : optional
        The simulated device, the schedules and the block sizes to try.
    by : {"trace", "masks"}
        By one traced run, or from the results of many runs: see ``machine.tracing`` and `masking`. The latter takes any
        kernel that sums, also one that takes its elements apart.

    Raises
    ------
    UnsupportedError
        If the kernel adds integers, whose order does not matter, or computes in a way that cannot be traced.
    KernelFault
        If it does something wrong.
    """

    @contextmanager
    def made(block: int, context: Context) -> Iterator[Callable[[Values], Values]]:
        with ready(source, kernel, then, n, replace(options, block=block), context) as kernel_made:
            yield kernel_made.sum

    return _orders(made, n, kernel.convention.dtype, options.block, device, seeds, blocks, by)


def orders_of_rung(
    rung: Rung, n: int, block: int, *, device: str = "H200", seeds: Sequence[int | None] = SEEDS,
    blocks: Sequence[int] = BLOCKS, by: str = "trace",
) -> Orders:  # fmt: skip
    """Return the orders of a rung of the ladder that sums; the parameters are those of `orders_of_kernel`.

    Raises
    ------
    UnsupportedError
        If the rung is no sum to one number, or cannot be traced.
    """
    if rung.operation != "sum":
        raise UnsupportedError(f"rung {rung.id} is no sum to one number")
    rung = as_switched(rung)
    dtype = rung.dtype("float32")

    @contextmanager
    def made(threads: int, context: Context) -> Iterator[Callable[[Values], Values]]:
        with Stream.create(context) as stream, Buffer.allocate(n * np.dtype(dtype).itemsize, context) as buffer:
            rung_made = ReadyRung(rung, n, dtype, rung.block or threads, stream)

            def run(values: Values) -> Values:
                buffer.copy_from(values)
                rung_made.run(buffer.pointer)
                return rung_made.result()

            try:
                yield run
            finally:
                rung_made.close()

    return _orders(made, n, dtype, rung.block or block, device, seeds, () if rung.block else blocks, by)


def _orders(
    made: Made, n: int, dtype: str, block: int, device: str, seeds: Sequence[int | None], blocks: Sequence[int], by: str
) -> Orders:
    if dtype not in _KINDS:
        raise UnsupportedError(f"sums of {dtype} are the same in every order, if they do not overflow")
    if by not in METHODS:
        raise ValueError(f"an order is recovered by {' or '.join(METHODS)}, not by {by!r}")
    if n < 1:
        raise ValueError(f"the order is of 1 element or more, not of {n}")
    recover = _traced_tree if by == "trace" else _masked_tree
    first, *others = seeds
    tree = recover(made, n, dtype, block, device, first)
    by_schedule = tuple((seed, recover(made, n, dtype, block, device, seed).same_order(tree)) for seed in others)
    by_block, not_run = [], []
    for threads in blocks:
        if threads != block:
            try:
                by_block.append((threads, recover(made, n, dtype, threads, device, first).same_order(tree)))
            except (UnsupportedError, KernelFault):  # a kernel for one block size
                not_run.append(threads)
    return Orders(tree, by_schedule, tuple(by_block), tuple(not_run))


def _traced_tree(made: Made, n: int, dtype: str, block: int, device: str, seed: int | None) -> Tree:
    """Run traced elements once and return the tree of the result."""
    tracing = Tracing()
    with simulator.use(device, seed=seed, watch=tracing), Context.primary() as context, context.pushed():
        values = tracing.elements(n, _KINDS[dtype]).view(dtype)
        with made(block, context) as run:
            got = np.ascontiguousarray(run(values))
    kind = _KINDS.get(str(got.dtype))
    place = None if kind is None else tracing.number_of(int(got.view(f"u{got.dtype.itemsize}")[0]), kind)
    if place is None:
        raise UnsupportedError(f"the result is {got[0]!r}, which depends on no element in a way that can be traced")
    tree = tree_of(tracing.terms, place)
    numbers = any(node.operation == "number" and node.value != 0 for node in tree.nodes)
    if numbers and len(tree.counts()) < n:
        raise UnsupportedError(
            "elements come into the sum as numbers that were made of their bits, which cannot be traced: "
            "recover the order by masks"
        )
    return tree


def _masked_tree(made: Made, n: int, dtype: str, block: int, device: str, seed: int | None) -> Tree:
    """Return the tree by the results of many runs; with atomics, each run must have the same order."""
    with simulator.use(device, seed=seed), Context.primary() as context, context.pushed(), made(block, context) as run:
        return masked_tree(lambda values: float(run(values)[0]), n, dtype)

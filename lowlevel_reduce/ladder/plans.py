"""Launch plans: the grids, blocks, passes and memory of a rung as functions of the number of elements. Pure."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "WORKSPACE_HEADER_BYTES",
    "Atomic",
    "Axis",
    "Clear",
    "Cooperative",
    "Magnitude",
    "Passes",
    "Permuted",
    "Plan",
    "Pointer",
    "Problem",
    "Production",
    "Shape",
    "Step",
    "Transpose",
    "TwoKernels",
]

WORKSPACE_HEADER_BYTES = 256
"""Size of what precedes the partials of a cooperative rung: its counter, in a memory line of its own."""

_TILE = 32
_WARP = 32
_LONGEST_TILE = 512


@dataclass(frozen=True)
class Pointer:
    """An argument that is an address: which memory, and the offset into it."""

    place: Literal["input", "result", "workspace"]
    offset_bytes: int = 0


@dataclass(frozen=True)
class Step:
    """One launch: a kernel by its entry's name, its grid and block, and its arguments, the input's address first."""

    entry: str
    grid: tuple[int, ...]
    block: int
    arguments: tuple[Pointer | int, ...]
    signature: str = "QQQ"
    cluster: int = 1
    cooperative: bool = False


@dataclass(frozen=True)
class Clear:
    """The memory whose bytes are all set to one value before the first step of every run."""

    place: Literal["result", "workspace"]
    byte: int


@dataclass(frozen=True)
class Problem:
    """The problem that a plan is for.

    Attributes
    ----------
    n : int
        Elements that the caller has.
    block : int
        Threads of a block: a power of two, 32 to 1024.
    entries : tuple of str
        Names of the kernels, in launch order.
    resident_blocks : int
        Blocks that can be resident on the device at once; for a cooperative grid.
    """

    n: int
    block: int
    entries: tuple[str, ...]
    resident_blocks: int = 1


@dataclass(frozen=True)
class Shape:
    """How a rung runs on a problem.

    Attributes
    ----------
    steps : tuple of Step
        The launches, in order. If empty, the library's own plan launches.
    shape : tuple of int
        Shape of the input: ``(n,)``, or that of a matrix, which may use fewer than the available elements.
    results : int
        Elements of the result.
    workspace_bytes : int
        Device memory besides input and result.
    clear : Clear, optional
        Memory that has to be set before each run.
    scale : float
        Factor by which the result is multiplied after it is read.
    levels : int
        The most additions between an element and the result.
    """

    steps: tuple[Step, ...]
    shape: tuple[int, ...]
    results: int = 1
    workspace_bytes: int = 0
    clear: Clear | None = None
    scale: float = 1.0
    levels: int = 64

    @property
    def elements(self) -> int:
        """How many elements of the input take part."""
        return math.prod(self.shape)


class Plan(ABC):
    """One kind of launch plan."""

    @abstractmethod
    def shape(self, problem: Problem) -> Shape:
        """Return how `problem` runs."""


@dataclass(frozen=True)
class Atomic(Plan):
    """One launch, whose threads, warps, blocks or clusters add to one value by atomics.

    Attributes
    ----------
    per_thread : int
        Elements per thread, in a grid that covers the input once.
    max_blocks : int, optional
        Limit of the grid, for kernels that stride over the input.
    cluster : int
        Blocks of a cluster.
    initial : int
        The value that all bytes of the result are set to before the launch.
    """

    per_thread: int = 1
    max_blocks: int | None = None
    cluster: int = 1
    initial: int = 0

    def shape(self, problem: Problem) -> Shape:
        """Return the launch; its grid consists of whole clusters."""
        blocks = _blocks(problem.n, problem.block * self.per_thread, self.max_blocks)
        blocks = _round_up(blocks, self.cluster)
        step = Step(
            problem.entries[0],
            (blocks,),
            problem.block,
            (Pointer("input"), Pointer("result"), problem.n),
            cluster=self.cluster,
        )
        return Shape((step,), (problem.n,), clear=Clear("result", self.initial))


@dataclass(frozen=True)
class Passes(Plan):
    """One kernel, launched again on its own partials until one value is left; two buffers alternate.

    Attributes
    ----------
    per_thread : int
        Elements per thread.
    max_blocks : int, optional
        Limit of the grid, for kernels that stride over the input.
    partial_bytes : int
        Bytes of a partial; partials have the input's type.
    mean : bool
        The kernel halves as it adds: the result must be multiplied by the number of threads for each pass. A small last
        pass uses a small block, which makes that factor smaller.
    """

    per_thread: int = 1
    max_blocks: int | None = None
    partial_bytes: int = 4
    mean: bool = False

    def shape(self, problem: Problem) -> Shape:
        """Return the passes: the first reads the input, the last writes the result."""
        grids: list[int] = []
        blocks: list[int] = []
        counts = [problem.n]
        while not grids or grids[-1] > 1:
            block = min(problem.block, _power_of_two(counts[-1])) if self.mean else problem.block
            blocks.append(block)
            grids.append(_blocks(counts[-1], block * self.per_thread, self.max_blocks))
            counts.append(grids[-1])
        first_bytes = _round_up(grids[0] * self.partial_bytes, 256) if len(grids) > 1 else 0
        second_bytes = grids[1] * self.partial_bytes if len(grids) > 2 else 0
        buffers = [Pointer("workspace", first_bytes * (i % 2)) for i in range(len(grids) - 1)]
        places = [Pointer("input"), *buffers, Pointer("result")]
        steps = tuple(
            Step(problem.entries[0], (grid,), block, (places[i], places[i + 1], counts[i]))
            for i, (grid, block) in enumerate(zip(grids, blocks, strict=True))
        )
        chain = max(-(-count // (grid * block)) for count, grid, block in zip(counts, grids, blocks, strict=False))
        return Shape(
            steps,
            (problem.n,),
            workspace_bytes=first_bytes + second_bytes,
            scale=float(math.prod(blocks)) if self.mean else 1.0,
            levels=sum(chain + int(math.log2(block)) for block in blocks),
        )


@dataclass(frozen=True)
class TwoKernels(Plan):
    """A grid of limited size that writes partials, and a second kernel of one block that folds them.

    Attributes
    ----------
    max_blocks : int
        Limit of the first grid.
    partial_bytes : int
        Bytes of a partial.
    adapted : bool
        Whether the number of elements determines the block, whatever the caller requests: 64 threads below 16 Ki
        elements, 256 below 4 Mi, 1024 above.
    """

    max_blocks: int = 1024
    partial_bytes: int = 4
    adapted: bool = False

    def shape(self, problem: Problem) -> Shape:
        """Return both launches."""
        block = _adapted_block(problem.n) if self.adapted else problem.block
        blocks = _blocks(problem.n, block, self.max_blocks)
        first, second = problem.entries
        partials = Pointer("workspace")
        steps = (
            Step(first, (blocks,), block, (Pointer("input"), partials, problem.n)),
            Step(second, (1,), block, (partials, Pointer("result"), blocks)),
        )
        return Shape(steps, (problem.n,), workspace_bytes=blocks * self.partial_bytes)


@dataclass(frozen=True)
class Cooperative(Plan):
    """One cooperative launch: no more blocks than are resident at once, which stride over the input."""

    def shape(self, problem: Problem) -> Shape:
        """Return the launch; the workspace holds a counter and one partial per block."""
        blocks = min(_blocks(problem.n, problem.block, None), max(problem.resident_blocks, 1))
        arguments = (Pointer("input"), Pointer("result"), problem.n, Pointer("workspace"))
        step = Step(problem.entries[0], (blocks,), problem.block, arguments, "QQQQ", cooperative=True)
        size = WORKSPACE_HEADER_BYTES + 4 * blocks
        return Shape((step,), (problem.n,), workspace_bytes=size, clear=Clear("workspace", 0))


@dataclass(frozen=True)
class Axis(Plan):
    """Sums along one axis of the most nearly square matrix that `n` elements fill; less than a column is left over.

    Attributes
    ----------
    inner : bool
        True: along the last axis, with one block per row. False: along the first, with one block per 32 columns.
    adapted : bool
        Whether the block adapts to the row, whatever the caller requests: the next power of two, 32 to 512 threads.
    """

    inner: bool
    adapted: bool = False

    def shape(self, problem: Problem) -> Shape:
        """Return the launch."""
        rows = math.isqrt(problem.n)
        columns = problem.n // rows if rows else 0
        results = rows if self.inner else columns
        blocks = max(1, rows if self.inner else -(-columns // _WARP))
        arguments = (Pointer("input"), Pointer("result"), rows, columns)
        block = min(_power_of_two(columns), _LONGEST_TILE) if self.adapted else problem.block
        steps = (Step(problem.entries[0], (blocks,), block, arguments, "QQII"),) if results else ()
        return Shape(steps, (rows, columns), results=results)


@dataclass(frozen=True)
class Permuted(Plan):
    """Sums along the first axis of that matrix by a transpose into the workspace, and sums of the transpose's rows."""

    def shape(self, problem: Problem) -> Shape:
        """Return both launches."""
        rows = math.isqrt(problem.n)
        columns = problem.n // rows if rows else 0
        moved = Pointer("workspace")
        tiles = (-(-columns // _TILE), -(-rows // _TILE))
        first, second = problem.entries
        steps = (
            Step(first, tiles, problem.block, (Pointer("input"), moved, rows, columns), "QQII"),
            Step(second, (columns,), problem.block, (moved, Pointer("result"), columns, rows), "QQII"),
        )
        return Shape(steps if columns else (), (rows, columns), results=columns, workspace_bytes=4 * rows * columns)


@dataclass(frozen=True)
class Magnitude(Plan):
    """Three kernels: the largest magnitude, into the workspace's header; partials scaled by it; and their sum.

    Attributes
    ----------
    max_blocks : int
        Limit of the first two grids.
    partial_bytes : int
        Bytes of a partial.
    """

    max_blocks: int = 1024
    partial_bytes: int = 2

    def shape(self, problem: Problem) -> Shape:
        """Return the three launches."""
        blocks = _blocks(problem.n, problem.block, self.max_blocks)
        magnitude, partials = Pointer("workspace"), Pointer("workspace", WORKSPACE_HEADER_BYTES)
        first, second, third = problem.entries
        launched = (blocks,), problem.block
        steps = (
            Step(first, *launched, (Pointer("input"), magnitude, problem.n)),
            Step(second, *launched, (Pointer("input"), partials, problem.n, magnitude), "QQQQ"),
            Step(third, (1,), problem.block, (partials, Pointer("result"), blocks, magnitude, problem.n), "QQQQQ"),
        )
        tree = int(math.log2(problem.block))
        return Shape(
            steps,
            (problem.n,),
            workspace_bytes=WORKSPACE_HEADER_BYTES + self.partial_bytes * blocks,
            clear=Clear("workspace", 0),
            levels=-(-problem.n // (blocks * problem.block)) + -(-blocks // problem.block) + 2 * tree,
        )


@dataclass(frozen=True)
class Transpose(Plan):
    """The transpose of the largest square matrix that `n` elements fill, in tiles of 32 x 32."""

    def shape(self, problem: Problem) -> Shape:
        """Return the launch, with one block per tile."""
        side = math.isqrt(problem.n)
        tiles = -(-side // _TILE)
        arguments = (Pointer("input"), Pointer("result"), side)
        steps = (Step(problem.entries[0], (tiles, tiles), problem.block, arguments),) if side else ()
        return Shape(steps, (side, side), results=side * side)


@dataclass(frozen=True)
class Production(Plan):
    """The library's own plan, `lowlevel_reduce.plan`, which determines its launches itself."""

    def shape(self, problem: Problem) -> Shape:
        """Return a shape without steps."""
        return Shape((), (problem.n,))


def _blocks(n: int, per_block: int, limit: int | None) -> int:
    """Return the number of blocks for `n` elements: at least one, since an empty input has a result too."""
    blocks = max(1, -(-n // per_block))
    return blocks if limit is None else min(blocks, limit)


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _power_of_two(n: int) -> int:
    return max(_WARP, 1 << max(n - 1, 0).bit_length())


def _adapted_block(n: int) -> int:
    return 64 if n < 1 << 14 else 256 if n < 1 << 22 else 1024

# mypy: ignore-errors
"""A two-stage sum in Triton: blocks write partials, one block adds them up. Imported only if Triton is installed."""

import triton
import triton.language as tl

__all__ = ["HAS_INNER_TREE", "inner_tree", "two_stages"]

HAS_INNER_TREE = hasattr(tl, "ReductionOrdering")
"""Whether this Triton can be told in which order a block is added up, so that its number of warps does not matter."""

TILE = 8192
MOST_PARTIALS = 1024


@triton.jit
def _partials(x, partials, n, per_block, TILE: tl.constexpr):  # noqa: ANN001, ANN202, N803
    first = tl.program_id(0).to(tl.int64) * per_block
    lanes = tl.arange(0, TILE)
    total = tl.zeros((TILE,), tl.float32)
    for start in range(0, per_block, TILE):
        at = first + start + lanes
        total += tl.load(x + at, mask=at < n, other=0.0)
    tl.store(partials + tl.program_id(0), tl.sum(total))


@triton.jit
def _total(partials, result, count, MOST: tl.constexpr):  # noqa: ANN001, ANN202, N803
    lanes = tl.arange(0, MOST)
    tl.store(result, tl.sum(tl.load(partials + lanes, mask=lanes < count, other=0.0)))


@triton.jit
def _ordered_partials(x, partials, n, per_block, TILE: tl.constexpr, ORDER: tl.constexpr):  # noqa: ANN001, ANN202, N803
    first = tl.program_id(0).to(tl.int64) * per_block
    lanes = tl.arange(0, TILE)
    total = tl.zeros((TILE,), tl.float32)
    for start in range(0, per_block, TILE):
        at = first + start + lanes
        total += tl.load(x + at, mask=at < n, other=0.0)
    tl.store(partials + tl.program_id(0), tl.sum(total, reduction_ordering=ORDER))


@triton.jit
def _ordered_total(partials, result, count, MOST: tl.constexpr, ORDER: tl.constexpr):  # noqa: ANN001, ANN202, N803
    lanes = tl.arange(0, MOST)
    tl.store(result, tl.sum(tl.load(partials + lanes, mask=lanes < count, other=0.0), reduction_ordering=ORDER))


def inner_tree(torch, x):  # noqa: ANN001, ANN201
    """Return the same, each block added up in the order of a tree."""
    return _sum(torch, x, _ordered_partials, _ordered_total, ORDER=tl.ReductionOrdering.INNER_TREE)


def two_stages(torch, x):  # noqa: ANN001, ANN201
    """Return the sum of a contiguous tensor of float32 as a tensor of one element."""
    return _sum(torch, x, _partials, _total)


def _sum(torch, x, of_blocks, of_partials, **order):  # noqa: ANN001, ANN003, ANN202
    n = x.numel()
    tiles = triton.cdiv(n, TILE)
    blocks = min(tiles, MOST_PARTIALS)
    per_block = triton.cdiv(tiles, blocks) * TILE
    partials = torch.empty(blocks, device=x.device, dtype=torch.float32)
    result = torch.empty(1, device=x.device, dtype=torch.float32)
    of_blocks[(blocks,)](x, partials, n, per_block, TILE=TILE, num_warps=8, **order)
    of_partials[(1,)](partials, result, blocks, MOST=MOST_PARTIALS, num_warps=4, **order)
    return result

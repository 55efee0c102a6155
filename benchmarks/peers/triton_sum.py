# mypy: ignore-errors
"""A two-stage sum in Triton: blocks write partials, one block adds them up. Imported only if Triton is installed."""

import triton
import triton.language as tl

__all__ = ["two_stages"]

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


def two_stages(torch, x):  # noqa: ANN001, ANN201
    """Return the sum of a contiguous tensor of float32 as a tensor of one element."""
    n = x.numel()
    tiles = triton.cdiv(n, TILE)
    blocks = min(tiles, MOST_PARTIALS)
    per_block = triton.cdiv(tiles, blocks) * TILE
    partials = torch.empty(blocks, device=x.device, dtype=torch.float32)
    result = torch.empty(1, device=x.device, dtype=torch.float32)
    _partials[(blocks,)](x, partials, n, per_block, TILE=TILE, num_warps=8)
    _total[(1,)](partials, result, blocks, MOST=MOST_PARTIALS, num_warps=4)
    return result

# mypy: ignore-errors
"""A sum of one block in Triton, compiled to PTX for compute capability 9.0; no GPU is needed."""

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def triton_sum(x, total, n, TILE: tl.constexpr):  # noqa: N803
    lanes = tl.arange(0, TILE)
    tl.store(total, tl.sum(tl.load(x + lanes, mask=lanes < n, other=0.0)))


def ptx() -> str:
    """Return the PTX for tiles of 128 elements and blocks of 64 threads."""
    types = {"x": "*fp32", "total": "*fp32", "n": "i32", "TILE": "constexpr"}
    source = ASTSource(fn=triton_sum, signature=types, constexprs={"TILE": 128})
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 2})
    return made.asm["ptx"]

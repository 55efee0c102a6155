"""The suite of random shapes, which are drawn from a seed, and of shapes that models reduce, in three situations."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.measure.problems import Case
from benchmarks.measure.shapes import drawn, named
from benchmarks.suites.cell import Cell, array_cell

__all__ = ["CELLS", "MODELS", "shapes"]

CELLS, QUICK_CELLS = 300, 6

PEERS = ("torch", "torch.compile", "CuPy", "quack")

CONSUMED = "bias gradient of 4096"

MODELS: Mapping[str, Case] = {
    "token mean": Case("mean", (8, 2048, 4096), 1, "bfloat16"),
    "token mean, short": Case("mean", (64, 77, 1024), 1, "float16"),
    "bias gradient of 4096": Case("sum", (8192, 4096), 0, "bfloat16"),
    "bias gradient of 11008": Case("sum", (16_384, 11_008), 0, "bfloat16"),
    "bias gradient of 768": Case("sum", (32_768, 768), 0, "float32"),
    "batch norm, NCHW": Case("mean_var", (32, 256, 56, 56), (0, 2, 3), "float32"),
    "batch norm, NHWC": Case("mean_var", (32, 56, 56, 256), (0, 1, 2), "float16"),
    "batch norm, late layer": Case("mean_var", (64, 2048, 7, 7), (0, 2, 3), "float16"),
    "global pooling, NCHW": Case("mean", (64, 2048, 7, 7), (2, 3), "float16"),
    "global pooling, NHWC": Case("mean", (64, 7, 7, 2048), (1, 2), "float16"),
    "group norm": Case("mean_var", (8, 32, 10, 64, 64), (2, 3, 4), "bfloat16"),
    "layer norm": Case("mean_var", (8192, 4096), 1, "bfloat16"),
    "layer norm of few tokens": Case("mean_var", (16, 5120), 1, "bfloat16"),
    "vocabulary of 50,257": Case("logsumexp", (2048, 50_257), 1, "bfloat16"),
    "vocabulary of 128,256": Case("logsumexp", (4096, 128_256), 1, "bfloat16"),
    "vocabulary of 151,936": Case("logsumexp", (1024, 151_936), 1, "float32"),
    "vocabulary of 128,256, few tokens": Case("logsumexp", (8, 128_256), 1, "bfloat16"),
    "greedy choice of 151,936": Case("argmax", (64, 151_936), 1, "bfloat16"),
    "absmax of blocks of 128": Case("norm_inf", (8192, 32, 128), 2, "bfloat16"),
    "absmax of blocks of 128 x 128": Case("norm_inf", (32, 128, 56, 128), (1, 3), "bfloat16"),
    "rows of attention scores": Case("logsumexp", (8, 32, 1024, 1024), 3, "bfloat16"),
    "rows of attention scores, decoding": Case("max", (64, 32, 4096), 2, "float16"),
    "heads of attention": Case("sum", (8, 32, 1024, 128), 1, "bfloat16"),
    "video over time": Case("mean", (8, 32, 196, 768), 1, "bfloat16"),
    "video over space": Case("mean", (8, 32, 196, 768), 2, "bfloat16"),
    "volume to channels": Case("mean_var", (2, 64, 64, 64, 64), (2, 3, 4), "float32"),
    "projection of a volume": Case("max", (512, 512, 512), 0, "float32"),
    "slices of a volume": Case("sum", (512, 512, 512), (0, 2), "float32"),
    "norm of a gradient": Case("norm2", (1 << 26,), None, "bfloat16"),
}
"""What models reduce, by what it is there."""


def shapes(*, quick: bool = False, seed: int = 0, cells: int = CELLS) -> list[Cell]:
    """Return the random problems of a seed and those of models, type by type, because elements are made for each."""
    cells = min(cells, QUICK_CELLS) if quick else cells
    models = {f"{label}: {named(case)}": case for label, case in MODELS.items()}
    if quick:
        models = {name: case for name, case in models.items() if name.startswith((CONSUMED, "batch norm, NCHW"))}
    random = {named(case): case for case in (drawn(seed, number) for number in range(cells))}
    found = [_cell(name, case, "model") for name, case in models.items()]
    found += [_cell(name, case, "random") for name, case in random.items()]
    types = list(dict.fromkeys(cell.case.dtype for cell in found if cell.case is not None))
    return sorted(found, key=lambda cell: types.index(cell.case.dtype) if cell.case is not None else 0)


def _cell(name: str, case: Case, kind: str) -> Cell:
    consumed = name.startswith(CONSUMED)
    return array_cell(name, case, PEERS, goal=True, around=True, consumed=consumed, facts={"kind": kind})

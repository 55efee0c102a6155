"""PTX as text, read into kernels whose instructions are decoded."""

from __future__ import annotations

from lowlevel_reduce.simulator.ptx.module import parse

__all__ = ["parse"]

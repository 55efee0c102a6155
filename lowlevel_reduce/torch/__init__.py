"""Operators for PyTorch, imported by who uses it: ``import lowlevel_reduce.torch``.

Reductions and row operations as ``torch.library`` operators, with autograd and fake kernels, so that ``torch.compile``
traces them; and `batch_invariant`, which puts them in the place of torch's own.
"""

from __future__ import annotations

from lowlevel_reduce.torch.invariant import batch_invariant
from lowlevel_reduce.torch.operators import cross_entropy, group_norm, layer_norm, log_softmax, rms_norm, softmax
from lowlevel_reduce.torch.reductions import mean, sum

__all__ = [
    "batch_invariant", "cross_entropy", "group_norm", "layer_norm", "log_softmax", "mean", "rms_norm", "softmax", "sum",
]  # fmt: skip

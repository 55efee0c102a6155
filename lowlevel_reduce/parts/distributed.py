"""`lr.distributed`: one array in parts over the ranks of a group, reduced in one call with the bits of one GPU.

>>> torch.distributed.init_process_group("nccl")
>>> total = lr.distributed.sum(part, length=n)      # on every rank; `part` as lr.shard_lengths cuts the array

A group is torch's ``ProcessGroup`` (None is the default one), a communicator of nccl4py or mpi4py, or any object with
``rank``, ``size`` and ``all_gather(bytes)``. Each rank folds the chunks of its part to partials, the engine gathers
them, and each rank folds all of them. All ranks make the same calls in the same order, as for any collective.

With torch's NCCL and nccl4py everything is in the order of the stream and the host waits for nothing. Other engines
gather on the host, through page-locked memory, or, as an MPI that takes device memory, behind a wait for the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lowlevel_reduce.arguments import shown
from lowlevel_reduce.parts.bound import BoundDistributed
from lowlevel_reduce.parts.calls import plan, reduce
from lowlevel_reduce.parts.groups import Group, forget
from lowlevel_reduce.parts.groups import group_of as group
from lowlevel_reduce.parts.plan import DistributedPlan

__all__ = [
    "BoundDistributed",
    "DistributedPlan",
    "Group",
    "all",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "dot",
    "forget",
    "group",
    "logsumexp",
    "max",
    "mean",
    "mean_var",
    "min",
    "minmax",
    "norm",
    "plan",
    "prod",
    "reduce",
    "softmax_stats",
    "std",
    "sum",
    "sum_squares",
    "var",
]

_NORMS = {1: "norm1", 2: "norm2", float("inf"): "norm_inf"}


def _named(op: str) -> Callable[..., Any]:
    def named(part: Any, group: Any = None, **options: Any) -> Any:
        return reduce(part, op, group, **options)

    named.__name__ = named.__qualname__ = op
    named.__doc__ = f"""Return `{op}` of an array in parts; the options are those of `reduce`."""
    return named


sum, prod, min, max, minmax = (_named(op) for op in ("sum", "prod", "min", "max", "minmax"))
argmin, argmax, any, all = (_named(op) for op in ("argmin", "argmax", "any", "all"))
count_nonzero, mean, var, std, mean_var = (_named(op) for op in ("count_nonzero", "mean", "var", "std", "mean_var"))
sum_squares, logsumexp, softmax_stats, dot = (_named(op) for op in ("sum_squares", "logsumexp", "softmax_stats", "dot"))


def norm(part: Any, group: Any = None, *, ord: float = 2, **options: Any) -> Any:
    """Return the norm of an array in parts: `ord` is 1, 2 or infinity. The other options are those of `reduce`."""
    if isinstance(ord, bool) or ord not in _NORMS:
        raise ValueError(f"a norm is of order 1, 2 or inf, not {shown(ord)}")
    return reduce(part, _NORMS[ord], group, **options)

"""The stub that Python emits for a kernel: types, constants and one entry around code that lives in cuda_src."""

from __future__ import annotations

from dataclasses import dataclass

from lowlevel_reduce.policy import Strategy

__all__ = ["OPTIONS", "SIGNATURE", "KernelSource", "kernel_sources"]

SIGNATURE = "QQQQI"
"""Every entry's arguments: elements, result, length, workspace, count (tiles a block, or partials)."""

OPTIONS = ("-fmad=false",)
"""A product and a sum stay two roundings, as in NumPy."""

_BODIES = {
    "block": ("reduce_cluster.cuh", "reduce_cluster<Operator, {warps}, 1>(elements, result, length, count)"),
    "cluster": ("reduce_cluster.cuh", "reduce_cluster<Operator, {warps}, {cluster}>(elements, result, length, count)"),
    "tiles": ("reduce_tiles.cuh", "reduce_tiles<Operator, {warps}, {cluster}>(elements, result, length, workspace)"),
    "first_pass": ("reduce_two_pass.cuh", "reduce_first_pass<Operator, {warps}>(elements, length, workspace)"),
    "second_pass": ("reduce_two_pass.cuh", "reduce_second_pass<Operator, {warps}>(result, length, workspace, count)"),
    "cooperative": (
        "reduce_cooperative.cuh",
        "reduce_cooperative<Operator, {warps}>(elements, result, length, workspace)",
    ),
}


@dataclass(frozen=True)
class KernelSource:
    """One entry's name and the text to compile."""

    entry: str
    text: str


def kernel_sources(label: str, operator_type: str, strategy: Strategy) -> tuple[KernelSource, ...]:
    """Return the kernels of a strategy in launch order.

    Parameters
    ----------
    label : str
        An identifier for operator and types, e.g. ``"sum_float32_float64_float32"``: the entry's name starts with it.
    operator_type : str
        The operator as a CUDA C++ type.
    strategy : Strategy
        What `policy.choose` returned.
    """
    passes = ("first_pass", "second_pass") if strategy.name == "two_pass" else (strategy.name,)
    return tuple(_source(label, operator_type, name, strategy) for name in passes)


def _source(label: str, operator_type: str, kernel: str, strategy: Strategy) -> KernelSource:
    header, call = _BODIES[kernel]
    entry = f"{label}_{kernel}"
    body = call.format(warps=strategy.warps, cluster=strategy.cluster)
    text = f"""\
#include "operators.cuh"
#include "{header}"
using Operator = {operator_type};
extern "C" __global__ void __launch_bounds__({strategy.block_threads}, {strategy.resident_blocks})
{entry}(const void* elements, void* result, uint64 length, void* workspace, uint32 count)
{{
    {body};
}}
"""
    return KernelSource(entry, text)

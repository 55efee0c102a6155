"""Every rung of the ladder: its name, the file of its kernels, what it needs, and how it is launched."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from lowlevel_reduce.compiler import source_root
from lowlevel_reduce.driver import Device
from lowlevel_reduce.ladder.plans import (
    Atomic,
    Axis,
    Cooperative,
    Magnitude,
    Passes,
    Permuted,
    Plan,
    Production,
    Transpose,
    TwoKernels,
)

__all__ = [
    "BLOCKS",
    "RUNGS",
    "SYSTEMS",
    "VERSION_VARIABLE",
    "Rung",
    "System",
    "as_switched",
    "published_text",
    "rung_before",
]


class System(NamedTuple):
    """A ladder: what it climbs, the text that it comes from, and the GPU that the text's figures are of."""

    title: str
    source: str
    gpu: str


SYSTEMS = MappingProxyType(
    {
        "A": System(
            "from an atomic to a cluster",
            "CUDA 算子工程:手写 FlashAttention v2 之路, chapter 5",
            "H100 SXM5",
        ),
        "B": System("passes", "CUDA编程:Parallel Reduction 并行归约与 Warp Shuffle 优化, lesson 10", "Tesla T4"),
        "C": System("the samples' ladder, and tensor cores", "Cuda Reduce优化笔记", "RTX 4090"),
        "D": System(
            "two stages, axes, precision",
            "Genesis框架中Reduction操作的优化之路：从原理到实践",
            "A100 40 GB",
        ),
        "E": System("a course's ladder", "Notes of a course on parallel sums, without a title", "not named"),
    }
)
"""The ladders by their letters; docs/sources.md tells of their texts."""

BLOCKS = (32, 64, 128, 256, 512, 1024)
"""Threads that a block may have."""

VERSION_VARIABLE = "LOWLEVEL_REDUCE_RUNG"
"""The environment variable that switches the rung ``switched``: "v1", "v2" or "v3", by default "v3"."""

_VERSIONS = {"v1": Passes(), "v2": Passes(), "v3": Passes(per_thread=4)}
_ALL_ONES = 0xFF  # the result before any float has been combined with it: see v0_atomic_max_ordered.cu


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One step of a ladder. Immutable.

    Attributes
    ----------
    id : str
        Its public name.
    system : str
        The ladder that it belongs to: "A" to "E".
    title : str
        What it changes, in one line.
    file : str
        Its source file, relative to ``cuda_src``.
    entries : tuple of str
        Names of its kernels, in launch order.
    operation : str
        "sum", "max", "inner" and "outer" (sums along an axis), or "transpose".
    dtypes : tuple of str
        Element types that it takes.
    result : str
        Type of the result; "" for the type of the elements.
    plan : Plan
        How grid, block, shared memory and passes follow from the number of elements.
    constants : tuple of (str, int)
        Macros that its source is compiled with, besides BLOCK and HALF.
    block : int, optional
        Threads of a block, if the rung fixes them.
    needs : tuple of str
        What a device must support: "cluster", "cooperative", "tensor_cores".
    published : Mapping, optional
        The figures that its source published, for the source's own GPU: "gb_per_s" and "percent" of the peak, or
        "milliseconds".
    expected_correct : bool
        Whether the result is meant to be right.
    after : str, optional
        Id of the rung to compare it with, if that is not the one before it in its system.
    """

    id: str
    system: str
    title: str
    file: str
    entries: tuple[str, ...]
    plan: Plan
    operation: str = "sum"
    dtypes: tuple[str, ...] = ("float32",)
    result: str = "float32"
    constants: tuple[tuple[str, int], ...] = ()
    block: int | None = None
    needs: tuple[str, ...] = ()
    published: Mapping[str, float] | None = None
    expected_correct: bool = True
    after: str | None = None

    @property
    def source(self) -> Path:
        """The file with its kernels."""
        return source_root() / self.file

    def dtype(self, preferred: str) -> str:
        """Return the element type that it runs with: `preferred`, or float16 if the rung takes only that.

        Raises
        ------
        ValueError
            If it takes only other types.
        """
        if preferred in self.dtypes:
            return preferred
        if self.dtypes == ("float16",):
            return "float16"
        raise ValueError(f"rung {self.id} takes elements of type {' or '.join(self.dtypes)}, not {preferred}")

    def lacking(self, device: Device) -> str | None:
        """Return in words what a device lacks to run it; None if it lacks nothing."""
        has = {
            "cluster": device.supports_clusters,
            "cooperative": device.supports_cooperative_launch,
            "tensor_cores": device.compute_capability >= (8, 0),
        }
        words = {
            "cluster": "thread-block clusters (compute capability 9.0)",
            "cooperative": "cooperative launches",
            "tensor_cores": "tensor cores with m16n8k16 products (compute capability 8.0)",
        }
        missing = [words[need] for need in self.needs if not has[need]]
        return f"{device.name} has no {' and no '.join(missing)}" if missing else None


def as_switched(rung: Rung) -> Rung:
    """Return the rung in the version that the environment selects; only the rung ``switched`` has versions.

    Raises
    ------
    ValueError
        If the value of `VERSION_VARIABLE` is not a version.
    """
    if rung.id != "switched":
        return rung
    version = os.environ.get(VERSION_VARIABLE) or "v3"
    if version not in _VERSIONS:
        raise ValueError(f"{VERSION_VARIABLE} is one of {', '.join(_VERSIONS)}, not {version!r}")
    return replace(rung, constants=(("VERSION", int(version[1:])),), plan=_VERSIONS[version])


def published_text(published: Mapping[str, float] | None) -> str | None:
    """Return a source's published figure as tables show it: its % of the peak, else its time; None without figures."""
    if not published:
        return None
    return f"{published['percent']:g}" if "percent" in published else f"{published['milliseconds']:.2f} ms"


def _published(gb_per_s: float, percent: float) -> Mapping[str, float]:
    return MappingProxyType({"gb_per_s": gb_per_s, "percent": percent})


def _milliseconds(value: float) -> Mapping[str, float]:
    return MappingProxyType({"milliseconds": value})


def _rung(system: str, name: str, title: str, plan: Plan, **options: object) -> Rung:
    fields = {"file": f"ladder/{name}.cu", "entries": (name,), **options}
    return Rung(id=name, system=system, title=title, plan=plan, **fields)  # type: ignore[arg-type]


def _two_kernels(system: str, name: str, title: str, plan: Plan, **options: object) -> Rung:
    return _rung(system, name, title, plan, entries=(f"{name}_first", f"{name}_second"), **options)


def _tuned(rung: Rung, plan: Plan, **constants: int) -> Rung:
    """Return another form of a rung: the same source, tuned for the H200 with more loads in flight, for example."""
    return replace(
        rung,
        id=f"{rung.id}_tuned",
        title=f"{rung.title}; tuned: {', '.join(f'{k.lower()} {v}' for k, v in constants.items())}, block 512",
        plan=plan,
        constants=tuple(constants.items()),
        block=512,
        published=None,
        after=rung.id,
    )


def _maxima(name: str, plan: Plan, title: str, **options: object) -> tuple[Rung, Rung]:
    ordered, swap = f"{name}_max_ordered", f"{name}_max_cas"
    return (
        _rung("A", ordered, f"max by integer-ordered atomics, {title}", plan, operation="max", after=name, **options),
        _rung("A", swap, f"max by compare-and-swap, {title}", plan, operation="max", after=ordered, **options),
    )


def _system_a() -> tuple[Rung, ...]:
    loads = (("LOADS", 1),)
    v4 = _rung("A", "v4_float4", "one 16-byte load a thread", Passes(4), constants=loads,
               published=_published(2400, 72))  # fmt: skip
    v5 = _rung("A", "v5_warp_shuffle", "warp shuffles, one barrier", Passes(4), constants=loads, after=v4.id,
               published=_published(2800, 84))  # fmt: skip
    v6 = _rung("A", "v6_block_atomic", "no partials: one atomic a block", Atomic(4), constants=loads, after=v5.id,
               published=_published(3050, 91))  # fmt: skip
    v7 = _rung("A", "v7_cluster", "blocks meet in distributed shared memory: one atomic a cluster",
               Atomic(4, cluster=16), constants=(*loads, ("CLUSTER", 16)), needs=("cluster",), after=v6.id,
               published=_published(3250, 97))  # fmt: skip
    return (
        _rung("A", "v0_atomic", "every element a global atomic", Atomic(), published=_published(50, 1.5)),
        _rung("A", "v1_shared_interleaved", "a tree in shared memory, neighbours first, and partials", Passes(),
              published=_published(700, 21)),
        _rung("A", "v2_shared_sequential", "the first half of the threads adds the second half", Passes(),
              published=_published(1100, 33)),
        _rung("A", "v3_two_loads", "two elements a thread before the tree", Passes(2)),
        _rung("A", "v3_four_loads", "four elements a thread before the tree", Passes(4),
              published=_published(1800, 54)),
        v4, _tuned(v4, Passes(32), LOADS=8),
        v5, _tuned(v5, Passes(32), LOADS=8),
        v6, _tuned(v6, Atomic(32), LOADS=8),
        v7, _tuned(v7, Atomic(48, cluster=2), LOADS=12, CLUSTER=2),
        _rung("A", "v8_one_tree", "the library's own: the same bits from every launch", Production(),
              file="whole/reduce_tiles.cuh", entries=(), after="v7_cluster"),
        *_maxima("v0_atomic", Atomic(initial=_ALL_ONES), "one an element"),
        *_maxima("v6_block_atomic", Atomic(4, initial=_ALL_ONES), "one a block"),
        *_maxima("v7_cluster", Atomic(4, cluster=16, initial=_ALL_ONES), "one a cluster", needs=("cluster",)),
    )  # fmt: skip


def _system_b() -> tuple[Rung, ...]:
    return (
        _rung("B", "atomic", "every element a global atomic", Atomic(), published=_milliseconds(133.74)),
        _rung("B", "shared", "trees in shared memory, in passes", Passes(2), published=_milliseconds(4.22)),
        _rung("B", "shuffle", "warp shuffles, in passes", Passes(2), published=_milliseconds(3.87)),
    )


def _system_c() -> tuple[Rung, ...]:
    half = {"dtypes": ("float16",), "needs": ("tensor_cores",)}
    return (
        _rung("C", "reduce0", "a tree in shared memory by the modulo", Passes()),
        _rung("C", "modulo_and", "the modulo as a mask", Passes()),
        _rung("C", "reduce1", "strided index: no modulo, but bank conflicts", Passes(), after="reduce0"),
        _rung("C", "reduce2", "sequential addressing", Passes()),
        _rung("C", "reduce3", "first addition during the load", Passes(2)),
        _rung("C", "reduce4", "warp shuffles for the last warp", Passes(2)),
        _rung("C", "reduce5", "unrolled: the block size is a constant", Passes(2)),
        _rung("C", "reduce6", "many elements a thread", Passes(2, max_blocks=1024)),
        _rung("C", "reduce7", "warp sums first, one barrier", Passes(2, max_blocks=1024)),
        _rung("C", "tcu_reduce16", "tensor cores: rows of 16 times a matrix of ones", Atomic(8), **half),
        _rung("C", "tcu_reduce256", "tensor cores: a running product, then one more", Atomic(8, 1024), **half),
    )


def _system_d() -> tuple[Rung, ...]:
    half = {"dtypes": ("float16",)}
    return (
        _two_kernels("D", "two_stage", "two kernels, the block adapted to the length", TwoKernels(adapted=True)),
        _rung("D", "inner_axis", "sums along the last axis, a block a row", Axis(inner=True), operation="inner"),
        _rung("D", "outer_axis", "sums along the first axis, a lane a column", Axis(inner=False), operation="outer"),
        _two_kernels("D", "permuted_axis", "sums along the first axis: a transpose, then rows", Permuted(),
                     operation="outer"),
        _rung("D", "one_tile", "sums along the last axis, the block adapted to the row",
              Axis(inner=True, adapted=True), operation="inner", after="inner_axis"),
        _two_kernels("D", "kahan", "compensated summation in float32", TwoKernels(partial_bytes=8), after="two_stage"),
        _rung("D", "switched", f"v1, v2 or v3, by the variable {VERSION_VARIABLE}", _VERSIONS["v3"]),
        _rung("D", "float16_narrow", "float16 added up in float16", Passes(max_blocks=1024, partial_bytes=2),
              result="float16", **half),
        _two_kernels("D", "float16_promoted", "float16 added up in float32", TwoKernels(), **half),
        _rung("D", "float16_scaled", "float16 means: no sum can overflow", Passes(partial_bytes=2, mean=True),
              result="float16", **half),
        _rung("D", "float16_magnitude", "float16 scaled by the largest magnitude", Magnitude(), result="float16",
              entries=tuple(f"float16_magnitude_{part}" for part in ("first", "second", "third")), **half),
    )  # fmt: skip


def _system_e() -> tuple[Rung, ...]:
    both = {"dtypes": ("float32", "float16")}
    moved = {**both, "operation": "transpose", "result": ""}
    return (
        _rung("E", "race", "a plain +=, wrong on purpose", Atomic(), expected_correct=False, **both),
        _rung("E", "element_atomic", "every element a global atomic", Atomic(), **both),
        _rung("E", "warp_serial", "lane 0 adds its warp's elements, one atomic a warp", Atomic(), **both),
        _rung("E", "warp_serial_strided", "lane 0 strides over a fixed grid's share", Atomic(max_blocks=1024), **both),
        _rung("E", "warp_serial_one_loop", "the same in one loop", Atomic(max_blocks=1024), **both),
        _rung("E", "block_serial", "one thread adds its block's elements, one atomic a block", Atomic(),
              after="warp_serial", **both),
        _rung("E", "shared_tree_conflicting", "a tree in shared memory, with bank conflicts", Atomic(), **both),
        _rung("E", "shared_tree", "a tree in shared memory, without bank conflicts", Atomic(), **both),
        _rung("E", "shuffle_warp_atomic", "shuffles, one atomic a warp", Atomic(), **both),
        _rung("E", "shared_shuffle", "shuffles on both levels", Atomic(), **both),
        _two_kernels("E", "two_pass", "partials, and a second kernel of one block", TwoKernels(), **both),
        _rung("E", "grid_sync", "one cooperative kernel with a barrier of the grid", Cooperative(),
              needs=("cooperative",), **both),
        _rung("E", "transpose_conflicting", "a tile of 32 x 32: columns in one bank", Transpose(), **moved),
        _rung("E", "transpose_padded", "a tile of 32 x 33: columns across the banks", Transpose(), **moved),
        _rung("E", "transpose_swizzled", "columns across the banks by an exclusive or", Transpose(), **moved),
    )  # fmt: skip


RUNGS: dict[str, Rung] = {
    rung.id: rung for system in (_system_a, _system_b, _system_c, _system_d, _system_e) for rung in system()
}
"""Every rung by its id, system by system, in the order of the ladder."""


def rung_before(rung: Rung) -> Rung | None:
    """Return the rung to compare a rung with, which is the one that it improves upon; None for a system's first."""
    if rung.after is not None:
        return RUNGS[rung.after]
    ids = [other.id for other in RUNGS.values() if other.system == rung.system]
    place = ids.index(rung.id)
    return RUNGS[ids[place - 1]] if place else None

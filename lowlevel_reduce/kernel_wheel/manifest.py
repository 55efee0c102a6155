"""The manifest of a pack: what a runtime without Python needs to find, load and launch its kernels, as JSON.

`docs/embedding.md` says what each field means; `examples/launch_from_wheel.cpp` reads it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lowlevel_reduce.compiler import Cubin
from lowlevel_reduce.compiler.pack import Pack
from lowlevel_reduce.dtypes import LANES, VECTOR_BYTES
from lowlevel_reduce.layout import MAX_AXES
from lowlevel_reduce.operators import Reduction, Types
from lowlevel_reduce.strategy.base import WARPS, ArgumentKind, RowStrategy
from lowlevel_reduce.strategy.fields import FIELDS, signature
from lowlevel_reduce.strategy.stubs import ANYWHERE, KernelSource
from lowlevel_reduce.strategy.whole import HEADER_BYTES, MIN_TILE_LEAVES, PORTABLE_CLUSTER, slot_bytes

__all__ = ["FORMAT", "MadeKernel", "argument_layouts", "grid_rule", "manifest_of", "role_of"]

FORMAT = 1
"""The version of the manifest's form: a reader refuses one that it does not know."""

_ENTRY_DIGEST_BYTES = 32  # what follows the cubin in an entry of a pack

_OF_AN_AXIS = ("size", "reciprocal", "stride", "second_stride")
_SHAPE = (
    *("apart", "step", "in_run", "second_apart"),
    *("kept.count", "reduced.count"),
    *(
        name
        for i in range(MAX_AXES)
        for name in (*(f"kept.{what}[{i}]" for what in _OF_AN_AXIS), f"result_stride[{i}]")
    ),
    *(f"reduced.{what}[{i}]" for what in _OF_AN_AXIS for i in range(MAX_AXES)),
    *("low", "high", "far", "permuted", "joined", "run", "folders"),
)
_SHORT_ROWS: tuple[str | tuple[str, ...], ...] = (
    ("levels", "lane_bits", "step_bits", "group_bits", "held_bits", "row_bits", "warps", "in_part"),
    ("whole_blocks", "present", "among", "idle", "results"),
    *(f"{what}[{i}]" for what in ("apart", "second_apart") for i in range(3)),
    *("low_second", "high_second"),
)
_WHOLE = ("block", "cluster", "few_tiles", "tiles", "whole")
_ROLES = (
    *_WHOLE,
    *("short_rows_strided", "short_rows", "rows_strided", "rows", "at_once", "batch_strided", "batch"),
    *("columns_strided_wide", "columns_strided", "columns_wide", "columns", "elements"),
)
"""A name that ends another one comes after it."""

_TYPES = {"Q": "uint64", "q": "int64"}
_NARROW = {"whole_blocks": ("uint32", 4)}
"""Types and bytes of fields that share a word with others; of all others one byte."""


class MadeKernel(NamedTuple):
    """A kernel of a family, compiled: of which operator and types, and the name of its entry in the pack."""

    reduction: Reduction
    types: Types
    source: KernelSource
    cubin: Cubin
    entry_name: str


def manifest_of(version: str, pack: Pack, file: str, kernels: Sequence[MadeKernel]) -> dict[str, Any]:
    """Return the manifest of a pack.

    Parameters
    ----------
    version : str
        The library's version.
    pack : Pack
        What was written.
    file : str
        The name of its file.
    kernels : sequence of MadeKernel
        The kernels, each once.
    """
    return {
        "format": FORMAT,
        "version": version,
        "architecture": pack.architecture,
        "pack": file,
        "blocks": [block._asdict() for block in pack.blocks],
        "arguments": argument_layouts(),
        "workspace": {"header_bytes": HEADER_BYTES, "leaves_per_slot": MIN_TILE_LEAVES},
        "kernels": [_kernel(pack, kernel) for kernel in kernels],
    }


def argument_layouts() -> dict[str, Any]:
    """Return, by kind of argument, its bytes and its fields in order, each with name, type and offset in bytes."""
    problem = (*FIELDS[:-2], "initial[0]", "initial[1]")
    kinds: Mapping[ArgumentKind, tuple[str | tuple[str, ...], ...]] = {
        "whole": problem,
        "shaped": (*problem, *_SHAPE),
        "short_rows": (*problem, *_SHAPE, *_SHORT_ROWS),
    }
    layouts: dict[str, Any] = {}
    for kind, names in kinds.items():
        fields: list[dict[str, Any]] = []
        for place, (name, letter) in enumerate(zip(names, signature(kind), strict=True)):
            fields.extend(_fields_of_word(name, _TYPES[letter], 8 * place))
        layouts[kind] = {"bytes": 8 * len(names), "fields": fields}
    return layouts


def _fields_of_word(names: str | tuple[str, ...], word: str, offset: int) -> Iterator[dict[str, Any]]:
    if isinstance(names, str):
        yield {"name": names, "type": word, "offset": offset}
        return
    for name in names:
        narrow, size = _NARROW.get(name, ("uint8", 1))
        yield {"name": name, "type": narrow, "offset": offset}
        offset += size


def grid_rule(source: KernelSource) -> dict[str, Any] | None:
    """Return the rule by which a launch's grid and its field `count` follow from the problem.

    Rules are for whole arrays and for contiguous rows that any warp may fold. Of other kernels None: which of many
    grids is fast follows from the shape and the device (`lowlevel_reduce.plan` tells), and `count` says which it is.
    """
    name, threads = role_of(source), _threads(source)
    warps = threads // LANES
    if name == "block":
        return {"rule": "one_block", "threads": threads, "most_leaves": warps, "count": 1}
    if name == "cluster":
        most = warps * PORTABLE_CLUSTER
        return {"rule": "one_cluster", "threads": threads, "cluster": PORTABLE_CLUSTER, "most_leaves": most, "count": 1}
    if name in ("few_tiles", "tiles", "whole"):
        rule = {"rule": "tiles", "threads": threads, "leaves_per_block": warps, "partials_per_run": 4 * threads}
        return rule | ({"most_leaves": threads * warps} if name == "few_tiles" else {})
    if name == "rows":
        return {"rule": "rows", "threads": threads, "rows_per_block": WARPS, "count": RowStrategy("rows", 1).count}
    return None


def _kernel(pack: Pack, made: MadeKernel) -> dict[str, Any]:
    place = pack.place(made.entry_name)
    if place is None:
        raise KeyError(made.entry_name)
    types, resources, data = made.types, made.cubin.kernels[made.source.entry], made.cubin.data
    aligned = made.source.twin is not None
    size = made.reduction.size(types)
    return {
        "entry": made.source.entry,
        "operator": made.reduction.label,
        "element": types.element.name,
        "accumulator": str(types.accumulator),
        "result": str(types.result_dtype),
        "results": made.reduction.results,
        "leaf_elements": types.element.leaf,
        "slot_bytes": slot_bytes(size),
        "initial": list(made.reduction.constants),
        "role": role_of(made.source),
        "alignment": VECTOR_BYTES if aligned else 1,
        "argument": _argument(made.source),
        "most_threads": _threads(made.source),
        "grid": grid_rule(made.source),
        "registers": resources.registers,
        "shared_bytes": resources.shared_bytes,
        "block": place.block,
        "offset": place.offset + place.size - _ENTRY_DIGEST_BYTES - len(data),
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def role_of(source: KernelSource) -> str:
    """Return what a kernel is for, as its name ends after operator and types, but for addresses."""
    name = source.entry.removesuffix(ANYWHERE)
    return next(role for role in _ROLES if name.endswith(f"_{role}"))


def _argument(source: KernelSource) -> ArgumentKind:
    role = role_of(source)
    if role in _WHOLE:
        return "whole"
    return "short_rows" if role.startswith("short_rows") else "shaped"


def _threads(source: KernelSource) -> int:
    """Return the threads of a block that a kernel is compiled for, at most."""
    return int(source.text.partition("__launch_bounds__(")[2].partition(",")[0])

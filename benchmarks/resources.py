"""List the registers, spills and machine code of every kernel, or how they differ from an earlier list, without a GPU.

python -m benchmarks.resources --json FILE [--against FILE] [--kind PATTERN] [--op OP ...] [--type TYPE ...]

For each kernel it lists the registers, the blocks that a multiprocessor is meant to hold, the bytes spilled by versions
with more blocks, which were given up for that, the instructions including padding, and a digest of the machine code. So
it shows what a change to a shared header did to each kernel; one whose code is bitwise the same need not be measured
again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.suites.arrays import OPERATOR_TYPES, takes
from lowlevel_reduce import layout
from lowlevel_reduce.compiler import Program, compile_program, version
from lowlevel_reduce.compiler.images import kernel_code
from lowlevel_reduce.dtypes import ElementType, element_type
from lowlevel_reduce.operators import OPERATORS, resolve
from lowlevel_reduce.strategy import rows as row_policy
from lowlevel_reduce.strategy import whole
from lowlevel_reduce.strategy.base import Task
from lowlevel_reduce.strategy.selection import operator_text
from lowlevel_reduce.strategy.stubs import (
    ANYWHERE,
    OPTIONS,
    KernelSource,
    OperatorText,
    kernel_sources,
    row_kernel_source,
    segment_kernel_sources,
    with_twins,
)

__all__ = ["H200", "compared", "listed", "main", "sources"]

H200 = whole.DeviceFacts((9, 0), 132, clusters=True, cooperative=True)

INSTRUCTION_BYTES = 16
"""On compute capability 7.0 and newer."""

WHOLE: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "block": (1, {}),
    "cluster": (16, {}),
    "tiles of 8 warps": (1 << 10, {}),
    "tiles": (1 << 16, {}),
    "two_pass": (1 << 16, {"strategy": "two_pass"}),
    "cooperative": (1 << 16, {"strategy": "cooperative"}),
}
"""Leaves and options for `policy.choose`, by the name of the kind of kernel."""

MATRICES: Mapping[str, tuple[tuple[int, int], int]] = {
    "short rows": ((1 << 22, 32), 1),
    "rows at once": ((1 << 16, 4096), 1),
    "rows in turns": ((1 << 10, 20 << 10), 1),
    "batch": ((8, 1 << 20), 1),
    "columns": ((1 << 12, 13), 0),
    "wide columns": ((1 << 14, 1 << 14), 0),
}
"""Shape for elements of 4 bytes, and axis; for other types it is scaled so that rows have as many bytes."""


def sources(op: str, dtype: str) -> Iterator[tuple[str, KernelSource]]:
    """Yield the kernels of an operator and element type on an H200, each with its kind."""
    reduction, element = resolve(op), element_type(dtype)
    types = reduction.types(element)
    text = operator_text(reduction, types)
    wide, small = text.wide, element.itemsize <= 2
    for kind, (leaves, options) in WHOLE.items():
        chosen = whole.choose(leaves, H200, wide_accumulator=wide, small_elements=small, **options)
        for source in with_twins(kernel_sources(text, chosen)):
            part = source.entry.removeprefix(f"{text.label}_")
            if source.entry.endswith(ANYWHERE):
                part = f"{chosen.name}{ANYWHERE}"  # of several kinds one kernel takes arrays at any address
            yield (
                kind if part in (chosen.name, "few_tiles") else f"{kind}, {part.removeprefix(f'{chosen.name}_')}",
                source,
            )
    for kind, (shape, axis) in MATRICES.items():
        for place, source in enumerate(with_twins([_matrix(text, element, shape, axis)])):
            yield f"{kind}, anywhere" if place else kind, source
    if reduction.second is None:
        for source in segment_kernel_sources(text, "int64"):
            yield source.entry.removeprefix(f"{text.label}_").replace("_", " "), source


def _matrix(text: OperatorText, element: ElementType, shape: tuple[int, int], axis: int) -> KernelSource:
    rows, columns = shape
    shape = (rows, max(1, columns * 4 // element.itemsize))
    strides = layout.contiguous_strides(shape, element.itemsize) if text.two_arrays else None  # as if of a product
    second_itemsize = element.itemsize if text.two_arrays else 0
    problem = layout.problem_of(
        shape, element.itemsize, axis=axis, second_strides_bytes=strides, second_itemsize=second_itemsize
    )
    task = Task(problem, H200, element.itemsize, text.accumulator_bytes, text.heavy, text.two_arrays)
    return row_kernel_source(text, row_policy.choose_rows(task))


def listed(source: KernelSource, architecture: str) -> dict[str, Any]:
    """Return the facts about a kernel, compiled with as many blocks as `loading.compile_kernel` would choose."""
    spilled = []
    for text in (source.text, *source.spare):
        cubin = compile_program(Program(source.entry, text, options=OPTIONS), architecture)
        use = cubin.kernels[source.entry]
        if not use.spill_store_bytes:
            break
        spilled.append(use.spill_store_bytes)
    bounds = re.search(r"__launch_bounds__\((\d+), (\d+)\)", text)
    code = kernel_code(cubin.data, source.entry)
    return {
        "registers": use.registers,
        "blocks": int(bounds[2]) if bounds else None,
        "spilled": spilled,
        "instructions": len(code) // INSTRUCTION_BYTES,
        "code": hashlib.sha256(code).hexdigest()[:12],
    }


def compared(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
    """Return a line for each kernel that differs from an earlier list, and a line that counts those that do not."""
    both = [name for name in now if name in then]
    same = [name for name in both if now[name]["code"] == then[name]["code"]]
    lines = []
    for name in both:
        if name in same:
            continue
        fields = ("registers", "blocks", "spilled", "instructions")
        changes = [f"{f} {then[name][f]} -> {now[name][f]}" for f in fields if then[name][f] != now[name][f]]
        lines.append(f"{name}: {', '.join(changes) or 'other instructions, as many'}")
    lines += [f"{name}: new" for name in now if name not in then]
    missing = len(then) - len(both)
    return [
        *lines,
        f"the same code: {len(same)} of {len(both)} kernels of both lists; {missing} are not listed now",
    ]


def table(rows: Mapping[str, Any]) -> list[str]:
    """Return the list as lines of text."""
    head = f"{'kernel':56} {'registers':>9} {'blocks':>6} {'instructions':>12}  spilled before"
    return [
        head,
        *(
            f"{name:56} {row['registers']:9} {row['blocks'] or '-':>6} {row['instructions']:12}  "
            f"{', '.join(map(str, row['spilled']))}"
            for name, row in rows.items()
        ),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the list that the command line asks for, or the differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", type=Path, help="keep the list")
    parser.add_argument("--against", metavar="FILE", type=Path, help="print only what differs from this list")
    parser.add_argument("--kind", type=re.compile, default=re.compile(""), metavar="PATTERN", help="of kernels")
    parser.add_argument("--op", action="append", choices=OPERATORS, help="by default all")
    parser.add_argument("--type", action="append", choices=OPERATOR_TYPES, help="by default all of these")
    parser.add_argument("--architecture", default="sm_90")
    arguments = parser.parse_args(argv)
    compiler = ".".join(map(str, version()))
    then = _read(arguments.against, compiler, arguments.architecture) if arguments.against else {}
    wanted = {
        f"{op} {dtype}, {kind}": source
        for op in arguments.op or OPERATORS
        for dtype in arguments.type or OPERATOR_TYPES
        if takes(op, dtype)
        for kind, source in sources(op, dtype)
        if arguments.kind.search(kind)
    }
    if not wanted:
        parser.error("there is no such kernel")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda source: listed(source, arguments.architecture), wanted.values())
        rows = dict(zip(wanted, found, strict=True))
    if arguments.json:
        document = {"nvrtc": compiler, "architecture": arguments.architecture, "kernels": rows}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print("\n".join(compared(rows, then) if arguments.against else table(rows)))
    return 0


def _read(file: Path, compiler: str, architecture: str) -> dict[str, Any]:
    document = json.loads(file.read_text(encoding="utf-8"))
    if (document["nvrtc"], document["architecture"]) != (compiler, architecture):
        sys.exit(f"{file} is of NVRTC {document['nvrtc']} for {document['architecture']}, this is {compiler} for "
                 f"{architecture}: nothing to compare")  # fmt: skip
    kernels: dict[str, Any] = document["kernels"]
    return kernels


if __name__ == "__main__":
    sys.exit(main())

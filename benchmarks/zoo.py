"""List how many kernels random shapes meet, for several operators and types, and what each is made of; without a GPU.

python -m benchmarks.zoo --seed N --json FILE [--compile] [--op OP ...] [--type TYPE ...] [--shapes 3000]

The shapes, axes and strides are those of `benchmarks.measure.shapes`; the device is an H200. The file is a list with an
object for each operator and type: ``operator``, ``dtype``, ``kernels`` (how many, but for those for arrays at any
address), ``twins`` (how many of these), and the ``seed`` and number of ``shapes`` that say which. With ``--compile`` it
also has ``members``, a list with ``entry``, ``role``, ``code_bytes``, ``registers`` and ``spills`` (bytes) of each
kernel, and the largest ``code_bytes``, ``registers`` and ``spills``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.measure.selected import sources_of
from benchmarks.measure.shapes import drawn_layout
from benchmarks.resources import H200
from benchmarks.suites.arrays import takes
from lowlevel_reduce.compiler.images import kernel_code
from lowlevel_reduce.plans.loading import compile_kernel
from lowlevel_reduce.strategy.stubs import ANYWHERE, KernelSource

__all__ = ["main", "member", "met"]

OPERATORS = ("sum", "mean_var", "argmax", "logsumexp", "dot")
TYPES = ("float32", "bfloat16", "float64", "int8")
SHAPES = 3000


def met(op: str, dtype: str, seed: int, shapes: int) -> list[tuple[str, KernelSource]]:
    """Return the kernels that the first `shapes` shapes of a seed meet, with their roles, in order of appearance."""
    found: dict[str, tuple[str, KernelSource]] = {}
    for number in range(shapes):
        for role, source in sources_of(drawn_layout(seed, number, op, dtype), H200).items():
            found.setdefault(source.text, (role, source))
    return list(found.values())


def member(role: str, source: KernelSource, architecture: str) -> dict[str, Any]:
    """Return what the compiler makes of a kernel, with as many blocks as it would be loaded with."""
    cubin = compile_kernel(source, architecture)
    use = cubin.kernels[source.entry]
    return {
        "entry": source.entry,
        "role": role,
        "code_bytes": len(kernel_code(cubin.data, source.entry)),
        "registers": use.registers,
        "spills": use.spill_store_bytes,
    }


def listed(op: str, dtype: str, arguments: argparse.Namespace, pool: ThreadPoolExecutor) -> dict[str, Any]:
    """Return the object of an operator and a type."""
    kernels = met(op, dtype, arguments.seed, arguments.shapes)
    twins = sum(source.entry.endswith(ANYWHERE) for _, source in kernels)
    found: dict[str, Any] = {"operator": op, "dtype": dtype, "kernels": len(kernels) - twins, "twins": twins}
    found |= {"seed": arguments.seed, "shapes": arguments.shapes}
    if arguments.compile:
        members = list(pool.map(lambda each: member(each[0], each[1], arguments.architecture), kernels))
        found["members"] = members
        found |= {what: max(each[what] for each in members) for what in ("code_bytes", "registers", "spills")}
    return found


def line_of(row: Mapping[str, Any]) -> str:
    """Return an object as a line."""
    line = f"{row['operator']:12} {row['dtype']:10} {row['kernels']:5} kernels and {row['twins']:3} twins"
    if "members" not in row:
        return line
    largest = f"{row['code_bytes']} bytes of code, {row['registers']} registers, {row['spills']} bytes spilled"
    return f"{line}, at most {largest}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print and write the list that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--json", metavar="FILE", type=Path, required=True)
    parser.add_argument("--compile", action="store_true", help="compile every kernel, as far as the cache lacks it")
    parser.add_argument("--op", action="append", choices=OPERATORS, help="by default all of these")
    parser.add_argument("--type", action="append", choices=TYPES, help="by default all of these")
    parser.add_argument("--shapes", type=int, default=SHAPES)
    parser.add_argument("--architecture", default="sm_90")
    arguments = parser.parse_args(argv)
    if not arguments.json.parent.is_dir():
        parser.error(f"there is no directory {arguments.json.parent}")
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for op, dtype in itertools.product(arguments.op or OPERATORS, arguments.type or TYPES):
            if takes(op, dtype):
                rows.append(listed(op, dtype, arguments, pool))
                print(line_of(rows[-1]), flush=True)
                arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

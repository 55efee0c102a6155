"""Sweep every mapping of the float32 sum over lengths, beside CUB: where the rows of `policy.py` come from.

python -m benchmarks.tune --json sweep.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

import lowlevel_reduce as lr
from benchmarks.cub import CubSum
from benchmarks.measure import Inputs, measure_call, measure_plan
from benchmarks.timing import conditions

LENGTHS = [256, 4096, 16384, 32768, 65536, 131072, 262144, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 10**8, 1 << 28]
SMALL, MEDIUM = 1 << 16, 1 << 21


def mappings(length: int) -> Iterator[dict[str, Any]]:
    """Yield the mappings worth timing at a length."""
    if length <= SMALL:
        for threads in (32, 64, 128, 256, 512):
            yield {"strategy": "block", "block_threads": threads}
    if 4096 <= length <= MEDIUM // 2:
        for threads in (128, 256, 512):
            for cluster in (2, 4, 8, 16):
                yield {"strategy": "cluster", "cluster": cluster, "block_threads": threads}
    if length > 4096:
        for threads in (256, 512, 1024):
            for cluster in (1, 2, 4, 8):
                yield {"strategy": "tiles", "cluster": cluster, "block_threads": threads}
        for threads in (256, 512):
            yield {"strategy": "two_pass", "block_threads": threads}
            yield {"strategy": "cooperative", "block_threads": threads}


def sweep(context: lr.Context, lengths: list[int], dtype: str) -> list[dict[str, Any]]:
    """Return a row for each length and mapping."""
    stream = lr.Stream.create(context)
    rows = []
    for length in lengths:
        host = np.random.default_rng(length).random(length, dtype=np.float32).astype(dtype)
        inputs = Inputs.upload(host, stream)
        cub = CubSum(dtype, context.device.architecture).bound(length, stream)
        us = measure_call(cub, inputs, stream, float(host.astype(np.float64).sum()))
        rows.append({"n": length, "mapping": "CUB", "us": us})
        for mapping in mappings(length):
            with lr.plan("sum", shape=length, dtype=dtype, context=context, **mapping) as plan:
                us = measure_plan(plan, inputs, stream)
            rows.append({"n": length, "mapping": "-".join(map(str, mapping.values())), "us": us})
        inputs.close()
        best = sorted(rows_of(rows, length), key=lambda row: row["us"])[:6]
        print(f"{length:>11}  " + "  ".join(f"{row['mapping']} {row['us']:.2f}" for row in best), end="")
        print(f"  | CUB {rows_of(rows, length)[0]['us']:.2f}", flush=True)
    return rows


def rows_of(rows: list[dict[str, Any]], length: int) -> list[dict[str, Any]]:
    """Return the rows of one length."""
    return [row for row in rows if row["n"] == length]


def main() -> None:
    """Run the sweep and write its JSON."""
    parser = argparse.ArgumentParser(description="Sweep the mappings of the sum.")
    parser.add_argument("--json", metavar="FILE", required=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--n", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--commit", help="for a copy of the tree without its history")
    arguments = parser.parse_args()
    with lr.Context.primary() as context, context.pushed():
        rows = sweep(context, arguments.n, arguments.dtype)
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"conditions": conditions(context.device, arguments.commit), "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()

"""The suite of cold starts: imports, the first result of a process, and the time to compile a kernel."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.figures import OURS, Row, figure, row_of
from benchmarks.suites.cell import Cell
from benchmarks.suites.setting import Setting

__all__ = ["cold", "keeping"]

WARM = 2
"""How many processes with a full cache follow each one with an empty cache."""

FIRST_SECONDS, EMPTY_SECONDS, WARM_SECONDS = 3.0, 6.0, 1.5
"""About how long a process takes: the one that only leaves byte code behind, and one with each kind of cache."""

SCRIPT = """
import json, os, time
start = time.perf_counter()
import numpy, cuda.bindings.driver
imported = time.perf_counter()
import lowlevel_reduce as lr
package = time.perf_counter()
assert os.path.exists(lr.__spec__.cached), "the byte code was not kept"
out = {"imports before": imported - start, "import": package - imported}
with lr.Context.primary() as context, context.pushed():
    context.synchronize()
    created = time.perf_counter()
    value = float(lr.sum(numpy.ones(1_000_000, numpy.float32)))
    done = time.perf_counter()
    assert value == 1e6
    out |= {"context": created - package, "first result": done - created}
    for name, op, shape, axis, dtype in PLANS:
        begin = time.perf_counter()
        lr.plan(op, shape=shape, axis=axis, dtype=dtype, context=context)
        out[name] = time.perf_counter() - begin
print(json.dumps(out))
"""

PLANS = [
    ("sum float64, tiles", "sum", [1 << 24], None, "float64"),
    ("sum float16, tiles", "sum", [1 << 24], None, "float16"),
    ("max int32, tiles", "max", [1 << 24], None, "int32"),
    ("sum, short rows", "sum", [1 << 16, 32], 1, "float32"),
    ("sum, rows", "sum", [4096, 16384], 1, "float32"),
    ("sum, columns", "sum", [4096, 4096], 0, "float32"),
    ("logsumexp, rows", "logsumexp", [4096, 16384], 1, "float32"),
    ("mean_var, short rows", "mean_var", [1 << 16, 256], 1, "float32"),
    ("argmax, tiles", "argmax", [1 << 24], None, "float32"),
]


def cold(*, quick: bool = False) -> list[Cell]:
    """Return times of fresh processes, with an empty cubin cache and with a full one.

    All of them find the byte code of every module, as with an installed package: a first process, which is not timed,
    writes it, even if this process or the folder of the sources may not keep any.
    """
    times = 1 if quick else 3
    measure = functools.partial(_measured, times=times)
    seconds = FIRST_SECONDS + times * (EMPTY_SECONDS + WARM * WARM_SECONDS)
    return [Cell("fresh processes", measure, seconds, goal=True)]


def _measured(setting: Setting, *, times: int) -> list[Row]:
    setting.settle()
    empty, warm = [], []
    with tempfile.TemporaryDirectory() as byte_code:
        run = functools.partial(_process, environment=keeping(byte_code))
        with tempfile.TemporaryDirectory() as directory:
            run(directory, plans=[])
        for _ in range(times):
            with tempfile.TemporaryDirectory() as directory:
                empty.append(run(directory))
                warm += [run(directory) for _ in range(WARM)]
    rows = [_row(part, [times[part] for times in warm]) for part in ("import", "imports before", "context")]
    rows.append(_row("first result, empty cache", [times["first result"] for times in empty]))
    rows.append(_row("first result, warm cache", [times["first result"] for times in warm]))
    for name, *_ in PLANS:
        rows.append(_row(f"plan compiled: {name}", [times[name] for times in empty]))
        rows.append(_row(f"plan loaded: {name}", [times[name] for times in warm]))
    return rows


def keeping(byte_code: str) -> dict[str, str]:
    """Return an environment in which processes keep their byte code in a folder, whatever this process does."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": byte_code}


def _process(cache: str, *, environment: Mapping[str, str], plans: Sequence[Any] = PLANS) -> dict[str, float]:
    """Run a fresh process and return its times in seconds."""
    environment = {**environment, "LOWLEVEL_REDUCE_CACHE_DIR": cache}
    script = SCRIPT.replace("PLANS", repr(plans))
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        said = (run.stderr.strip() or "it said nothing").splitlines()[-1]  # a process ended by a signal says nothing
        raise RuntimeError(f"a fresh process failed with {run.returncode}: {said}")
    times: dict[str, Any] = json.loads(run.stdout)
    return times


def _row(cell: str, seconds: list[float]) -> Row:
    entries = {OURS: figure([1e6 * each for each in seconds])}
    return row_of(cell, entries, mode="process", op="sum", shape=[], axis=None, dtype="float32")

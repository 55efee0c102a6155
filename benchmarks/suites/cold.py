"""The suite of cold starts: imports, the first result of a process, and the time to compile a kernel."""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.measure.figures import OURS, Row, figure, row_of
from benchmarks.measure.processes import environment_of, last_line
from benchmarks.measure.turns import telling
from benchmarks.suites.cell import Cell
from benchmarks.suites.cold_scripts import COMPILED, FAMILIES, SCRIPT, SHAPES, WARMED_UP, install_wheel
from benchmarks.suites.setting import Setting

__all__ = ["PEERS", "alone", "before", "cold", "keep_byte_code"]

WARM = 2
"""How many processes with a full cache follow each one with an empty cache."""

FIRST_SECONDS, EMPTY_SECONDS, WARM_SECONDS = 3.0, 6.0, 1.5
"""About how long a process takes: the one that only leaves byte code behind, and one with each kind of cache."""

WHEEL_SECONDS, WARM_UP_SECONDS, COMPILED_SECONDS = 20.0, 4.0, 40.0
"""About how long it takes to build a wheel of two families, to warm one up, and to compile four kernel by kernel."""

COMPARED = "CuPy"
"""The competitor that goals name: as many processes of it as of ours, and one of each other one."""

PEER_SECONDS = {"CuPy": 3.0, "torch": 5.0, "torch.compile": 14.0, "cuda.compute": 6.0}
"""The same of a competitor's process, on average."""

_PEER = """
import json, time
start = time.perf_counter()
import numpy
{imports}
package = time.perf_counter()
x = numpy.ones(1_000_000, numpy.float32)
made = time.perf_counter()
{context}
created = time.perf_counter()
assert float({first}) == 1e6
done = time.perf_counter()
assert float({second}) == 1
ended = time.perf_counter()
times = {{"import with all": package - start, "first result": done - created, "second operator": ended - done}}
times["context"] = created - made
y = x.reshape(1000, 1000)
for name, call in globals().get("CALLS", ()):
    begin = time.perf_counter()
    eval(call)
    times[name] = time.perf_counter() - begin
print(json.dumps(times))
"""

_COMPUTE = """
import cuda.compute as compute
import lowlevel_reduce as lr
from benchmarks.peers.common import RawArray


def reduced(op, first):
    host = numpy.asarray([first], numpy.float32)
    with lr.Stream.create() as stream:
        source, out = lr.DeviceArray.from_numpy(x, stream), lr.DeviceArray.empty((), "float32", stream)
        source, target = (RawArray(each.pointer, (size,), x.dtype) for each, size in ((source, x.size), (out, 1)))
        call = compute.make_reduce_into(d_in=source, d_out=target, op=op, h_init=host)
        common = dict(d_in=source, d_out=target, op=op, h_init=host, num_items=x.size, stream=stream)
        size = call(temp_storage=None, **common)
        storage = lr.DeviceArray.empty((size,), "uint8", stream)
        workspace = RawArray(storage.pointer, (size,), numpy.dtype("uint8"))
        workspace.nbytes = size
        call(temp_storage=workspace, **common)
        return float(out)
"""

PEERS: Mapping[str, str] = {
    "CuPy": _PEER.format(
        imports="import cupy",
        context="cupy.cuda.runtime.free(0)",
        first="cupy.asarray(x).sum()",
        second="cupy.asarray(x).max()",
    ),
    "torch": _PEER.format(
        imports="import torch",
        context="torch.zeros(1, device='cuda')",
        first="torch.from_numpy(x).cuda().sum()",
        second="torch.from_numpy(x).cuda().amax()",
    ),
    "torch.compile": _PEER.format(
        imports="import torch",
        context="torch.zeros(1, device='cuda')",
        first="torch.compile(torch.sum)(torch.from_numpy(x).cuda())",
        second="torch.compile(torch.amax)(torch.from_numpy(x).cuda())",
    ),
    "cuda.compute": _PEER.format(
        imports=_COMPUTE,
        context="current = lr.Context.primary().pushed(); current.__enter__(); lr.Context.current().synchronize()",
        first="reduced(compute.OpKind.PLUS, 0)",
        second="reduced(compute.OpKind.MAXIMUM, 0)",
    ),
}
"""What each competitor's process runs: the same results, from the same array on the host."""

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

Times = Sequence[Mapping[str, float]]
"""Of each process, its times in seconds by what they are of."""


def cold(*, quick: bool = False) -> list[Cell]:
    """Return times of fresh processes, with empty caches, full ones and a wheel of kernels, beside competitors'.

    All of them find the byte code of every module, as with an installed package: a first process, which is not timed,
    writes it, even if this process or the folder of the sources may not keep any.
    """
    times = 1 if quick else 5
    peers = ("CuPy", "torch") if quick else tuple(PEERS)
    counts = {peer: times if peer == COMPARED else 1 for peer in peers}
    of_peers = {peer: count * PEER_SECONDS[peer] for peer, count in counts.items()}
    first = {peer: counts[peer] for peer in peers[:2]}
    compiled = functools.partial(_compiled, times=1 if quick else 3)
    return [
        Cell(
            "fresh processes",
            functools.partial(_measured, times=times, peers=counts),
            FIRST_SECONDS + times * (EMPTY_SECONDS + WARM * WARM_SECONDS) + 2 * sum(of_peers.values()),
            goal=True,
        ),
        Cell(
            "with the wheel",
            functools.partial(_with_wheel, times=times, peers=first),
            FIRST_SECONDS
            + WHEEL_SECONDS
            + times * (WARM_SECONDS + EMPTY_SECONDS + WARM_UP_SECONDS)
            + sum(of_peers[peer] for peer in first),
            goal=True,
        ),
        Cell("compilation", compiled, COMPILED_SECONDS * (1 if quick else 3), goal=True),
    ]


def _measured(setting: Setting, *, times: int, peers: Mapping[str, int]) -> list[Row]:
    """Return times with empty caches and full ones; `peers` says how many processes each competitor has."""
    setting.settle()
    with tempfile.TemporaryDirectory() as byte_code:
        keep_byte_code(byte_code)
        empty, warm = _processes(SCRIPT.replace("PLANS", repr(PLANS)), times, byte_code, WARM)
        found: dict[str, tuple[Times, Times]] = {OURS: (empty, warm)}
        failed: dict[str, dict[str, Any]] = {}
        for name, count in peers.items():
            with telling(name, failed):
                found[name] = _processes(PEERS[name], count, byte_code, 1)
    rows = [_row(part, {OURS: warm}, part) for part in ("import", "imports before", "context")]
    all_empty, all_warm = ({name: times[full] for name, times in found.items()} for full in (0, 1))
    rows.append(_row("import with all it needs", all_warm, "import with all", failed))
    for part in ("first result", "second operator"):
        rows.append(_row(f"{part}, empty cache", all_empty, part, failed))
        rows.append(_row(f"{part}, warm cache", all_warm, part, failed))
    for name, *_ in PLANS:
        rows.append(_row(f"plan compiled: {name}", {OURS: empty}, name))
        rows.append(_row(f"plan loaded: {name}", {OURS: warm}, name))
        rows.append(_row(f"processor time compiled: {name}", {OURS: empty}, f"processor, {name}"))
    return rows


def _with_wheel(setting: Setting, *, times: int, peers: Mapping[str, int]) -> list[Row]:
    """Return times with the wheel of kernels and of warm-ups; all caches are empty, those of competitors as well."""
    setting.settle()
    script = SCRIPT.replace("PLANS", "[]")
    with tempfile.TemporaryDirectory() as byte_code, tempfile.TemporaryDirectory() as folder:
        keep_byte_code(byte_code)
        site = str(install_wheel(Path(folder)))
        wheel = alone(script, times, byte_code, PYTHONPATH=before(site))
        if any(each["compiler"] for each in wheel):
            raise RuntimeError("a process that has the wheel of kernels loaded NVRTC")
        asked = alone(script, times, byte_code, LOWLEVEL_REDUCE_WARM_UP="1")
        warmed = alone(WARMED_UP, times, byte_code)
        found: dict[str, Times] = {OURS: wheel}
        failed: dict[str, dict[str, Any]] = {}
        for name, count in peers.items():
            with telling(name, failed):
                found[name] = alone(PEERS[name], count, byte_code)
    parts = ("first result", "second operator")
    rows = [_row(f"{part}, with the wheel", found, part, failed) for part in parts]
    rows.append(_row("first result, empty cache, its family compiled meanwhile", {OURS: asked}, "first result"))
    rows.append(_row("warm-up of a family, empty cache", {OURS: warmed}, "warm-up"))
    rows.append(_row(f"a plan after the warm-up, of {SHAPES} shapes", {OURS: warmed}, "new shape"))
    return rows


def keep_byte_code(byte_code: str) -> None:
    """Run a process that is not timed, and leaves the byte code of every module behind."""
    with tempfile.TemporaryDirectory() as cache:
        _process(SCRIPT.replace("PLANS", "[]"), cache, byte_code)


def _compiled(setting: Setting, *, times: int) -> list[Row]:
    """Return the processor time of the slowest kernels of families, and of nothing but their headers."""
    setting.settle()
    with tempfile.TemporaryDirectory() as byte_code:
        found = alone(COMPILED, times, byte_code, LOWLEVEL_REDUCE_CACHE_DIR="off", LOWLEVEL_REDUCE_PREBUILT_DIR="")
    names = [f"{op}, {kind}" for op in FAMILIES for kind in ("whole arrays", "others")]
    rows = [_row(f"processor time, slowest kernel: {name}", {OURS: found}, name) for name in names]
    rows += [_row(f"processor time, headers alone: {name}", {OURS: found}, f"headers of {name}") for name in names]
    wholes = [f"{op}, the whole family" for op in FAMILIES]
    return rows + [_row(f"processor time: {name}", {OURS: found}, name) for name in wholes]


def before(folder: str) -> str:
    """Return what PYTHONPATH must be for a folder to come first."""
    return os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])


def alone(script: str, times: int, byte_code: str, **variables: str) -> Times:
    """Return the times of processes with empty caches and some variables set."""
    found = []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as cache:
            found.append(_process(script, cache, byte_code, variables))
    return found


def _processes(script: str, times: int, byte_code: str, full: int) -> tuple[Times, Times]:
    """Return the times of processes with empty caches, and of `full` for each with the cache that it left behind."""
    empty, warm = [], []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as cache:
            empty.append(_process(script, cache, byte_code))
            warm += [_process(script, cache, byte_code) for _ in range(full)]
    return empty, warm


def _process(
    script: str, cache: str, byte_code: str, variables: Mapping[str, str] = MappingProxyType({})
) -> dict[str, float]:
    """Run a fresh process, with some variables of its environment set, and return its times in seconds."""
    environment = environment_of(cache, byte_code) | dict(variables)
    times: dict[str, Any] = json.loads(last_line([sys.executable, "-c", script], environment))
    return times


def _row(cell: str, times: Mapping[str, Times], part: str, failed: Mapping[str, Any] | None = None) -> Row:
    entries = {name: figure([1e6 * each[part] for each in found]) for name, found in times.items()}
    entries |= failed or {}
    return row_of(cell, entries, mode="process", op="sum", shape=[], axis=None, dtype="float32")

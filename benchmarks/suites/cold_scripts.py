"""What fresh processes run for the suite of cold starts, and where they find a wheel of kernels."""

from __future__ import annotations

import zipfile
from pathlib import Path

from lowlevel_reduce import Context
from lowlevel_reduce.kernel_wheel.building import build_wheel

__all__ = ["CALLS", "COMPILED", "FAMILIES", "SCRIPT", "SHAPES", "WARMED_UP", "install_wheel", "unpack_wheel"]

SHAPES = 300
"""How many random shapes follow the warm-up of an operator."""

FAMILIES = ("sum", "mean_var", "argmax", "logsumexp")
"""The operators whose kernels of float32 are compiled one by one."""

CALLS = {
    "argmax": ("lr.argmax(x).numpy()", "cupy.asarray(x).argmax().get()"),
    "any": ("lr.any(x).numpy()", "cupy.asarray(x).any().get()"),
    "norm": ("lr.norm(x).numpy()", "cupy.linalg.norm(cupy.asarray(x)).get()"),
    "var": ("lr.var(x).numpy()", "cupy.asarray(x).var().get()"),
    "sum of rows": ("lr.sum(y, axis=1).numpy()", "cupy.asarray(y).sum(axis=1).get()"),
    "sum of columns": ("lr.sum(y, axis=0).numpy()", "cupy.asarray(y).sum(axis=0).get()"),
}
"""What a process asks for after two operators, each for the first time: of us and of CuPy, as users write it."""

SCRIPT = """
import json, os, sys, time
start = time.perf_counter()
import numpy, cuda.bindings.driver
imported = time.perf_counter()
import lowlevel_reduce as lr
package = time.perf_counter()
assert os.path.exists(lr.__spec__.cached), "the byte code was not kept"
out = {"imports before": imported - start, "import": package - imported, "import with all": package - start}
x = numpy.ones(1_000_000, numpy.float32)
made = time.perf_counter()
with lr.Context.primary() as context, context.pushed():
    context.synchronize()
    created = time.perf_counter()
    value = float(lr.sum(x))
    done = time.perf_counter()
    assert value == 1e6
    assert float(lr.max(x)) == 1
    out |= {"context": created - made, "first result": done - created, "second operator": time.perf_counter() - done}
    out["compiler"] = "cuda.bindings.nvrtc" in sys.modules
    y = x.reshape(1000, 1000)
    for name, call in globals().get("CALLS", ()):
        begin = time.perf_counter()
        eval(call)
        out[name] = time.perf_counter() - begin
    for name, op, shape, axis, dtype in PLANS:
        begin, processor = time.perf_counter(), time.process_time()
        lr.plan(op, shape=shape, axis=axis, dtype=dtype, context=context)
        out[name] = time.perf_counter() - begin
        out["processor, " + name] = time.process_time() - processor
print(json.dumps(out))
"""
"""Imports, the first results of two operators, and plans, with the list of these in place of ``PLANS``.

Calls are timed in between if ``CALLS``, put before, has their names and texts; competitors' scripts take them as well.
"""

WARMED_UP = f"""
import json, statistics, time
import numpy
import lowlevel_reduce as lr
from lowlevel_reduce.compiler import program
from benchmarks.measure.shapes import drawn_layout
with lr.Context.primary() as context, context.pushed():
    context.synchronize()
    begin = time.perf_counter()
    assert float(lr.sum(numpy.ones(1_000_000, numpy.float32))) == 1e6
    first = time.perf_counter()
    assert lr.warm_up("sum", "float32").wait()
    warm = time.perf_counter()
    def compiled(job, cache):
        raise AssertionError(f"{{job.program.name}} was compiled after the warm-up")
    program._compile = compiled
    times = []
    for number in range({SHAPES}):
        case = drawn_layout(31, number, "sum", "float32")
        started = time.perf_counter()
        layout = dict(shape=case.shape, axis=case.axis, strides_bytes=case.strides_bytes)
        lr.plan("sum", dtype="float32", context=context, **layout)
        times.append(time.perf_counter() - started)
print(json.dumps({{"first result": first - begin, "warm-up": warm - first, "new shape": statistics.median(times)}}))
"""
"""A first result, the warm-up of its operator, and plans for random shapes, none of which may compile anything."""

COMPILED = f"""
import json, re, time
import lowlevel_reduce as lr
from lowlevel_reduce.strategy.stubs import KernelSource
from lowlevel_reduce.plans.loading import compile_kernel
from lowlevel_reduce.kernel_wheel.manifest import role_of
from lowlevel_reduce.strategy.family import family_of
def processor(source):
    begin = time.process_time()
    compile_kernel(source, "sm_90")
    return time.process_time() - begin
out, WHOLE = {{}}, ("block", "cluster", "few_tiles", "tiles", "whole")
for op in {FAMILIES}:
    kernels = family_of(op, dtype="float32", compute_capability=(9, 0))
    empty = [KernelSource(k.entry, re.sub(r"[{{]\\n    .*\\n[}}]\\n$", "{{\\n}}\\n", k.text)) for k in kernels]
    processor(empty[0])  # loads NVRTC
    headers, taken = list(map(processor, empty)), list(map(processor, kernels))
    for kind in (True, False):
        of_kind = [i for i, source in enumerate(kernels) if (role_of(source) in WHOLE) == kind]
        worst = max(of_kind, key=lambda i: taken[i])
        name = f"{{op}}, " + ("whole arrays" if kind else "others")
        out[name] = taken[worst]
        out["headers of " + name] = headers[worst]
    out[f"{{op}}, the whole family"] = sum(taken)
print(json.dumps(out))
"""
"""Processor time, for sm_90, of the slowest kernels of families and of nothing but their headers; there is no cache."""


def install_wheel(folder: Path) -> Path:
    """Build a wheel of kernels for the current device, and unpack it as pip does; return the folder for `sys.path`."""
    architecture = Context.current_or_primary().device.architecture
    report = build_wheel(folder / "dist", [architecture], [("sum", "float32"), ("max", "float32")])
    return unpack_wheel(report.wheel, folder / "site")


def unpack_wheel(wheel: Path, site: Path) -> Path:
    """Unpack a wheel into a folder, as pip does, and return that."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site

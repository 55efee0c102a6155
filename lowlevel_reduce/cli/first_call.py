"""``info --timing``: what the first result of a fresh process is made of, each part timed apart."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from lowlevel_reduce.driver import binding, why_unavailable
from lowlevel_reduce.errors import NoDriverError, ReduceError

__all__ = ["PARTS", "as_objects", "measured", "render"]

ELEMENTS = 1_000_000
_LIMIT_SECONDS = 300

PARTS: Mapping[str, str] = {
    "imports before": "NumPy and cuda.bindings",
    "import": "lowlevel_reduce",
    "context": "cuInit and the primary context of device 0",
    "stream": "a stream",
    "copy": f"{ELEMENTS:,} float32 of NumPy to the device, memory included",
    "copy again": "another such copy",
    "modules": "the modules that plans need",
    "kernel": "one kernel: from the installed package, the cache, or compiled",
    "module load": "cuLibraryLoadData and cuLibraryGetKernel",
    "plan": "the rest of a plan for that kernel",
    "workspace": "binding it: its workspace, allocated and cleared",
    "launch": "the first launch, until it has run; the driver may load the code only now",
    "launch again": "another launch, until it has run",
    "result": "the result to the host",
}
"""The parts in order, and what each is."""

# The process does by hand what lr.sum does at its first call, so that each part can be timed.
_SCRIPT = """
import json, time
marks = [time.perf_counter()]
times = {}
def mark(name):
    marks.append(time.perf_counter())
    times[name] = marks[-1] - marks[-2]
import numpy
import cuda.bindings.driver
mark("imports before")
import lowlevel_reduce as lr
mark("import")
context = lr.Context.primary()
with context.pushed():
    context.synchronize()
    mark("context")
    stream = lr.Stream.create()
    mark("stream")
    x = numpy.ones(ELEMENTS, numpy.float32)
    marks.append(time.perf_counter())
    source = lr.DeviceArray.from_numpy(x, stream)
    stream.synchronize()
    mark("copy")
    other = lr.DeviceArray.from_numpy(x, stream)
    stream.synchronize()
    mark("copy again")
    from lowlevel_reduce import compiler
    from lowlevel_reduce.plans import array, loading, mapping
    from lowlevel_reduce.strategy import selection
    mark("modules")
    request = selection.request_of("sum", shape=x.shape, dtype="float32")
    kernel = selection.select(request, mapping.facts_of(context)).sources[0]
    architecture, driver = context.device.architecture, loading.binding.selected()
    cubin = loading.compile_kernel(kernel, architecture, output="ptx" if driver.image == "ptx" else "cubin")
    mark("kernel")
    loaded = loading.load_kernel(kernel, architecture, cubin=cubin)
    mark("module load")
    plan = lr.plan("sum", shape=x.shape, dtype="float32", context=context, alignment=16)
    mark("plan")
    launch = plan.bind(stream)
    stream.synchronize()
    mark("workspace")
    out = lr.DeviceArray.empty((), "float32", stream)
    stream.synchronize()
    marks.append(time.perf_counter())
    launch(source.pointer, out.pointer)
    stream.synchronize()
    mark("launch")
    launch(source.pointer, out.pointer)
    stream.synchronize()
    mark("launch again")
    assert float(out) == ELEMENTS
    mark("result")
import sys
origin = "compiled" if not cubin.from_cache else "found"
print(json.dumps({"seconds": times, "kernel": origin, "compiler": "cuda.bindings.nvrtc" in sys.modules,
                  "device": context.device.name}))
"""


def measured() -> dict[str, Any]:
    """Return what a fresh process took, in seconds by part, whether its kernel was found, and if it loaded NVRTC.

    Raises
    ------
    NoDriverError
        If there is no GPU: a simulated one has no times.
    ReduceError
        If the process fails.
    """
    missing = "a simulated one has no times" if binding.selected().image == "ptx" else why_unavailable()
    if missing is not None:
        raise NoDriverError(f"--timing needs a GPU: {missing}")
    return timed()


def timed() -> dict[str, Any]:
    """Return the same from whatever driver the environment selects; raises ReduceError."""
    command = [sys.executable, "-c", _SCRIPT.replace("ELEMENTS", str(ELEMENTS))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_SECONDS)  # noqa: S603
    if done.returncode != 0:
        raise ReduceError(f"the process that was timed failed: {(done.stderr.strip() or 'silently').splitlines()[-1]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def as_objects(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was measured as ``--json`` prints it, times in milliseconds."""
    milliseconds = {name: round(1e3 * found["seconds"][name], 3) for name in PARTS}
    return {"device": found["device"], "kernel": found["kernel"], "nvrtc": found["compiler"], "ms": milliseconds}


def render(found: Mapping[str, Any]) -> Table:
    """Return what was measured as a table."""
    how = "compiled now" if found["kernel"] == "compiled" else "found on the disk"
    title = f"the first result of a process on {found['device']}; the kernel was {how}"
    table = Table(title=title, title_justify="left")
    table.add_column("part")
    table.add_column("ms", justify="right")
    table.add_column("")
    for name, what in PARTS.items():
        table.add_row(name, f"{1e3 * found['seconds'][name]:.2f}", what)
    table.add_row("in all", f"{1e3 * sum(found['seconds'].values()):.2f}", "")
    return table

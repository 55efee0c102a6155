"""The kernels that the library selects for a case, and all that a run needs, compiled before anything is timed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait

from benchmarks.measure.problems import Case
from lowlevel_reduce import Context
from lowlevel_reduce.plans.loading import compile_kernel
from lowlevel_reduce.plans.mapping import facts_of
from lowlevel_reduce.strategy.selection import request_of, select
from lowlevel_reduce.strategy.stubs import KernelSource, with_twins
from lowlevel_reduce.strategy.whole import DeviceFacts

__all__ = ["compile_ahead", "sources_of"]


def sources_of(case: Case, facts: DeviceFacts) -> dict[str, KernelSource]:
    """Return the kernels that reduce a case on a device, in launch order, each with its twin, by their role."""
    request = request_of(
        case.op,
        shape=case.shape,
        dtype=case.dtype,
        axis=case.axis,
        strides_bytes=case.strides_bytes,
        second_strides_bytes=case.strides_bytes if case.arrays == 2 else None,
    )
    sources = with_twins(select(request, facts).sources)
    return {source.entry.removeprefix(f"{request.text.label}_"): source for source in sources}


def compile_ahead(cases: Iterable[Case], context: Context) -> None:
    """Fill the cache with the kernels of the cases, by all processors; what fails here fails again when it is timed."""
    facts, architecture = facts_of(context), context.device.architecture
    found: dict[str, KernelSource] = {}
    for case in cases:
        if case.offsets is None:
            found |= {source.text: source for source in sources_of(case, facts).values()}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        wait([pool.submit(compile_kernel, source, architecture) for source in found.values()])

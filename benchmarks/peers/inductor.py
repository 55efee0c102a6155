"""torch.compile ahead of a measurement: processes fill Inductor's cache, where the measuring one finds the code.

Each only compiles and launches what it compiled once. Which of several configurations is fastest is measured by the
measuring process alone, because the others are in each other's way (``autotune_local_cache`` is off in all of them).
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from typing import Any

from benchmarks.measure.problems import Case

__all__ = ["compile_ahead", "configure"]

LEAST_CASES = 16
"""Of fewer, the start of the processes would take longer than they save."""

MOST_PROCESSES, MOST_BYTES = 12, 4 << 30
"""Each process has a context and an input of so many bytes on the device."""

MOST_SECONDS = 150.0
"""What is not compiled by then is compiled when it is measured."""

_state: dict[str, Any] = {}


def compile_ahead(cases: Sequence[Case]) -> None:
    """Compile the cases in processes of their own; what fails there is compiled, and fails, when it is measured."""
    cases = [case for case in cases if case.nbytes <= MOST_BYTES]
    if len(cases) < LEAST_CASES:
        return
    many = max(1, min(MOST_PROCESSES, (os.cpu_count() or 2) // 2))
    with ProcessPoolExecutor(many, mp_context=multiprocessing.get_context("spawn"), initializer=_start) as pool:
        outcomes = [pool.submit(_compile, case) for case in cases]
        wait(outcomes, timeout=MOST_SECONDS)
        for outcome in outcomes:
            outcome.cancel()


def configure() -> None:
    """Have this process choose configurations by itself, and compile in one thread.

    Options are part of the cache's key, so all processes must have the same.
    """
    config: Any = importlib.import_module("torch._inductor.config")
    for name, value in (("autotune_local_cache", False), ("compile_threads", 1)):
        if hasattr(config, name):
            setattr(config, name, value)


def _start() -> None:
    torch = importlib.import_module("torch")
    configure()
    peer = importlib.import_module("benchmarks.peers.torch_compiled").TorchCompiledPeer
    _state["peer"] = peer.__new__(peer)
    _state["peer"].torch = torch


def _compile(case: Case) -> None:
    peer = _state["peer"]
    torch, function = peer.torch, peer.function(case)
    if function is None:
        return
    memory = [
        torch.empty(case.shift + case.span, dtype=getattr(torch, case.dtype), device="cuda") for _ in range(case.arrays)
    ]
    tensors = [each.as_strided(case.shape, case.element_strides, case.shift) for each in memory]
    torch._dynamo.reset()
    torch.compile(function, fullgraph=True, dynamic=False)(tensors[0] if case.arrays == 1 else tuple(tensors))
    torch.cuda.synchronize()
    del memory, tensors
    torch.cuda.empty_cache()

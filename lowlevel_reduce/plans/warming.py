"""Warming up: the kernels of a family compiled and loaded by threads beside the caller, only when asked for."""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import Any

from lowlevel_reduce.driver import Context, binding
from lowlevel_reduce.operators import Reduction
from lowlevel_reduce.plans.loading import load_kernel, processors
from lowlevel_reduce.strategy.family import family, family_of
from lowlevel_reduce.strategy.selection import Request, Resolved
from lowlevel_reduce.strategy.stubs import KernelSource

__all__ = ["VARIABLE", "WarmUp", "follow", "is_asked_for", "warm_up"]

VARIABLE = "LOWLEVEL_REDUCE_WARM_UP"
_KEPT = "warm-ups"


class WarmUp:
    """Kernels that threads compile and load; `wait` returns when all are there.

    Dropping it stops nothing. When the process ends, no further kernel is begun.

    Parameters
    ----------
    sources : sequence of KernelSource
        What to load, in this order.
    architecture : str
        The device's architecture, e.g. ``"sm_90"``.
    """

    def __init__(self, sources: tuple[KernelSource, ...], architecture: str) -> None:
        self.kernels = len(sources)
        self._architecture = architecture
        self._driver = binding.selected()
        self._left = deque(sources)
        self._error: BaseException | None = None
        # A thread that ends with the process in the middle of NVRTC could bring it down, so these are no daemons.
        count = min(_processors(), len(sources))
        self._threads = [threading.Thread(target=self._run, name=f"warm-up-{i}") for i in range(count)]
        for thread in self._threads:
            thread.start()

    @property
    def is_done(self) -> bool:
        """Whether nothing is being compiled any more: all kernels are there, or one of them failed."""
        return not any(thread.is_alive() for thread in self._threads)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all kernels are loaded.

        Parameters
        ----------
        timeout : float, optional
            How many seconds to wait for each thread at most.

        Returns
        -------
        bool
            Whether all are loaded; False if the time was up, or if another driver was selected meanwhile.

        Raises
        ------
        CompileError, NoCompilerError, CacheError, CudaError
            What the first kernel that failed raised; the others are not begun after that.
        """
        for thread in self._threads:
            thread.join(timeout)
        if self._error is not None:
            raise self._error
        return self.is_done and not self._left

    def _run(self) -> None:
        main = threading.main_thread()
        while main.is_alive() and self._error is None and binding.selected() is self._driver:
            try:
                source = self._left.popleft()
            except IndexError:
                return
            try:
                load_kernel(source, self._architecture)
            except Exception as error:  # noqa: BLE001 - of whatever kind, it is for who waits
                self._left.appendleft(source)
                self._error = error

    def __repr__(self) -> str:
        return f"<WarmUp {self.kernels} kernels for {self._architecture}>"


def warm_up(
    op: str | Reduction = "sum", dtype: Any = "float32", *, context: Context | None = None, **options: Any
) -> WarmUp:
    """Compile and load the whole family of an operator and a type, in threads, while the caller goes on.

    After that no call of this operator and type compiles anything, whatever the shape, strides and addresses. A kernel
    that a call needs before the threads come to it is compiled by the call, which waits for that kernel alone.

    Parameters
    ----------
    op : str or Operator
        The operator, or its name.
    dtype : dtype
        Type of the elements.
    context : Context, optional
        On which device; by default that of the current context, else device 0.
    **options
        As for `lowlevel_reduce.plan`: `accumulate`, `result_dtype`, `where`, `initial`, `nan`, `ddof`, `last`, `map`.

    Returns
    -------
    WarmUp
        Its `wait` waits for the threads, and raises what one of them met.

    Raises
    ------
    TypeError, ValueError, UnsupportedError
        If an option does not make sense, or the operator does not take the type.
    NoDriverError
        If there is no driver or no GPU.
    """
    device = Context.of(context).device
    sources = family_of(op, dtype=dtype, compute_capability=device.compute_capability, **options)
    return WarmUp(sources, device.architecture)


def is_asked_for() -> bool:
    """Return whether the environment asks that a family's first kernel brings the others."""
    return os.environ.get(VARIABLE, "").lower() not in ("", "0", "off", "no", "false")


def follow(request: Request | Resolved, context: Context) -> None:
    """Warm up the family of a request that was just served, once in a process for each family and architecture.

    What a thread meets is not told here: a call that needs the kernel meets it again, and raises it.
    """
    device = context.device
    started: dict[Any, WarmUp] = binding.selected().kept.setdefault(_KEPT, {})
    key = (device.architecture, request.text)
    if key not in started:
        started[key] = WarmUp(family(request.reduction, request.types, device.compute_capability), device.architecture)


def _processors() -> int:
    """Return how many threads compile: one for each processor of this process but the caller's, or one."""
    return max(1, processors() - 1)

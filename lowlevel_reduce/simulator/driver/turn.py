"""Whose turn it is: the rule for calls that come while another one is under way, and the only place that decides it.

- One call runs at a time, as long as its kernel takes. Calls of other threads wait.
- A call from within a call is the same thread's: a signal's handler makes it, a finalizer that the collector runs, or
  what a kernel prints to. The call that is under way may be between any two of its steps. So

  - what only asks, and what concerns the thread alone, such as its stack of contexts, is answered at once (`AT_ONCE`);
  - what frees or ends something is checked at once, and done when the call under way has ended (`LATER`): no finalizer
    is lost;
  - everything else would need what the call under way is changing: it raises `ReentrantCallError`, and nothing changes.

- Every function changes the state after the last thing that can fail, and in an order in which an interrupt between any
  two steps leaves something usable. What is left for later is begun again if an interrupt came before it was noted as
  done, so it looks first at what is there still.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from lowlevel_reduce.errors import ReduceError
from lowlevel_reduce.simulator.driver.refusal import Refusal

__all__ = ["AT_ONCE", "LATER", "ReentrantCallError", "Turn"]

_T = TypeVar("_T")

LATER = frozenset(
    {
        *("cuMemFree", "cuMemFreeAsync", "cuMemFreeHost", "cuMemPoolDestroy", "cuStreamDestroy", "cuEventDestroy"),
        *("cuLibraryUnload", "cuGraphDestroy", "cuGraphDestroyNode", "cuGraphExecDestroy"),
        *("cuCtxDestroy", "cuGreenCtxDestroy", "cuDevicePrimaryCtxRelease"),
    }
)
"""The functions that free or end something, and may do so when the call from within which they come has ended."""

AT_ONCE = frozenset(
    {
        *("cuDriverGetVersion", "cuGetErrorString", "cuGetErrorName", "cuThreadExchangeStreamCaptureMode"),
        *("cuDeviceGet", "cuDeviceGetCount", "cuDeviceGetName", "cuDeviceGetAttribute", "cuDeviceGetUuid"),
        *("cuDeviceGetUuid_v2", "cuDeviceTotalMem", "cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool"),
        *("cuDeviceCanAccessPeer", "cuDeviceGetP2PAttribute", "cuDeviceGetDevResource"),
        # A release from within a call may need the primary context, of which it lets go again later.
        *("cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxRetain"),
        *("cuCtxGetCurrent", "cuCtxSetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent", "cuCtxGetDevice"),
        *("cuCtxGetFlags", "cuCtxGetId", "cuCtxGetDevResource", "cuCtxGetStreamPriorityRange", "cuCtxFromGreenCtx"),
        *("cuGreenCtxGetDevResource", "cuStreamGetGreenCtx", "cuDevSmResourceSplitByCount"),
        *("cuStreamGetCtx", "cuStreamGetId", "cuStreamGetPriority", "cuStreamGetFlags", "cuStreamGetAttribute"),
        *("cuStreamIsCapturing", "cuMemGetInfo", "cuMemPoolGetAttribute"),
        *("cuPointerGetAttribute", "cuPointerGetAttributes", "cuGraphGetNodes", "cuGraphNodeGetType"),
        *("cuGraphKernelNodeGetAttribute", "cuFuncGetAttribute", "cuKernelGetAttribute", "cuKernelGetFunction"),
        *("cuKernelGetName", "cuLibraryEnumerateKernels", "cuLibraryGetGlobal", "cuLibraryGetKernel"),
        *("cuLibraryGetKernelCount", "cuOccupancyMaxActiveBlocksPerMultiprocessor", "cuOccupancyMaxActiveClusters"),
        *("cuOccupancyMaxPotentialClusterSize", "cuProfilerStart", "cuProfilerStop"),
    }
)
"""The functions that only ask, or concern the calling thread alone."""


class ReentrantCallError(ReduceError):
    """The simulated driver was called from within one of its own calls, to do more than to ask or to free.

    Attributes
    ----------
    call, under_way : str
        The function that was refused, and the one that was under way.
    """

    def __init__(self, call: str, under_way: str) -> None:
        super().__init__(
            f"{call} was called from within {under_way}, by a signal's handler or a finalizer: the simulated driver "
            "makes one call at a time, so leave the work to be done after that call, or to another thread"
        )
        self.call = call
        self.under_way = under_way

    def __reduce__(self) -> tuple[type[ReentrantCallError], tuple[str, str]]:
        return type(self), (self.call, self.under_way)


class Turn:
    """The one call that is under way, those from within it, and what they leave to be done after it.

    What is under way is told by two locks alone, since an interrupt cannot leave the block of a lock without releasing
    it. The threads take turns by a lock around all of this.
    """

    def __init__(self) -> None:
        self._outer, self._inner = threading.Lock(), threading.Lock()
        self._late: deque[Callable[[], object]] = deque()
        self._name = ""

    def take(self, name: str, work: Callable[[], _T]) -> _T:
        """Do the work of the function `name`, if it may be done now.

        Raises
        ------
        ReentrantCallError
            If it is called from within another call, and neither asks nor frees.
        """
        if not self._outer.locked():
            try:
                with self._outer:
                    self._name = name
                    self._catch_up()  # what an interrupt has left
                    value = work()  # its own line, inside the block: an interrupt at a call's end finds the block open
            finally:
                self.settle()
            return value
        if name not in AT_ONCE and name not in LATER:
            raise ReentrantCallError(name, self._name)
        if self._inner.locked():
            return work()
        with self._inner:
            value = work()
        return value

    def soon(self, act: Callable[[], object]) -> None:
        """Do something now or, in a call from within a call, when the outer one has ended."""
        if self._inner.locked():
            self._late.append(act)
        else:
            act()

    def settle(self) -> None:
        """Do what is left to be done, unless a call is under way."""
        while self._late and not self._outer.locked():
            with self._outer:
                self._catch_up()

    def _catch_up(self) -> None:
        while self._late:
            try:
                self._late[0]()
            except Refusal as refusal:
                # Nobody waits for it any more. It was right when it was asked for; what came before it changed that.
                logging.getLogger("lowlevel_reduce").warning("what a finalizer freed could not be: %s", refusal)
            self._late.popleft()

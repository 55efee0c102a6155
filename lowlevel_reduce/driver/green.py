"""Green contexts: a share of a device's multiprocessors is split off, described and turned into a context."""

from __future__ import annotations

from typing import Any

from lowlevel_reduce.driver import binding
from lowlevel_reduce.driver.device import Device
from lowlevel_reduce.driver.held import Held
from lowlevel_reduce.errors import CudaError, UnsupportedError

__all__ = ["context_of", "create_green", "create_stream", "green_of_current"]

_REFUSED = ("CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_INVALID_RESOURCE_TYPE", "CUDA_ERROR_NOT_PERMITTED")
_NON_BLOCKING = 1  # the only kind of stream that a green context has
_DEFAULT_STREAM = 1  # CU_GREEN_CTX_DEFAULT_STREAM, which drivers before CUDA 13 insist on


def create_green(device: Device, sm_count: int, held: Held) -> tuple[int, int]:
    """Create a green context of at least `sm_count` multiprocessors, and hold it; nothing becomes current.

    Returns
    -------
    (int, int)
        The ``CUgreenCtx``, which the caller gives back to ``cuGreenCtxDestroy``, and the ``CUcontext`` that stands for
        it.

    Raises
    ------
    TypeError, ValueError
        If `sm_count` is no positive integer.
    UnsupportedError
        If the device has fewer multiprocessors, or no green contexts, or the driver is older than CUDA 12.4.
    """
    if isinstance(sm_count, bool) or not isinstance(sm_count, int):
        raise TypeError(f"sm_count is an int, not {type(sm_count).__name__}")
    if sm_count < 1:
        raise ValueError(f"a green context has at least one multiprocessor, not {sm_count}")
    try:
        share = binding.call("cuDevResourceGenerateDesc", [_share(device, sm_count)], 1)
        handle = int(held.take("cuGreenCtxCreate", share, device.handle, _DEFAULT_STREAM))
    except CudaError as error:
        if error.name not in _REFUSED:
            raise
        raise UnsupportedError(f"{device.name} ({device.architecture}) has no green contexts ({error})") from error
    try:
        return handle, int(binding.call("cuCtxFromGreenCtx", handle))
    except CudaError:  # now, not with the error's traceback
        held.give_back("cuGreenCtxDestroy", handle)
        raise


def create_stream(green: int, priority: int, held: Held) -> int:
    """Create a stream on the multiprocessors of a green context, whatever is current; hold it and return its handle."""
    return int(held.take("cuGreenCtxStreamCreate", green, _NON_BLOCKING, priority))


def context_of(stream: int) -> int:
    """Return the handle of the context of a stream, which is no default one, also if that context is green."""
    try:
        return int(binding.call("cuStreamGetCtx", stream))
    except CudaError as error:
        # What a driver before CUDA 13 answers for a stream that was made in a green context.
        if error.name != "CUDA_ERROR_NOT_SUPPORTED":
            raise
        return int(binding.call("cuCtxFromGreenCtx", int(binding.call("cuStreamGetGreenCtx", stream))))


def green_of_current() -> int:
    """Return the ``CUgreenCtx`` that the current context stands for, 0 if it is no green context."""
    try:
        # The null stream means that of the current context; no other call tells a green context from a plain one.
        return int(binding.call("cuStreamGetGreenCtx", 0))
    except UnsupportedError:  # a driver without the call has no green contexts
        return 0


def _share(device: Device, sm_count: int) -> Any:
    kind = binding.native().CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    whole = binding.call("cuDeviceGetDevResource", device.handle, kind)
    there = int(whole.sm.smCount)
    if sm_count > there:
        raise UnsupportedError(f"{device.name} has {there} multiprocessors, not {sm_count}")
    try:
        groups, count, _ = binding.call("cuDevSmResourceSplitByCount", 1, whole, 0, sm_count)
    except CudaError as error:
        if error.name != "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION":
            raise
        count = 0
    # Rounded up to what the device can set apart, it may be more than there are: then only the whole serves.
    return groups[0] if count else whole

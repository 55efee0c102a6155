"""What the driver knows about an address, and the check that it is memory of a context, as many bytes as are due."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lowlevel_reduce.driver import binding, captures
from lowlevel_reduce.errors import CudaError

if TYPE_CHECKING:
    from lowlevel_reduce.driver.context import Context

__all__ = ["PointerInfo", "check_pointer", "pointer_info"]

_ASKED = ("MEMORY_TYPE", "CONTEXT", "RANGE_START_ADDR", "RANGE_SIZE", "IS_MANAGED")
_HOST, _DEVICE, _UNIFIED = 1, 2, 4  # CUmemorytype


class PointerInfo(NamedTuple):
    """What the driver knows about an address.

    Attributes
    ----------
    kind : str
        "device", "host" (pinned or registered), "managed", or "unregistered": plain host memory, or nothing at all.
    context_handle : int or None
        The context of the allocation; None if it belongs to no context, as memory from a pool does.
    device_ordinal : int or None
        The device of the allocation; None if the driver does not know the address.
    base, size_bytes : int
        The allocation that holds the address; 0 if the driver does not know it.
    """

    kind: str
    context_handle: int | None
    device_ordinal: int | None
    base: int
    size_bytes: int


_UNREGISTERED = PointerInfo("unregistered", None, None, 0, 0)


def pointer_info(pointer: int) -> PointerInfo:
    """Ask the driver about the address `pointer`. For an unknown address the kind is "unregistered"; that is no error.

    Raises
    ------
    ValueError
        If `pointer` is not a 64-bit address.
    """
    if not 0 <= pointer < 2**64:
        raise ValueError(f"{pointer} is not a 64-bit address")
    enumeration = binding.native().CUpointer_attribute
    attributes = [getattr(enumeration, f"CU_POINTER_ATTRIBUTE_{name}") for name in _ASKED]
    try:
        # Unlike the singular call, this one answers zeros for what does not apply, e.g. the context of pool memory.
        values = binding.call("cuPointerGetAttributes", len(attributes), attributes, pointer)
    except CudaError as error:
        if error.name not in ("CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_CONTEXT"):
            raise
        return _of_graph(pointer)
    memory_type, context, base, size_bytes, is_managed = (int(value or 0) for value in values)
    kind = _kind(memory_type, bool(is_managed))
    if kind == "unregistered":
        return _of_graph(pointer)
    # The bindings 13.3 answer device 0 for every address: they keep the driver's answer and return another field.
    ordinal = binding.written_int("cuPointerGetAttribute", enumeration.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer)
    return PointerInfo(kind, context or None, ordinal if ordinal >= 0 else None, base, size_bytes)


def check_pointer(pointer: int, size_bytes: int, context: Context, *, what: str, alignment: int = 1) -> None:
    """Refuse an address that is not `size_bytes` of device memory of `context`.

    Raises
    ------
    ValueError
        Saying which of that it is not.
    """
    if not 0 <= pointer < 2**64:  # as an array begins with a stride that lies
        raise ValueError(f"{what} begins at {pointer}, which is not a 64-bit address")
    info = pointer_info(pointer)
    if info.kind not in {"device", "managed"}:
        where = "page-locked host memory" if info.kind == "host" else "not memory that the driver knows"
        raise ValueError(f"{what} at {pointer:#x} is {where}; a device pointer is due")
    ordinal = context.device.ordinal
    if info.device_ordinal is not None and info.device_ordinal != ordinal:
        raise ValueError(f"{what} at {pointer:#x} is on device {info.device_ordinal}; this runs on device {ordinal}")
    if info.context_handle is not None and not context.reaches(info.context_handle):
        raise ValueError(
            f"{what} at {pointer:#x} is of context {info.context_handle:#x}; this runs in context {context.handle:#x}"
        )
    left = info.base + info.size_bytes - pointer
    if left < size_bytes:
        raise ValueError(f"{what} at {pointer:#x} needs {size_bytes} bytes; its allocation ends after {left}")
    if pointer % alignment:
        raise ValueError(f"{what} at {pointer:#x} is not aligned to {alignment} bytes")


def _of_graph(pointer: int) -> PointerInfo:
    """Return what is known of an address that the driver does not know: it may be memory of a graph under capture."""
    found = captures.holding(binding.selected(), pointer)
    return _UNREGISTERED if found is None else PointerInfo("device", None, found[2], found[0], found[1])


def _kind(memory_type: int, is_managed: bool) -> str:
    if is_managed or memory_type == _UNIFIED:
        return "managed"
    return {_DEVICE: "device", _HOST: "host"}.get(memory_type, "unregistered")

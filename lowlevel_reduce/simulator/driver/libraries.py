"""Libraries loaded from PTX text, their kernels, and the attributes of a kernel on the device."""

# ruff: noqa: N802, D102 - the names are the driver's, and so is their documentation

from __future__ import annotations

import re
from typing import Any

from cuda.bindings import driver as cu

from lowlevel_reduce.simulator.devices import SimulatedDevice
from lowlevel_reduce.simulator.driver.engine import KernelCode
from lowlevel_reduce.simulator.driver.occupancy import estimated_registers, most_threads
from lowlevel_reduce.simulator.driver.records import Kernel, Library
from lowlevel_reduce.simulator.driver.state import State, refuse

__all__ = ["Libraries", "kernel_of"]

_PLAIN_SHARED_BYTES = 48 * 1024
_TARGET = re.compile(rb"^\s*\.target\s+sm_(\d+)([af]?)", re.MULTILINE)
_ATTRIBUTE = "CU_FUNC_ATTRIBUTE_"


class Libraries:
    """Functions of libraries and kernels."""

    def __init__(self, state: State) -> None:
        self._state = state

    def cuLibraryLoadData(
        self,
        code: Any,
        options: Any,
        option_values: Any,
        option_count: int,
        library_options: Any,
        library_option_values: Any,
        library_option_count: int,
    ) -> Any:
        text = _ptx(code)
        _check_target(text, self._state.device)
        try:
            module = self._state.engine.parse(text.decode())
        except UnicodeDecodeError:
            refuse("INVALID_PTX")
        library = Library(self._state.new_handle())
        records: dict[int, Any] = {library.handle: library}
        for name, kernel in module.kernels.items():
            record = Kernel(self._state.new_handle(), library, kernel, _attributes(kernel, self._state.device))
            library.kernels[name] = records[record.handle] = record
        for name, address in self._state.engine.place(module, self._state.memory).items():
            library.variables[name] = (address, module.variables[name].size)
        self._state.records.update(records)  # all at once
        return cu.CUlibrary(library.handle)

    def cuLibraryUnload(self, library: Any) -> None:
        record = self._state.get(Library, library)
        self._state.turn.soon(lambda: self._end(record))

    def _end(self, record: Library) -> None:
        for kernel in record.kernels.values():
            self._state.drop(kernel.handle)
        for address, _ in record.variables.values():
            self._state.free(address)
        self._state.drop(record.handle)

    def cuLibraryGetKernel(self, library: Any, name: bytes) -> Any:
        kernel = self._state.get(Library, library).kernels.get(name.decode(errors="replace"))
        return cu.CUkernel(kernel.handle) if kernel else refuse("NOT_FOUND")

    def cuLibraryGetGlobal(self, library: Any, name: bytes) -> tuple[Any, int]:
        found = self._state.get(Library, library).variables.get(name.decode(errors="replace"))
        if found is None:
            refuse("NOT_FOUND")
        address, size = found
        return cu.CUdeviceptr(address), size

    def cuLibraryGetKernelCount(self, library: Any) -> int:
        return len(self._state.get(Library, library).kernels)

    def cuLibraryEnumerateKernels(self, count: int, library: Any) -> list[Any]:
        kernels = list(self._state.get(Library, library).kernels.values())
        return [cu.CUkernel(kernel.handle) for kernel in kernels[:count]]

    def cuKernelGetName(self, kernel: Any) -> bytes:
        return kernel_of(self._state, kernel).code.name.encode()

    def cuKernelGetFunction(self, kernel: Any) -> Any:
        self._state.current()
        return cu.CUfunction(kernel_of(self._state, kernel).handle)

    def cuKernelGetAttribute(self, attribute: Any, kernel: Any, device: Any) -> int:
        self._state.check_device(device)
        return self._attribute(attribute, kernel)

    def cuKernelSetAttribute(self, attribute: Any, value: int, kernel: Any, device: Any) -> None:
        self._state.check_device(device)
        self._set_attribute(attribute, value, kernel)

    def cuFuncGetAttribute(self, attribute: Any, function: Any) -> int:
        self._state.current()
        return self._attribute(attribute, function)

    def cuFuncSetAttribute(self, function: Any, attribute: Any, value: int) -> None:
        self._state.current()
        self._set_attribute(attribute, value, function)

    def _attribute(self, attribute: Any, kernel: Any) -> int:
        value = kernel_of(self._state, kernel).attributes.get(attribute.name.removeprefix(_ATTRIBUTE))
        return refuse("INVALID_VALUE") if value is None else value

    def _set_attribute(self, attribute: Any, value: int, kernel: Any) -> None:
        record = kernel_of(self._state, kernel)
        name = attribute.name.removeprefix(_ATTRIBUTE)
        allowed = _settable(record.code, self._state.device).get(name)
        if allowed is None or value not in allowed:
            refuse("INVALID_VALUE")
        record.attributes[name] = value


def kernel_of(state: State, function: Any) -> Kernel:
    """Return the kernel of a ``CUkernel`` or ``CUfunction``."""
    return state.get(Kernel, function)


def _ptx(code: Any) -> bytes:
    data = bytes(code).rstrip(b"\0")
    if data.startswith(b"\x7fELF"):
        refuse("NO_BINARY_FOR_GPU")
    if not data.lstrip().startswith((b"//", b".version")):
        refuse("INVALID_IMAGE")
    return data


def _check_target(text: bytes, device: SimulatedDevice) -> None:
    found = _TARGET.search(text)
    if found is None:
        refuse("INVALID_PTX")
    major, minor = device.compute_capability
    target, suffix, own = int(found[1]), found[2], 10 * major + minor
    # With the suffix "a", PTX is for one architecture only; with "f", also for later ones of the same family.
    later = target == own if suffix == b"a" else target // 10 == major if suffix == b"f" else True
    if target > own or not later:
        refuse("INVALID_PTX")


def _attributes(code: KernelCode, device: SimulatedDevice) -> dict[str, int]:
    major, minor = device.compute_capability
    return {
        "MAX_THREADS_PER_BLOCK": most_threads(code, device),
        "SHARED_SIZE_BYTES": code.static_shared_bytes,
        "CONST_SIZE_BYTES": 0,
        "LOCAL_SIZE_BYTES": code.local_bytes,
        "NUM_REGS": estimated_registers(code),
        "PTX_VERSION": 10 * major + minor,
        "BINARY_VERSION": 10 * major + minor,
        "CACHE_MODE_CA": 0,
        "MAX_DYNAMIC_SHARED_SIZE_BYTES": max(0, _PLAIN_SHARED_BYTES - code.static_shared_bytes),
        "PREFERRED_SHARED_MEMORY_CARVEOUT": -1,
        "CLUSTER_SIZE_MUST_BE_SET": 0,
        "REQUIRED_CLUSTER_WIDTH": 0,
        "REQUIRED_CLUSTER_HEIGHT": 0,
        "REQUIRED_CLUSTER_DEPTH": 0,
        "NON_PORTABLE_CLUSTER_SIZE_ALLOWED": 0,
        "CLUSTER_SCHEDULING_POLICY_PREFERENCE": 0,
    }


def _settable(code: KernelCode, device: SimulatedDevice) -> dict[str, range]:
    """Return the attributes that can be set, each with its valid values."""
    clusters = range(2) if device.clusters else range(0)
    return {
        "MAX_DYNAMIC_SHARED_SIZE_BYTES": range(device.shared_per_block_optin - code.static_shared_bytes + 1),
        "PREFERRED_SHARED_MEMORY_CARVEOUT": range(-1, 101),
        "NON_PORTABLE_CLUSTER_SIZE_ALLOWED": clusters,
        "CLUSTER_SCHEDULING_POLICY_PREFERENCE": range(3) if device.clusters else range(0),
    }

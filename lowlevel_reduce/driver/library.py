"""Cubins and the kernels in them, loaded independently of any context."""

from __future__ import annotations

import functools
from typing import Any

from lowlevel_reduce.driver import binding
from lowlevel_reduce.driver.context import Context
from lowlevel_reduce.driver.device import Device
from lowlevel_reduce.driver.handle import Handle
from lowlevel_reduce.driver.held import Held
from lowlevel_reduce.errors import CudaError, UnsupportedError

__all__ = ["Kernel", "Library", "kernels_of_graphs"]

_ELF = b"\x7fELF"


class Library(Handle):
    """A loaded cubin. It belongs to no context: the driver loads it into each context that launches from it.

    Kernels of a closed library raise ValueError when they are used. Close a library only when no launch from it is
    still running, and no graph will launch from it again.
    """

    __slots__ = ("_name",)

    _noun = "library"
    _makers = ("load",)

    _name: str

    @classmethod
    def load(cls, cubin: bytes, *, name: str = "") -> Library:
        """Load a cubin; the driver keeps its own copy.

        Parameters
        ----------
        cubin : bytes
            The image for the device's architecture; PTX for a driver that loads that, such as the simulator.
        name : str
            A name for error messages.

        Raises
        ------
        ValueError
            If it is not a cubin.
        CudaError
            If the driver refuses it.
        """
        if not isinstance(cubin, (bytes, bytearray, memoryview)):
            raise TypeError(f"a cubin is bytes, not {type(cubin).__name__}")
        # The driver would take any text for PTX, and complain at the first use.
        if binding.selected().image == "cubin" and bytes(cubin[:4]) != _ELF:
            raise ValueError(f"this is no cubin: it starts with {bytes(cubin[:4])!r}")
        held = Held(binding.selected())
        self = cls.__new__(cls)
        self._name = name
        self._adopt(None, (held, functools.partial(_unload, held)))
        self._handle = int(held.take("cuLibraryLoadData", bytes(cubin), None, None, 0, None, None, 0))
        return self

    @property
    def name(self) -> str:
        """The name that it was given, for messages."""
        return self._name

    def kernel(self, name: str) -> Kernel:
        """Return the kernel of that name (mangled, unless it is ``extern "C"``).

        Raises
        ------
        ValueError
            If there is none; the message lists the kernels that there are.
        """
        try:
            handle = binding.call("cuLibraryGetKernel", self.handle, name.encode())
        except CudaError as error:
            if error.name != "CUDA_ERROR_NOT_FOUND":
                raise
            raise ValueError(f"library {self._name!r} has no kernel {name!r}; {self._known()}") from error
        return Kernel(self, name, int(handle))

    def kernel_names(self) -> tuple[str, ...]:
        """Return the names of all its kernels; needs a driver of CUDA 12.4."""
        count = int(binding.call("cuLibraryGetKernelCount", self.handle))
        kernels = binding.call("cuLibraryEnumerateKernels", count, self.handle)
        return tuple(sorted(binding.call("cuKernelGetName", int(kernel)).decode() for kernel in kernels))

    def _known(self) -> str:
        try:
            names = self.kernel_names()
        except (CudaError, UnsupportedError) as error:  # an old driver: the message does without the list
            return f"its kernels cannot be listed ({error})"
        return f"it has {', '.join(names) or 'none'}"


class Kernel:
    """A kernel of a library. Get one from ``Library.kernel``; it keeps its library alive.

    What a kernel uses depends on the device, so the methods take one.
    """

    __slots__ = ("_function", "_handle", "library", "name")

    def __init__(self, library: Library, name: str, handle: int) -> None:
        self.library = library
        self.name = name
        self._handle = handle
        # Launches and occupancy queries take a CUkernel where a CUfunction is due, by a cast.
        self._function = binding.native().CUfunction(handle)

    @property
    def handle(self) -> int:
        """The driver's ``CUkernel``, an integer.

        Raises
        ------
        ValueError
            If its library is closed.
        """
        if self.library.is_closed:
            raise ValueError(f"library {self.library.name!r} of kernel {self.name!r} is closed")
        return self._handle

    @property
    def function(self) -> Any:
        """The kernel as the ``CUfunction`` that launches and occupancy queries take."""
        return self._function if self.handle else None

    def function_in(self, context: Context) -> Any:
        """Return the kernel as the ``CUfunction`` of one context, valid only there.

        The driver loads the kernel into the context now, so that a launch has nothing left to look up.
        """
        with context.pushed():
            return binding.call("cuKernelGetFunction", self.handle)

    def attribute(self, name: str, device: Device | int) -> int:
        """Return an attribute of the kernel on `device`, by a name of ``CUfunction_attribute`` without its prefix."""
        return int(binding.call("cuKernelGetAttribute", _attribute(name), self.handle, Device.of(device).handle))

    def set_attribute(self, name: str, value: int, device: Device | int) -> None:
        """Set an attribute of the kernel on `device`, for every context there."""
        binding.call("cuKernelSetAttribute", _attribute(name), value, self.handle, Device.of(device).handle)

    def registers(self, device: Device | int) -> int:
        """32-bit registers per thread."""
        return self.attribute("NUM_REGS", device)

    def static_shared_bytes(self, device: Device | int) -> int:
        """Shared memory that the kernel declares statically, in bytes per block."""
        return self.attribute("SHARED_SIZE_BYTES", device)

    def local_bytes(self, device: Device | int) -> int:
        """Local memory per thread in bytes: stack and spilled registers."""
        return self.attribute("LOCAL_SIZE_BYTES", device)

    def constant_bytes(self, device: Device | int) -> int:
        """Constant memory that the kernel declares, in bytes."""
        return self.attribute("CONST_SIZE_BYTES", device)

    def max_threads_per_block(self, device: Device | int) -> int:
        """Threads of the largest block that can be launched, given its registers and launch bounds."""
        return self.attribute("MAX_THREADS_PER_BLOCK", device)

    def max_dynamic_shared_bytes(self, device: Device | int) -> int:
        """Dynamic shared memory per block that a launch may ask for, in bytes."""
        return self.attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES", device)

    def set_max_dynamic_shared_bytes(self, size_bytes: int, device: Device | int) -> None:
        """Let launches on `device` ask for up to `size_bytes` of dynamic shared memory per block; needed above 48 KiB.

        Raises
        ------
        UnsupportedError
            If this and the static shared memory together exceed what a block may have.
        """
        device = Device.of(device)
        static, most = self.static_shared_bytes(device), device.shared_memory_per_block_optin_bytes
        if static + size_bytes > most:
            raise UnsupportedError(
                f"kernel {self.name!r}: {size_bytes} bytes of dynamic and {static} of static shared memory exceed the "
                f"{most} that a block may have on {device.name}"
            )
        self.set_attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES", size_bytes, device)

    def allow_non_portable_cluster(self, device: Device | int, allow: bool = True) -> None:
        """Allow clusters of more than 8 blocks on `device`, which not every device of its family can run."""
        self.set_attribute("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", int(allow), device)

    def allows_non_portable_cluster(self, device: Device | int) -> bool:
        """Tell whether clusters of more than 8 blocks are allowed on `device`."""
        return bool(self.attribute("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", device))

    def __repr__(self) -> str:
        return f"<Kernel {self.name!r}{' closed' if self.library.is_closed else ''}>"


def kernels_of_graphs() -> dict[Kernel, None]:
    """Return the kernels that stay loaded for good: a graph may use them, and nothing tells when the graph ends."""
    kept: dict[Kernel, None] = binding.selected().kept.setdefault("kernels of graphs", {})
    return kept


def _attribute(name: str) -> Any:
    attribute = getattr(binding.native().CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name.upper()}", None)
    if attribute is None:
        raise ValueError(f"{binding.bindings_version()} knows no kernel attribute {name!r}")
    return attribute


def _unload(held: Held) -> None:
    held.give_back("cuLibraryUnload", held.handle)

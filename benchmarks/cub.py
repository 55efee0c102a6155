"""CUB's device-wide sum as a callable, compiled with the nvcc of the machine."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from lowlevel_reduce import Buffer, ReduceError, Stream

__all__ = ["CubSum"]

SOURCE = Path(__file__).with_name("cub_sum.cu")


class CubSum:
    """``cub::DeviceReduce::Sum`` for one element type, with a workspace of its own. Raises ReduceError without nvcc."""

    _library: ctypes.CDLL | None = None

    def __init__(self, dtype: str, architecture: str) -> None:
        self._function = getattr(self._load(architecture), f"cub_sum_{dtype}")
        self._workspace: Buffer | None = None

    def __call__(self, source: int, result: int, length: int, stream: Stream) -> None:
        """Put the sum into the stream. The first call for a length allocates; do it before a capture."""
        size = ctypes.c_size_t(0)
        self._call(0, size, source, result, length, stream)
        if self._workspace is None or self._workspace.size_bytes < size.value:
            self._workspace = Buffer.allocate(max(size.value, 1), stream.context)
        self._call(self._workspace.pointer, size, source, result, length, stream)

    def bound(self, length: int, stream: Stream) -> Callable[[int, int], None]:
        """Return the sum of `length` elements in `stream` as a function of input and result address."""
        return lambda source, result: self(source, result, length, stream)

    def _call(
        self, workspace: int, size: ctypes.c_size_t, source: int, result: int, length: int, stream: Stream
    ) -> None:
        pointers = [ctypes.c_void_p(address) for address in (source, result)]
        status = self._function(
            ctypes.c_void_p(workspace),
            ctypes.byref(size),
            *pointers,
            ctypes.c_longlong(length),
            ctypes.c_void_p(stream.handle),
        )
        if status:
            raise ReduceError(f"CUB answered {status}")

    @classmethod
    def _load(cls, architecture: str) -> ctypes.CDLL:
        if cls._library is None:
            nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
            if nvcc is None:
                raise ReduceError("nvcc is missing: no figure of CUB on this machine")
            folder = Path(tempfile.mkdtemp(prefix="cub_sum_"))
            library = folder / "cub_sum.so"
            subprocess.run(
                [
                    nvcc,
                    "-O3",
                    f"-arch={architecture}",
                    "-shared",
                    "-Xcompiler",
                    "-fPIC",
                    "-o",
                    str(library),
                    str(SOURCE),
                ],
                check=True,
            )
            cls._library = ctypes.CDLL(str(library))
        return cls._library

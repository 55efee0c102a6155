"""CUB, compiled with the machine's nvcc: one small library for each kind of call and element type."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure.harness import SPOILT, Inputs, Maker, Ready
from benchmarks.measure.problems import Case
from benchmarks.peers.common import Missing, RawArray, closer, reader
from lowlevel_reduce import Buffer, ReduceError, Stream
from lowlevel_reduce.dtypes import numpy_dtype

__all__ = ["CubPeer", "open_peer"]

SOURCE = Path(__file__).with_name("cub.cu")

TYPES = {
    "float16": ("__half", "float", "float32"),
    "bfloat16": ("__nv_bfloat16", "float", "float32"),
    "float32": ("float", "float", "float32"),
    "float64": ("double", "double", "float64"),
    "int8": ("signed char", "int", "int32"),
    "uint8": ("unsigned char", "unsigned int", "uint32"),
    "int16": ("short", "long long", "int64"),
    "uint16": ("unsigned short", "unsigned long long", "uint64"),
    "int32": ("int", "long long", "int64"),
    "uint32": ("unsigned int", "unsigned long long", "uint64"),
    "int64": ("long long", "long long", "int64"),
    "uint64": ("unsigned long long", "unsigned long long", "uint64"),
}
"""For each element type its name in CUDA C++, that of the accumulator, and the accumulator's in NumPy."""

VARIANTS = {
    "SUM": "CUB",
    "NOT_GUARANTEED": "CUB not_guaranteed",
    "GPU_TO_GPU": "CUB gpu_to_gpu",
    "ARGMAX": "CUB ArgMax",
    "MAX": "CUB Max",
    "ROWS": "CUB segmented",
    "SEGMENTS": "CUB segmented",
}

_COMPILERS = min(16, os.cpu_count() or 1)
"""How many compilers run at once; nothing is timed until all are done."""


class CubPeer:
    """CUB's device-wide and segmented reductions."""

    def __init__(self, nvcc: str, architecture: str) -> None:
        self._nvcc = nvcc
        self._architecture = architecture
        self._pool = ThreadPoolExecutor(_COMPILERS)
        self._libraries: dict[tuple[str, str], Future[ctypes.CDLL]] = {}

    def prefetch(self, cases: Iterable[Case]) -> None:
        """Start to compile what the cases will need."""
        for case in cases:
            for kind in kinds(case):
                self._library(kind, case.dtype)

    def settle(self) -> None:
        """Wait until all compilations are done; those that need a failed one get its error later."""
        wait(self._libraries.values())

    def version(self) -> str:
        """Return the version of CUB's headers that were compiled."""
        number = int(self._library("SUM", "float32").result().peer_version())
        return f"{number // 100000}.{number // 100 % 1000}.{number % 100}"

    def ready(self, case: Case, inputs: Inputs, stream: Stream) -> list[Maker]:
        """Return the makers of every variant of CUB that can reduce the case."""
        return [
            Maker(VARIANTS[kind], functools.partial(self._ready, kind, case, inputs, stream)) for kind in kinds(case)
        ]

    def _ready(self, kind: str, case: Case, inputs: Inputs, stream: Stream) -> Ready:
        library = self._library(kind, case.dtype).result()
        accumulator = numpy_dtype(TYPES[case.dtype][2])
        result = {"ARGMAX": np.dtype(np.int64), "MAX": numpy_dtype(case.dtype)}.get(kind, accumulator)
        out = Buffer.allocate(max(16, case.rows * result.itemsize), stream.context)
        call = _call(library, kind, case, inputs, out, stream)
        size = ctypes.c_size_t(0)
        call(0, size, 0)
        workspace = Buffer.allocate(max(size.value, 1), stream.context)

        results, close = reader(out, case.rows, result, stream), closer(stream, workspace, out)
        enqueue, spoil = (lambda i: call(workspace.pointer, size, i)), (lambda: out.fill(SPOILT, stream=stream))
        first = RawArray(out.pointer, (case.rows,), result)
        return Ready(VARIANTS[kind], enqueue, results, outputs=lambda: first, spoil=spoil, close=close)

    def _library(self, kind: str, dtype: str) -> Future[ctypes.CDLL]:
        key = (kind, dtype)
        if key not in self._libraries:
            self._libraries[key] = self._pool.submit(self._compiled, kind, dtype)
        return self._libraries[key]

    def _compiled(self, kind: str, dtype: str) -> ctypes.CDLL:
        element, accumulator, _ = TYPES[dtype]
        macros = [f"-DKIND_{kind}", f"-DIN={element}", f"-DOUT={accumulator}"]
        options = ["-O3", "-std=c++17", f"-arch={self._architecture}", "-shared", "-Xcompiler", "-fPIC"]
        command = [self._nvcc, *options, *_newer_headers(), *macros]
        digest = hashlib.sha256(SOURCE.read_bytes() + "\0".join(command).encode()).hexdigest()[:20]
        folder = Path(tempfile.gettempdir()) / f"lowlevel_reduce_cub_{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        library = folder / f"{digest}.so"
        if not library.exists():
            made = folder / f"{digest}.{os.getpid()}.so"
            # Run in the source's directory, so that an error kept in a report names the file without its path.
            run = subprocess.run(
                [*command, "-o", str(made), SOURCE.name], capture_output=True, text=True, check=False, cwd=SOURCE.parent
            )
            if run.returncode:
                errors = [line for line in run.stderr.splitlines() if "error" in line]
                raise ReduceError(f"nvcc: {errors[0] if errors else run.stderr.strip()[:200]}")
            made.replace(library)
        return ctypes.CDLL(str(library))


def kinds(case: Case) -> list[str]:
    """Return the kinds of call that reduce a case; none if CUB has no single call for it."""
    if case.dtype not in TYPES or case.op not in ("sum", "argmax", "max") or not case.is_plain:
        return []
    if case.offsets is not None:
        return ["SEGMENTS"] if case.op == "sum" else []
    if case.axis is not None:
        last = case.axis == len(case.shape) - 1
        return ["ROWS"] if last and case.op == "sum" and case.shape[-1] < 2**31 else []
    if case.op in ("argmax", "max"):
        return [case.op.upper()]
    return ["SUM", "NOT_GUARANTEED", "GPU_TO_GPU"] if case.dtype in ("float32", "float64") else ["SUM"]


def _call(
    library: ctypes.CDLL, kind: str, case: Case, inputs: Inputs, out: Buffer, stream: Stream
) -> Callable[[int, ctypes.c_size_t, int], None]:
    """Return the call as a function of workspace, its size, and which copy of the input."""
    sources = [ctypes.c_void_p(pointer) for pointer in inputs.pointers]
    target, handle = ctypes.c_void_p(out.pointer), ctypes.c_void_p(stream.handle)
    tail: tuple[Any, ...]
    if kind in ("ROWS", "SEGMENTS"):
        function = library.peer_segments
        borders = ctypes.c_void_p(inputs.offsets.pointer if inputs.offsets is not None else 0)
        length = ctypes.c_int(case.shape[-1] if inputs.offsets is None else 0)
        tail = (target, ctypes.c_longlong(case.rows), length, borders, handle)
    else:
        function = library.peer_call
        tail = (target, ctypes.c_longlong(case.size), handle)

    def call(workspace: int, size: ctypes.c_size_t, i: int) -> None:
        status = function(ctypes.c_void_p(workspace), ctypes.byref(size), sources[i % len(sources)], *tail)
        if status:
            raise ReduceError(f"CUB answered {status}")

    return call


def _newer_headers() -> list[str]:
    """Return the option for the headers of cuda-cccl, which are newer than the toolkit's, if it is installed."""
    try:
        found = importlib.util.find_spec("cuda.cccl")
    except ImportError:
        return []
    for place in (found.submodule_search_locations or []) if found is not None else []:
        headers = Path(place) / "headers" / "include"
        if (headers / "cub").is_dir():
            return [f"-I{headers}"]
    return []


def open_peer(stream: Stream) -> CubPeer:
    """Return CUB; raise `Missing` if nvcc is not installed."""
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc is None:
        raise Missing("there is no nvcc to compile CUB with")
    return CubPeer(nvcc, stream.context.device.architecture)

"""Every form of a call, beside the form that PyTorch, CuPy or JAX has for the same: what each is and what is right."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

import lowlevel_reduce as lr
from benchmarks.measure.problems import pattern

__all__ = ["FORMS", "Arrays", "Do", "Form", "host_array", "installed"]

ROWS, COLUMNS = 512, 1024
CHUNK = 1 << 13
THREADS, CALLS_OF_A_THREAD, CAPTURED = 8, 25, 100

Libraries = Mapping[str, Any]


class Arrays:
    """The same elements as arrays of every library, float32, each made when a form first asks for it.

    Parameters
    ----------
    stream : Stream
        Where arrays of this library are.
    libraries : mapping
        Those that are installed, by their modules' names.
    shape : tuple of int
        Rows and columns of the matrix.
    """

    def __init__(self, stream: lr.Stream, libraries: Libraries, shape: tuple[int, int] = (ROWS, COLUMNS)) -> None:
        self.stream, self.libraries = stream, libraries
        self.host = pattern("float32").values[: shape[0] * shape[1]].reshape(shape).copy()
        self.cube_host = self.host.reshape(8, -1, shape[1])
        self.mask_host = self.host > 0
        self.offsets_host = np.arange(0, self.host.size + 1, shape[1])
        self.absmax = lr.Operator("absmax", map="fabsf(x)", combine="fmaxf(a, b)", identity='nanf("")')

    @property
    def torch(self) -> Any:
        """PyTorch; raises KeyError without it."""
        return self.libraries["torch"]

    @property
    def cupy(self) -> Any:
        """CuPy; raises KeyError without it."""
        return self.libraries["cupy"]

    def of(self, host: npt.NDArray[Any]) -> Any:
        """Return an array on the device: PyTorch's, or this library's own without PyTorch."""
        if "torch" in self.libraries:
            return self.torch.from_numpy(host).cuda()
        return lr.DeviceArray.from_numpy(host, self.stream)

    @cached_property
    def x(self) -> Any:
        """The matrix."""
        return self.of(self.host)

    @cached_property
    def flat(self) -> Any:
        """The same as a vector."""
        return self.of(self.host.reshape(-1))

    @cached_property
    def cube(self) -> Any:
        """The same with three axes."""
        return self.of(self.cube_host)

    @cached_property
    def half(self) -> Any:
        """The matrix in float16."""
        return self.of(self.host.astype(np.float16))

    @cached_property
    def stepped(self) -> Any:
        """Every second column."""
        return self.x[:, ::2]

    @cached_property
    def transposed(self) -> Any:
        """The matrix transposed."""
        return self.x.T

    @cached_property
    def mask(self) -> Any:
        """Where the elements are positive."""
        return self.of(self.mask_host)

    @cached_property
    def offsets(self) -> Any:
        """The borders of segments that are the rows."""
        return self.of(self.offsets_host)

    @cached_property
    def halves(self) -> list[Any]:
        """The vector in two parts."""
        middle = self.host.size // 2
        return [self.of(part) for part in np.split(self.host.reshape(-1), [middle])]

    @cached_property
    def device(self) -> lr.DeviceArray:
        """The matrix as an array of this library's."""
        return lr.DeviceArray.from_numpy(self.host, self.stream)

    @cached_property
    def of_cupy(self) -> Any:
        """The matrix as CuPy's."""
        return self.cupy.asarray(self.host)

    @cached_property
    def of_jax(self) -> Any:
        """The matrix as JAX's."""
        return self.libraries["jax"].numpy.asarray(self.host)

    @cached_property
    def of_numba(self) -> Any:
        """The matrix as Numba's."""
        return self.libraries["numba"].cuda.to_device(self.host)

    @cached_property
    def out(self) -> Any:
        """Room for a result of each row."""
        return self.of(np.zeros(len(self.host), np.float32))

    @cached_property
    def parts(self) -> Any:
        """The partials of the vector."""
        return lr.partials(self.flat, chunk=CHUNK)

    @cached_property
    def other_stream(self) -> Any:
        """Another stream of PyTorch's, or of this library's without PyTorch."""
        return self.torch.cuda.Stream() if "torch" in self.libraries else lr.Stream.create(self.stream.context)

    @cached_property
    def ours_of_other(self) -> lr.Stream:
        """That stream, as this library's."""
        other = self.other_stream
        return (
            lr.Stream.from_handle(other.cuda_stream, context=self.stream.context)
            if "torch" in self.libraries
            else other
        )

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        """Threads that call at once."""
        return ThreadPoolExecutor(THREADS)

    def in_torchs_stream(self, call: Callable[[], Any]) -> Any:
        """Return what a call returns with the other stream as PyTorch's current one."""
        with self.torch.cuda.stream(self.other_stream):
            return call()

    def in_threads(self, call: Callable[[], Any]) -> Any:
        """Call in all threads at once, each many times; return one thread's last result."""

        def many(_: int) -> Any:
            result = None
            for _ in range(CALLS_OF_A_THREAD):
                result = call()
            return result

        first, *_ = self.pool.map(many, range(THREADS))
        return first

    def captured(self, call: Callable[[], Any]) -> Any:
        """Capture many calls in a graph of PyTorch's, after one that is not captured, and replay it.

        Returns the last call's result.
        """
        torch, result = self.torch, None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.other_stream):  # and not torch.cuda.graph, which first collects garbage
            call()  # as one does before a capture
            graph.capture_begin(capture_error_mode="relaxed")
            try:
                for _ in range(CAPTURED):
                    result = call()
            finally:
                graph.capture_end()
            graph.replay()
        self.other_stream.synchronize()
        return result


Do = Callable[[Arrays], Any]


@dataclass(frozen=True)
class Form:
    """One form of a call.

    Attributes
    ----------
    name : str
        Its name.
    ours : callable
        Makes the call.
    right : callable, optional
        Returns the result that is right, of NumPy.
    others : mapping
        The form that another library has for the same, by the name of its entry.
    needs : str, optional
        The library without which there is no such form.
    calls : int
        How many calls `ours` and `others` make.
    """

    name: str
    ours: Do
    right: Do
    others: Mapping[str, Do] = field(default_factory=dict)
    needs: str | None = None
    calls: int = 1


def installed(names: Iterable[str] = ("torch", "cupy", "jax.numpy", "numba.cuda")) -> tuple[Libraries, dict[str, str]]:
    """Return those of the named modules' packages that can be imported, and why the others cannot."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take three quarters of the memory
    found, missing = {}, {}
    for name in names:
        package = name.partition(".")[0]
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001  what is installed and does not start is missing, too
            missing[package] = f"{type(error).__name__}: {error}"[:200]
        else:
            found[package] = sys.modules[package]
    return found, missing


def host_array(value: Any) -> npt.NDArray[Any]:
    """Return a result of any library on the host; of several the first."""
    if isinstance(value, tuple):
        value = value[0]
    if isinstance(value, lr.DeviceArray):
        return value.numpy()
    for name in ("cpu", "get"):  # PyTorch's, CuPy's
        if hasattr(value, name):
            value = getattr(value, name)()
    return np.asarray(value)


def _row_sums(a: Arrays) -> npt.NDArray[Any]:
    return np.asarray(a.host.sum(1))


def _sum(a: Arrays) -> Any:
    return a.host.sum()


def _logsumexp(a: Arrays) -> npt.NDArray[Any]:
    wide = a.host.astype(np.float64)
    return np.asarray(np.log(np.exp(wide).sum(1)))


def _from_torch(a: Arrays) -> Any:
    return a.torch.from_dlpack(lr.sum(a.x, axis=1))


def _masked(a: Arrays) -> Any:
    return a.torch.where(a.mask, a.x, 0.0).sum()


def _of_shards(a: Arrays) -> Any:
    return a.torch.sum(a.halves[0]) + a.torch.sum(a.halves[1])


def _to_jax(a: Arrays) -> Any:
    return importlib.import_module("jax.dlpack").from_dlpack(lr.sum(a.x, axis=1))


FORMS: tuple[Form, ...] = (
    Form("sum(x)", lambda a: lr.sum(a.x), _sum, {"torch": lambda a: a.torch.sum(a.x)}),
    Form("sum(x, axis=1)", lambda a: lr.sum(a.x, axis=1), _row_sums, {"torch": lambda a: a.torch.sum(a.x, 1)}),
    Form("sum(x, axis=0)", lambda a: lr.sum(a.x, axis=0), lambda a: a.host.sum(0),
         {"torch": lambda a: a.torch.sum(a.x, 0)}),
    Form("sum(x, axis=1, out=)", lambda a: lr.sum(a.x, axis=1, out=a.out), _row_sums,
         {"torch": lambda a: a.torch.sum(a.x, 1, out=a.out)}),
    Form("sum(x, axis=(0, 2))", lambda a: lr.sum(a.cube, axis=(0, 2)), lambda a: a.cube_host.sum((0, 2)),
         {"torch": lambda a: a.torch.sum(a.cube, (0, 2))}),
    Form("sum(x, axis=1, keepdims=True)", lambda a: lr.sum(a.x, axis=1, keepdims=True),
         lambda a: a.host.sum(1, keepdims=True), {"torch": lambda a: a.torch.sum(a.x, 1, keepdim=True)}),
    Form("sum(x, dtype=float64)", lambda a: lr.sum(a.x, dtype="float64"), _sum,
         {"torch": lambda a: a.torch.sum(a.x, dtype=a.torch.float64)}),
    Form("sum of every second column", lambda a: lr.sum(a.stepped, axis=1), lambda a: a.host[:, ::2].sum(1),
         {"torch": lambda a: a.torch.sum(a.stepped, 1)}, needs="torch"),
    Form("sum of a transposed array", lambda a: lr.sum(a.transposed, axis=1), lambda a: a.host.sum(0),
         {"torch": lambda a: a.torch.sum(a.transposed, 1)}, needs="torch"),
    Form("sum of float16", lambda a: lr.sum(a.half, axis=1), _row_sums,
         {"torch": lambda a: a.torch.sum(a.half, 1)}),
    Form("sum of a DeviceArray", lambda a: lr.sum(a.device, axis=1), _row_sums,
         {"torch": lambda a: a.torch.sum(a.x, 1)}),
    Form("sum of a CuPy array", lambda a: lr.sum(a.of_cupy, axis=1), _row_sums,
         {"CuPy": lambda a: a.cupy.sum(a.of_cupy, axis=1)}, needs="cupy"),
    Form("sum of a JAX array", lambda a: lr.sum(a.of_jax, axis=1), _row_sums,
         {"JAX": lambda a: a.libraries["jax"].numpy.sum(a.of_jax, axis=1)}, needs="jax"),
    Form("sum of a Numba array", lambda a: lr.sum(a.of_numba, axis=1), _row_sums, needs="numba"),
    Form("max(axis=1)", lambda a: lr.max(a.x, axis=1), lambda a: a.host.max(1),
         {"torch": lambda a: a.torch.amax(a.x, 1)}),
    Form("argmax(axis=1)", lambda a: lr.argmax(a.x, axis=1), lambda a: a.host.argmax(1),
         {"torch": lambda a: a.torch.argmax(a.x, 1)}),
    Form("minmax", lambda a: lr.minmax(a.x), lambda a: a.host.min(), {"torch": lambda a: a.torch.aminmax(a.x)}),
    Form("mean_var(axis=1)", lambda a: lr.mean_var(a.x, axis=1), lambda a: a.host.mean(1),
         {"torch": lambda a: a.torch.var_mean(a.x, 1, correction=0)[::-1]}),
    Form("logsumexp(axis=1)", lambda a: lr.logsumexp(a.x, axis=1), _logsumexp,
         {"torch": lambda a: a.torch.logsumexp(a.x, 1)}),
    Form("norm", lambda a: lr.norm(a.x), lambda a: np.linalg.norm(a.host.astype(np.float64)),
         {"torch": lambda a: a.torch.linalg.vector_norm(a.x)}),
    Form("dot", lambda a: lr.dot(a.flat, a.flat), lambda a: np.square(a.host, dtype=np.float64).sum(),
         {"torch": lambda a: a.torch.dot(a.flat, a.flat)}),
    Form("sum(initial=)", lambda a: lr.sum(a.x, initial=1.0), lambda a: a.host.sum() + 1,
         {"torch": lambda a: a.torch.sum(a.x) + 1.0}),
    Form("sum(where=)", lambda a: lr.sum(a.x, where=a.mask), lambda a: a.host[a.mask_host].sum(), {"torch": _masked}),
    Form("sum(where=, initial=)", lambda a: lr.sum(a.x, where=a.mask, initial=1.0),
         lambda a: a.host[a.mask_host].sum() + 1, {"torch": lambda a: _masked(a) + 1.0}),
    Form("sum(map=)", lambda a: lr.sum(a.x, map="x * x"), lambda a: np.square(a.host, dtype=np.float64).sum(),
         {"torch": lambda a: (a.x * a.x).sum()}),
    Form("a user's operator", lambda a: lr.reduce(a.x, a.absmax), lambda a: np.abs(a.host).max(),
         {"torch": lambda a: a.x.abs().amax()}),
    Form("segmented_reduce", lambda a: lr.segmented_reduce(a.flat, a.offsets), _row_sums,
         {"torch": lambda a: a.torch.segment_reduce(a.flat, "sum", offsets=a.offsets, unsafe=True)}),
    Form("partials", lambda a: lr.partials(a.flat, chunk=CHUNK), lambda a: a.parts.numpy()),
    Form("combine_partials",
         lambda a: lr.combine_partials(a.parts, length=a.host.size, chunk=CHUNK, dtype="float32"), _sum),
    Form("reduce_shards", lambda a: lr.reduce_shards(a.halves), _sum, {"torch": _of_shards}),
    Form("float(sum(x))", lambda a: float(lr.sum(a.x)), _sum, {"torch": lambda a: a.torch.sum(a.x).item()}),
    Form("sum(x, axis=1).numpy()", lambda a: lr.sum(a.x, axis=1).numpy(), _row_sums,
         {"torch": lambda a: a.torch.sum(a.x, 1).cpu().numpy()}),
    Form("a NumPy array in", lambda a: lr.sum(a.host), _sum,
         {"torch": lambda a: a.torch.from_numpy(a.host).cuda().sum()}),
    Form("stream= another stream", lambda a: lr.sum(a.x, axis=1, stream=a.ours_of_other), _row_sums,
         {"torch": lambda a: a.in_torchs_stream(lambda: a.torch.sum(a.x, 1))}),
    Form("handed to torch", _from_torch, _row_sums, {"torch": lambda a: a.torch.sum(a.x, 1)}, needs="torch"),
    Form("handed to CuPy", lambda a: a.cupy.asarray(lr.sum(a.of_cupy, axis=1)), _row_sums,
         {"CuPy": lambda a: a.cupy.sum(a.of_cupy, axis=1)}, needs="cupy"),
    Form("handed to JAX", _to_jax, _row_sums,
         {"JAX": lambda a: a.libraries["jax"].numpy.sum(a.of_jax, axis=1)}, needs="jax"),
    Form("in a capture of torch", lambda a: a.captured(lambda: lr.sum(a.x, axis=1)), _row_sums,
         {"torch": lambda a: a.captured(lambda: a.torch.sum(a.x, 1))}, needs="torch", calls=CAPTURED),
    Form("8 threads at once", lambda a: a.in_threads(lambda: lr.sum(a.x, axis=1)), _row_sums,
         {"torch": lambda a: a.in_threads(lambda: a.torch.sum(a.x, 1))}, calls=THREADS * CALLS_OF_A_THREAD),
)  # fmt: skip
"""All forms, in the order of the page's table."""

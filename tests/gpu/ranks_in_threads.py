"""Ranks that are threads of one process, for tests of `lr.distributed`: engines of the host and of the device."""

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np

import lowlevel_reduce as lr
from lowlevel_reduce.driver import binding

SECONDS = 60


class Threads:
    """Ranks that are threads: the engine of one of them, with `rank`, `size` and `all_gather`."""

    def __init__(self, rank: int, shared: dict[str, Any]) -> None:
        self.rank, self.size = rank, len(shared["messages"])
        self._shared = shared

    def all_gather(self, message: bytes) -> list[bytes]:
        self._shared["messages"][self.rank] = message
        self._shared["barrier"].wait(SECONDS)
        found: list[bytes] = list(self._shared["messages"])
        self._shared["barrier"].wait(SECONDS)
        return found


class Communicator:
    """What of a communicator of nccl4py is used, between threads: it gathers device memory in the order of a stream."""

    def __init__(self, rank: int, shared: dict[str, Any], context: lr.Context) -> None:
        self.rank, self.nranks, self._shared, self._context = rank, len(shared["messages"]), shared, context
        self.device = SimpleNamespace(device_id=0)
        self.gathered: list[int] = []

    def allgather(self, sendbuf: Any, recvbuf: Any, *, stream: int) -> None:
        pointers = [each.__cuda_array_interface__["data"][0] for each in (sendbuf, recvbuf)]
        (size,) = sendbuf.__cuda_array_interface__["shape"]
        self.gathered.append(size)
        home = lr.Stream.from_handle(stream, context=self._context)
        home.synchronize()
        self._shared["messages"][self.rank] = pointers[0]
        self._shared["barrier"].wait(SECONDS)
        for rank, pointer in enumerate(self._shared["messages"]):
            there = lr.Buffer.from_pointer(pointer, size, context=self._context)
            mine = lr.Buffer.from_pointer(pointers[1] + rank * size, size, context=self._context)
            mine.copy_from(there, stream=home)
        home.synchronize()
        self._shared["barrier"].wait(SECONDS)


Communicator.__module__ = "nccl.core.communicator"


def engines(ranks: int) -> list[Threads]:
    shared: dict[str, Any] = {"messages": [b""] * ranks, "barrier": threading.Barrier(ranks)}
    return [Threads(rank, shared) for rank in range(ranks)]


def communicators(ranks: int, context: lr.Context) -> list[Communicator]:
    shared: dict[str, Any] = {"messages": [0] * ranks, "barrier": threading.Barrier(ranks)}
    return [Communicator(rank, shared, context) for rank in range(ranks)]


def on_each(members: Sequence[Any], work: Callable[[Any, lr.Stream], Any], context: lr.Context) -> list[Any]:
    """Return what `work(engine, stream)` returns on each rank, or the error that it raises there."""
    driver = binding.selected()

    def rank(engine: Any) -> Any:
        assert binding.selected() is driver
        with context.pushed(), lr.Stream.create(context) as stream:
            try:
                return work(engine, stream)
            except Exception as error:  # noqa: BLE001 - whatever it is, a test looks at it
                return error

    with ThreadPoolExecutor(len(members)) as pool:
        return list(pool.map(rank, members))


def parts_of(x: Any, axis: int | None, ranks: int, chunk: int | None = None) -> list[Any]:
    lengths = lr.shard_lengths(x.size if axis is None else x.shape[axis], x.dtype, ranks, chunk=chunk)
    borders = [0, *itertools.accumulate(lengths)]
    flat = x.reshape(-1) if axis is None else x
    at = 0 if axis is None else axis % x.ndim
    cuts = [slice(*pair) for pair in itertools.pairwise(borders)]
    return [np.ascontiguousarray(flat[(slice(None),) * at + (cut,)]) for cut in cuts]


def bits(results: Any) -> list[bytes]:
    return [each.numpy().tobytes() for each in (results if isinstance(results, tuple) else (results,))]


def values(shape: Any, dtype: Any) -> Any:
    rng = np.random.default_rng(3)
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(dtype)

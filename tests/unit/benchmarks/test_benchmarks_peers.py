"""What the competitors share, with stand-ins: a missing module, one without a GPU, results and memory."""

import contextlib
import sys
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from benchmarks.measure import harness as harness_module
from benchmarks.measure import problems
from benchmarks.measure.harness import Harness, Inputs, Maker
from benchmarks.measure.problems import Case
from benchmarks.peers import compute, cupy_peer
from benchmarks.peers.common import Missing, closer, gpu_module, reader
from benchmarks.peers.cupy_peer import CupyPeer
from benchmarks.peers.torch_peer import TorchPeer, host_array
from lowlevel_reduce.dtypes import numpy_dtype


def test_a_module_that_is_missing_or_sees_no_gpu_says_so(monkeypatch):
    with pytest.raises(Missing, match="no_such_package is not installed: No module named 'no_such_package'"):
        gpu_module("no_such_package.cuda", lambda module: True)
    there = ModuleType("a_package_for_this_test")
    monkeypatch.setitem(sys.modules, "a_package_for_this_test", there)
    assert gpu_module("a_package_for_this_test", lambda module: module is there) is there
    with pytest.raises(Missing, match="a_package_for_this_test is there, but sees no GPU"):
        gpu_module("a_package_for_this_test", lambda module: False)


class Memory:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def copy_to(self, host, *, size_bytes):
        self.log.append(f"copy {size_bytes}")
        host[:] = np.arange(host.size)

    def close(self):
        self.log.append(f"close {self.name}")


def test_results_are_read_and_memory_is_freed_after_the_stream():
    log = []
    stream = SimpleNamespace(synchronize=lambda: log.append("wait"))
    out, workspace = Memory(log, "out"), Memory(log, "workspace")
    (found,) = reader(out, 3, np.dtype(np.int64), stream)()
    assert (found.tolist(), found.dtype) == ([0, 1, 2], np.int64)
    closer(stream, workspace, out)()
    assert log == ["wait", "copy 24", "wait", "close workspace", "close out"]


class Tensor:
    """As much of PyTorch's as is asked for its values: one of a type that NumPy lacks gives them as integers alone."""

    def __init__(self, array, name):
        self.array, self.dtype = array, f"torch.{name}"

    def view(self, dtype):
        return Tensor(self.array.view(dtype), np.dtype(dtype).name)

    def cpu(self):
        return self

    def numpy(self):
        assert self.array.dtype.isbuiltin == 1
        return self.array


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "float64", "int64", "bool"])
def test_a_tensor_comes_to_the_host_in_its_own_type(name):
    values = np.asarray([[0, 1], [1, 0]]).astype(numpy_dtype(name))
    torch = SimpleNamespace(int16=np.int16, uint8=np.uint8)
    found = host_array(torch, Tensor(values, name))
    assert found.dtype == values.dtype
    assert found.tolist() == values.reshape(-1).tolist()


class Compute:
    """``cuda.compute`` by the names of its arguments: it wants 100 bytes, and tells what it was called with."""

    class OpKind:
        PLUS = "plus"

    def __init__(self):
        self.calls = []

    def make_reduce_into(self, *, d_in, d_out, op, h_init):
        def call(*, temp_storage, d_in, d_out, num_items, op, h_init, stream):
            self.calls.append((temp_storage, d_in, d_out, num_items, None))
            return 100

        return call

    def make_segmented_reduce(self, *, d_in, d_out, start_offsets_in, end_offsets_in, op, h_init):
        def call(*, temp_storage, d_in, d_out, num_segments, start_offsets_in, end_offsets_in, op, h_init, stream):
            self.calls.append((temp_storage, d_in, d_out, num_segments, (start_offsets_in, end_offsets_in)))
            return 100

        return call


class Allocated:
    """Memory at made-up addresses, and what was copied there."""

    made: ClassVar = []

    def __init__(self, size_bytes):
        self.pointer, self.size_bytes, self.content, self.closed = 1000 * (len(self.made) + 1), size_bytes, None, False
        self.made.append(self)

    @classmethod
    def allocate(cls, size_bytes, context):
        return cls(size_bytes)

    def copy_from(self, array):
        self.content = array.tolist()

    def close(self):
        self.closed = True


def place(array):
    return array.__cuda_array_interface__["data"][0], array.__cuda_array_interface__["shape"]


CSR = SimpleNamespace(pointer=7000)


@pytest.mark.parametrize(
    ("case", "offsets", "name", "count", "size_bytes"),
    [
        (Case("sum", (4096,)), None, "cuda.compute", 4096, 64),
        (Case("sum", (300, 1024), 1), None, "cuda.compute segmented", 300, 1200),
        (Case("sum", (4096,), offsets=np.asarray([0, 9, 4096])), CSR, "cuda.compute segmented", 2, 64),
    ],
)
def test_cuda_compute_is_called_by_its_own_names(monkeypatch, case, offsets, name, count, size_bytes):
    monkeypatch.setattr(compute, "Buffer", Allocated)
    monkeypatch.setattr(Allocated, "made", [])
    library, stream = Compute(), SimpleNamespace(context=None, synchronize=lambda: None)
    (make,) = compute.ComputePeer(library).ready(case, Inputs(case, [64, 128], offsets), stream)
    assert make.name == name
    ready = make()
    ready.enqueue(3)
    (asked, *_), (storage, source, target, many, borders) = library.calls
    assert asked is None
    assert (storage.nbytes, place(source), many) == (100, (128, (case.size,)), count)
    memory = {buffer.pointer: buffer for buffer in Allocated.made}
    pointer, shape = place(target)
    assert (memory[pointer].size_bytes, shape) == (size_bytes, (case.rows,))
    if borders is not None:
        start, end = map(place, borders)
        assert (end[0] - start[0], start[1], end[1]) == (8, (count,), (count,))
        if offsets is None:
            assert memory[start[0]].content == list(range(0, 301 * 1024, 1024))
        else:
            assert start[0] == CSR.pointer
    ready.close()
    assert all(buffer.closed for buffer in Allocated.made)


@pytest.mark.parametrize(
    "case",
    [Case("sum", (9, 9), 1), Case("sum", (2048, 2048), 0), Case("max", (9,)), Case("sum", (9,), dtype="bfloat16")],
)
def test_cuda_compute_leaves_out_what_it_has_no_good_call_for(case):
    assert compute.ComputePeer(Compute()).ready(case, Inputs(case, [0]), None) == []


class Result(np.ndarray):
    """An array with as much of a tensor's names as is asked for."""

    fill_ = np.ndarray.fill


class Recorder:
    """A library that makes new results at each call, and its graph, whose replays write into those of the capture."""

    uint8 = np.uint8

    def __init__(self, right, replayed):
        self.right, self.replayed, self.made = right, replayed, []
        self.cuda = SimpleNamespace(stream=lambda external: contextlib.nullcontext(), CUDAGraph=lambda: self)
        self.asarray = self.asnumpy = self.dot = lambda array: array

    def sum(self, x, axis=None):
        self.made.append(np.asarray([self.right], np.float32).view(Result))
        return self.made[-1]

    def capture_begin(self, *, capture_error_mode):
        pass

    def capture_end(self):
        self.captured = self.made[-1]

    def replay(self):
        if self.replayed is not None:
            self.captured[:] = self.replayed

    launch = replay

    def reset(self):
        pass

    close = reset


class Waiting(contextlib.nullcontext):
    def synchronize(self):
        pass


def makers_of_torch(library, case, stream):
    peer = TorchPeer.__new__(TorchPeer)
    peer.torch, peer.external = library, stream
    return [Maker("torch", lambda: peer.made("torch", library.sum, [None]))]


def makers_of_cupy(library, case, stream):
    peer = CupyPeer.__new__(CupyPeer)
    peer.cupy, peer.external = library, stream
    return peer.ready(case, Inputs(case, [0]), stream)


@pytest.mark.parametrize("makers", [makers_of_torch, makers_of_cupy])
@pytest.mark.parametrize("off", [0, 1000, None])
def test_what_a_graph_of_new_results_left_is_what_is_checked(monkeypatch, makers, off):
    """And not what the launch without a graph left that each turn begins with, nor what was there before."""
    case, stream = Case("sum", (1000,)), Waiting()
    right = problems.pattern("float32").at(np.arange(1000)).sum()
    library = Recorder(right, None if off is None else right + off)

    def captured(enqueue, stream, launches):
        enqueue(0)
        library.capture_end()
        return library

    def timed(before, measured, stream):
        before()
        measured()
        return 5.0

    for module in (harness_module, cupy_peer):
        monkeypatch.setattr(module, "captured", captured, raising=False)
    monkeypatch.setattr("benchmarks.peers.torch_peer.host_array", lambda torch, plane: plane)
    monkeypatch.setattr(harness_module, "timed_us", timed)
    monkeypatch.setattr(harness_module, "events_us", lambda enqueue, stream, launches: 2000.0)
    (entry,) = Harness(stream, rounds=2).measure(case, makers(library, case, stream)).values()
    assert "us" in entry if off == 0 else "not timed" in entry["error"]

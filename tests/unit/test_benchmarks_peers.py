"""What the competitors share, with stand-ins: a missing module, one without a GPU, results and memory."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from benchmarks.peers.common import Missing, closer, gpu_module, reader
from benchmarks.peers.torch_peer import host_array
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
        assert self.array.dtype.kind in "biufc"
        return self.array


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float16", "float64", "int64", "bool"])
def test_a_tensor_comes_to_the_host_in_its_own_type(name):
    values = np.asarray([[0, 1], [1, 0]]).astype(numpy_dtype(name))
    torch = SimpleNamespace(int16=np.int16, uint8=np.uint8)
    found = host_array(torch, Tensor(values, name))
    assert found.dtype == values.dtype
    assert found.tolist() == values.reshape(-1).tolist()

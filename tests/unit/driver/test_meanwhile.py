"""What is done while the driver makes a context: once, in a thread, for NVIDIA's driver alone; and what it leaves."""

import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from fake_driver import ERROR, FakeDriver, in_use

from lowlevel_reduce.driver import Context, binding, meanwhile
from lowlevel_reduce.errors import CudaError


@pytest.fixture
def seen(monkeypatch):
    """The threads that have done what is registered, of which there is one thing."""
    threads = []

    def work():
        threads.append(threading.current_thread())
        raise ValueError("which is ignored")

    monkeypatch.setattr(meanwhile, "_work", [])
    meanwhile.register(work)
    return threads


@contextmanager
def like_nvidias(driver):
    """Have calls go to a driver that bears the name of NVIDIA's, which is registered and stays so."""
    with in_use(driver, "like NVIDIA's"):
        binding.selected().name = "cuda"
        yield


def test_it_is_done_once_in_a_thread(seen):
    with like_nvidias(FakeDriver()):
        for _ in range(2):
            Context.primary().close()
            (thread,) = seen
            assert thread is not threading.current_thread()
            assert not thread.is_alive()
    assert meanwhile._work == []


def test_it_ends_with_a_context_that_cannot_be_made(seen):
    fake = FakeDriver()
    fake.fails["cuDevicePrimaryCtxRetain"] = ERROR.CUDA_ERROR_OUT_OF_MEMORY
    with like_nvidias(fake), pytest.raises(CudaError):
        Context.primary()
    assert [thread.is_alive() for thread in seen] == [False]


def test_other_drivers_take_no_time_that_is_worth_a_thread(seen):
    with in_use(FakeDriver(), "another"):
        Context.primary().close()
    assert (seen, len(meanwhile._work)) == ([], 1)


def test_a_context_is_made_where_no_thread_can_be_started(seen, monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with like_nvidias(FakeDriver()), Context.primary() as context:
        assert context.handle
    assert seen == []


SCRIPT = """
import sys
import numpy
from fake_driver import OK, FakeDriver, in_use
import lowlevel_reduce as lr
from lowlevel_reduce.driver import meanwhile
class Driver(FakeDriver):
    def cuLibraryGetKernel(self, library, name):
        return OK, self._make("kernel")
    def cuMemcpyDtoHAsync(self, *arguments):
        return (OK,)
with in_use(Driver(), "cuda"), lr.Context.primary() as context, context.pushed():
    before = set(sys.modules)
    from lowlevel_reduce.compiler import Cubin, Program, Resources
    from lowlevel_reduce.plans import loading
    def compiled(source, architecture, **options):
        kernels = {source.entry: Resources(8, 0, 0, 0, 0, None, 0)}
        return Cubin(b"\x7fELF", (source.entry,), kernels, architecture, (13, 0), "", Program("k", ""), "cubin", True)
    loading.compile_kernel = compiled
    lr.sum(numpy.ones(1_000_000, numpy.float32))
    print(*sorted(name for name in set(sys.modules) - before if name.startswith("lowlevel_reduce")))
"""


def test_a_first_call_imports_nothing_after_it():
    folder = Path(__file__).parents[1]
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r})" + SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout.split(), done.stderr) == ([], "")

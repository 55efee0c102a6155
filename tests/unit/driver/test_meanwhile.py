"""What is done while the driver makes a context: once, in a thread, for NVIDIA's driver alone; and what it leaves."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from fake_driver import FakeDriver, in_use

from lowlevel_reduce.driver import Context, meanwhile


@pytest.fixture
def seen(monkeypatch):
    """The threads that have done what is registered, of which there is one thing."""
    threads, ended = [], threading.Event()

    def work():
        threads.append(threading.current_thread())
        ended.set()
        raise ValueError("which is ignored")

    monkeypatch.setattr(meanwhile, "_work", [])
    meanwhile.register(work)
    return threads, ended


def test_it_is_done_once_in_a_thread(seen):
    threads, ended = seen
    with in_use(FakeDriver(), "cuda"):
        for _ in range(2):
            Context.primary().close()
        assert ended.wait(20)
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()
    assert meanwhile._work == []


def test_other_drivers_take_no_time_that_is_worth_a_thread(seen):
    with in_use(FakeDriver(), "another"):
        Context.primary().close()
    assert (seen[0], len(meanwhile._work)) == ([], 1)


def test_a_context_is_made_where_no_thread_can_be_started(seen, monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with in_use(FakeDriver(), "cuda"), Context.primary() as context:
        assert context.handle
    assert seen[0] == []


SCRIPT = """
import sys, threading
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
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join()
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

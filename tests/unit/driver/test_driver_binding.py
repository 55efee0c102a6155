"""The choice of a driver, its initialisation, and what its absence and its gaps are called."""

# ruff: noqa: PT012 - the block under test is what is tested

import copy
import itertools
import os
import pickle
import signal
import subprocess
import sys

import pytest
from cuda.bindings import driver as cu
from fake_driver import FakeDriver, in_use
from in_threads import in_threads

from lowlevel_reduce.driver import binding
from lowlevel_reduce.errors import CudaError, NoDriverError, UnsupportedError
from tests.fuzz.tracing import trace_bytecodes


@pytest.fixture
def fake():
    with in_use(FakeDriver()) as driver:
        yield driver


def in_a_new_process(code, **variables):
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables}, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


def test_importing_makes_no_driver_call():
    code = (
        "import sys, lowlevel_reduce.driver as d; "
        "print(d.binding._selected, 'cuda.bindings.driver' in sys.modules, 'cuda.core' in sys.modules)"
    )
    assert in_a_new_process(code) == "None False False"


def test_initialises_once_for_all_threads(fake):
    in_threads(*[lambda: binding.call("cuDeviceGetCount")] * 16)
    assert fake.count("cuInit") == 1
    assert fake.count("cuDeviceGetCount") == 16
    assert fake.calls[0][0] == "cuInit"


def test_a_failure_carries_call_code_name_and_description(fake):
    fake.fails["cuMemAlloc"] = cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(CudaError, match="cuMemAlloc failed with CUDA_ERROR_OUT_OF_MEMORY") as caught:
        binding.call("cuMemAlloc", 1)
    assert (caught.value.code, caught.value.description) == (2, "what CUDA_ERROR_OUT_OF_MEMORY means")


def test_an_error_of_another_process_says_the_same():
    error = CudaError("cuMemAlloc", 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory")
    for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(copied) is CudaError
        assert str(copied) == str(error)
        assert vars(copied) == vars(error)


def test_raise_for_returns_on_success(fake):
    binding.raise_for("cuX", cu.CUresult.CUDA_SUCCESS)
    with pytest.raises(CudaError, match="cuX failed"):
        binding.raise_for("cuX", cu.CUresult.CUDA_ERROR_INVALID_VALUE)


def test_version(fake):
    assert binding.version() == (13, 0)


def test_a_function_that_the_driver_lacks(fake):
    fake.missing.add("cuCtxGetId")
    with pytest.raises(UnsupportedError, match=r"CUDA 13\.0.* has no cuCtxGetId"):
        binding.call("cuCtxGetId", 1)


def test_a_function_that_the_bindings_lack(fake):
    with pytest.raises(UnsupportedError, match="cuNotThere is not offered by the 'fake' driver"):
        binding.call("cuNotThere")


def test_other_runtime_errors_pass(fake):
    fake.cuBroken = lambda: None  # never reached
    type(fake).cuBroken = lambda self: (_ for _ in ()).throw(RuntimeError("List is too small"))
    try:
        del fake.cuBroken
        with pytest.raises(RuntimeError, match="too small"):
            binding.call("cuBroken")
    finally:
        del type(fake).cuBroken


@pytest.mark.parametrize("name", ["NO_DEVICE", "STUB_LIBRARY", "SYSTEM_NOT_READY", "SYSTEM_DRIVER_MISMATCH"])
def test_unusable_drivers_are_no_driver(fake, name):
    fake.fails["cuInit"] = getattr(cu.CUresult, f"CUDA_ERROR_{name}")
    with pytest.raises(NoDriverError, match=f"CUDA_ERROR_{name}"):
        binding.call("cuDeviceGetCount")
    assert not binding.available()
    fake.fails.clear()
    assert binding.available(), "a failed initialisation is tried again"


def test_what_others_initialised_before_a_fork_is_told_of(fake):
    """So cuInit answers where the parent's driver was initialised by somebody else, whom nobody here has noticed."""
    fake.fails["cuInit"] = cu.CUresult.CUDA_ERROR_NOT_INITIALIZED
    with pytest.raises(NoDriverError, match='forked after .* "spawn"'):
        binding.call("cuDeviceGetCount")


def test_a_driver_that_was_used_before_a_fork_is_refused(fake):
    implementation = binding.selected()
    implementation.note_fork()
    assert binding.call("cuDeviceGetCount") == 2, "it was not used before"
    implementation.kept["kernels"] = object()
    implementation.note_fork()
    assert implementation.kept == {}
    with pytest.raises(NoDriverError, match="was forked"):
        binding.call("cuDeviceGetCount")
    implementation.note_fork()  # a child's child
    with pytest.raises(NoDriverError, match="was forked"):
        binding.call("cuDeviceGetCount")
    assert fake.count("cuInit") == 1


def test_a_signals_handler_may_need_the_driver_while_it_is_initialised(fake, monkeypatch):
    """It runs in the thread that has the lock: one that it had to wait for would never be free."""
    answers = []

    def handler(number, frame):
        answers.append(binding.call("cuDeviceGetCount"))

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        initialise, due = fake.cuInit, [signal.SIGUSR1]

        def interrupted(flags):
            if due:
                signal.raise_signal(due.pop())
            return initialise(flags)

        monkeypatch.setattr(fake, "cuInit", interrupted, raising=False)
        answers.append(binding.call("cuDeviceGetCount"))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(answers) == 2


def test_another_error_of_cuinit_stays_a_cuda_error(fake):
    fake.fails["cuInit"] = cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(CudaError, match="cuInit"):
        binding.call("cuDeviceGetCount")


def test_use_restores_also_after_an_error():
    binding.register("one", FakeDriver)
    binding.register("two", FakeDriver)
    with binding.use("one"):
        with pytest.raises(KeyError), binding.use("two"):
            assert binding.selected().name == "two"
            raise KeyError
        assert binding.selected().name == "one"


def test_a_replaced_driver_keeps_nothing(fake):
    replaced = binding.selected()
    replaced.kept["kernels"] = object()
    binding.register("fake", FakeDriver)
    assert replaced.kept == {}


def test_an_unknown_name_lists_the_registered():
    with pytest.raises(ValueError, match=r"'abacus'.*cuda"), binding.use("abacus"):
        pass


def test_the_variable_selects():
    code = "from lowlevel_reduce.driver import binding\ntry: binding.selected()\nexcept ValueError as e: print(e)"
    assert "'abacus'" in in_a_new_process(code, LOWLEVEL_REDUCE_DRIVER="abacus")


@pytest.fixture
def no_gpu():
    with binding.use("cuda"):
        if binding.available():
            pytest.skip("this machine has an NVIDIA GPU")
        yield


def test_without_a_driver_or_a_gpu_the_message_says_what_to_do(no_gpu):
    with pytest.raises(NoDriverError, match="install the NVIDIA|make one visible"):
        binding.call("cuDeviceGetCount")
    assert "NVIDIA" in (binding.why_unavailable() or "")


def test_finalizers_at_exit_say_nothing():
    code = """
import sys; sys.path.insert(0, 'tests/unit')
from fake_driver import FakeDriver, in_use, cu
from lowlevel_reduce.driver import Buffer, Context, Stream, binding
fake = FakeDriver(); binding.register('fake', lambda: fake)
binding._selected = binding._implementation('fake')
c = Context.create(); s = Stream.create(c); b = Buffer.allocate(8, c)
for name in ('cuStreamDestroy', 'cuMemFree', 'cuCtxDestroy', 'cuThreadExchangeStreamCaptureMode'):
    fake.fails[name] = cu.CUresult.CUDA_ERROR_DEINITIALIZED
print('end')
"""
    assert in_a_new_process(code) == "end"


def test_a_use_that_ends_in_another_thread_is_seen_before_or_after(monkeypatch):
    """A trace function stands for the other thread: it comes between any two steps."""

    def trace(frame, event, argument):
        if frame.f_code is not binding.selected.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left[0] -= 1
            if left[0] == 0:
                binding._selected = None
        return trace

    binding.register("of another thread", FakeDriver)
    binding.register("else", FakeDriver)
    monkeypatch.setenv(binding.VARIABLE, "else")
    for step in itertools.count(1):
        left, before = [step], sys.gettrace()
        with binding.use("of another thread"):
            trace_bytecodes(trace)
            found = binding.selected()
            sys.settrace(before)
        assert found.name in ("of another thread", "else")
        if left[0] > 0:
            break
    assert step > 5

"""Processes: the interpreter ends in any order without a word, a forked child is refused, a spawned one works."""

import os
import subprocess
import sys
import sysconfig

import pytest

from lowlevel_reduce.driver import binding

COMMON = """
import gc, os, sys
import numpy as np
import lowlevel_reduce as lr
import lowlevel_reduce.simulator  # it can be chosen by its name then

X = np.arange(5000, dtype=np.float32)
SUM = float(X.sum())

def everything(context):
    stream = lr.Stream.create(context)
    plan = lr.plan("sum", shape=X.shape, dtype="float32", context=context)
    launch = plan.bind(stream)
    array = lr.DeviceArray.from_numpy(X, stream)
    result = lr.sum(array, stream=stream)
    result = lr.sum(array, stream=stream)
    launch(array.pointer, result.pointer)
    with lr.Graph.capture(stream) as graph:
        launch(array.pointer, result.pointer)
    executable = graph.instantiate()
    executable.launch(stream)
    assert float(result) == SUM
    return [context, stream, plan, launch, array, result, graph, executable, lr.Event.create(context)]
"""

ORDERS = {
    "left open": "kept = everything(lr.Context.primary())",
    "left open in a created context": "kept = everything(lr.Context.create())",
    "left current": "c = lr.Context.create(); c.pushed().__enter__(); kept = everything(c); lr.sum(X)",
    "in a cycle": "kept = everything(lr.Context.primary()); kept.append(kept); del kept",
    "reversed": "kept = everything(lr.Context.create())[::-1]; kept.pop(); gc.collect()",
    "context closed first": "kept = everything(lr.Context.create()); kept[0].close()",
    "stream closed first": "kept = everything(lr.Context.primary()); kept[1].close()",
    "in modules that go early": "import builtins; sys.kept = builtins.kept = everything(lr.Context.primary())",
    "after an exit": "kept = everything(lr.Context.primary()); sys.exit(0)",
    "one-shot only": "r = lr.sum(X); assert float(r) == SUM",
    "used at exit": """
import atexit
def late():  # registered first, so it runs when all else is gone
    try:
        kept[3](kept[4].pointer, kept[5].pointer)
    except ValueError as error:
        assert "the interpreter is exiting" in str(error), error
    else:
        raise AssertionError("it launched")
atexit.register(late)
kept = everything(lr.Context.primary())
""",
    "a daemon thread that launches": """
import threading
kept = everything(lr.Context.primary())
begun = threading.Event()
def work():
    while True:
        try:
            kept[3](kept[4].pointer, kept[5].pointer)
        except ValueError:
            return
        begun.set()
threading.Thread(target=work, daemon=True).start()
assert begun.wait(60)
""",
    "a daemon thread that sums": """
import atexit, threading
def late():  # registered first, so it runs when all else is gone
    thread.join(60)
    assert not thread.is_alive()
atexit.register(late)
kept = everything(lr.Context.primary())
begun = threading.Event()
def work():
    while True:
        try:
            lr.sum(kept[4], stream=kept[1])
        except ValueError as error:
            assert "the interpreter is exiting" in str(error), error
            return
        begun.set()
thread = threading.Thread(target=work, daemon=True)
thread.start()
assert begun.wait(60)
""",
    "daemon threads that bind": """
import atexit, threading
def late():
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
atexit.register(late)
kept = everything(lr.Context.primary())
begun = threading.Barrier(4)
sys.setswitchinterval(1e-5)
def work():
    bound = []
    while True:
        try:
            bound.append(kept[2].bind(kept[1]))
        except lr.CudaError:  # this one had begun, which the exit does not wait for: the next is refused
            continue
        except ValueError as error:
            assert "the interpreter is exiting" in str(error), error
            return
        if len(bound) == 100:
            begun.wait(60)
threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
for thread in threads: thread.start()
begun.wait(60)
""",
    "handles used at exit": """
import atexit
def late():  # registered first, so it runs when all else is gone
    for use in (kept[1].synchronize, lambda: kept[2].bind(kept[1]), lambda: float(kept[5]), lambda: lr.sum(kept[4])):
        try:
            use()
        except ValueError as error:
            assert "the interpreter is exiting" in str(error), error
        else:
            raise AssertionError("it was used")
    kept[3].close()
    kept[1].close()
atexit.register(late)
kept = everything(lr.Context.primary())
def early():  # registered after the first handle was made, so it runs before any goes
    kept[3](kept[4].pointer, kept[5].pointer)
    assert float(kept[5]) == SUM
atexit.register(early)
""",
}

FORK = """
with lr.Context.primary() as context, context.pushed():
    kept = everything(context)
    child = os.fork()
    if not child:
        try:
            for use in (
                lambda: lr.sum(X),
                lambda: lr.sum(kept[4]),
                lambda: lr.sum(kept[4], stream=kept[1]),
                lambda: kept[3](kept[4].pointer, kept[5].pointer),
                lambda: kept[1].synchronize(),
                lambda: kept[2].bind(kept[1]),
                lambda: lr.Context.primary(),
            ):
                try:
                    use()
                except lr.NoDriverError as error:
                    assert "fork" in str(error), error
                else:
                    raise AssertionError("it did not raise")
            kept[5] = kept[4] = None
            kept[1].close()  # the child's handle, not the parent's stream
            del kept
            gc.collect()
            import atexit
            atexit._run_exitfuncs()  # with finalizers, but not the rest of the block
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    launch, array, result, stream = kept[3], kept[4], kept[5], kept[1]
    launch(array.pointer, result.pointer)
    assert float(result) == SUM
"""

BEFORE = """
child = os.fork()
if not child:
    assert float(lr.sum(X)) == SUM
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert float(lr.sum(X)) == SUM
"""

SPAWN = """
import multiprocessing

def work(scale):
    return float(lr.sum(X * np.float32(scale)))

if __name__ == "__main__":
    assert work(1) == SUM
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(work, [1, 2]) == [SUM, 2 * SUM]
"""

FREE_THREADED = """
import threading
assert not sys._is_gil_enabled(), "a module that was imported switched the GIL on"
with lr.Context.primary() as context:
    plan = lr.plan("sum", shape=X.shape, dtype="float32", context=context)
    ready, found = threading.Barrier(8), []

    def work():
        with lr.Stream.create(context) as stream:
            array = lr.DeviceArray.from_numpy(X, stream)
            result = lr.DeviceArray.empty((), "float32", stream)
            bound = plan.bind(stream)
            ready.wait()
            for _ in range(5):
                bound(array.pointer, result.pointer)
                found.append(float(result))
                found.append(float(lr.sum(array, stream=stream)))
            bound.close()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert found == [SUM] * 80, found
assert not sys._is_gil_enabled()
"""


@pytest.fixture
def run(machine, device, tmp_path, monkeypatch):
    """Run a script in a process of its own, on the same kind of machine; it must end well and say nothing."""
    del device

    def run(script):
        path = tmp_path / "script.py"
        path.write_text(COMMON + script, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        environment["PYTHONWARNINGS"] = "ignore::DeprecationWarning"  # Python 3.12's, of fork beside other threads
        environment[binding.VARIABLE] = "simulator" if machine == "simulated" else "cuda"
        done = subprocess.run(
            [sys.executable, path], check=False, capture_output=True, text=True, timeout=300, env=environment
        )
        assert (done.returncode, done.stderr, done.stdout) == (0, "", "")

    return run


@pytest.mark.parametrize("order", ORDERS)
def test_the_interpreter_ends_without_a_word(run, order, machine):
    if machine == "cuda" and "daemon" in order:
        pytest.skip("a daemon thread may be inside NVIDIA's driver while the process tears that down: it can crash")
    run(ORDERS[order])


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@needs_fork
def test_a_child_forked_after_the_first_use_is_told(run):
    run(FORK)


@needs_fork
def test_a_child_forked_before_the_first_use_works(run):
    run(BEFORE)


def test_a_spawned_process_works(run):
    run(SPAWN)


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has a GIL")
def test_a_free_threaded_python_stays_one(run):
    run(FREE_THREADED)

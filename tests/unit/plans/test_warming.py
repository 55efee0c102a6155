"""Warming up: the whole family by threads beside the caller, on request only, and an error for who waits."""

import os
import random
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from lowlevel_reduce.calls.forms import Form
from lowlevel_reduce.calls.places import Place
from lowlevel_reduce.driver import binding
from lowlevel_reduce.plans import loading, mapping, warming
from lowlevel_reduce.strategy.family import family_of
from lowlevel_reduce.strategy.selection import request_of

H200 = {"compute_capability": (9, 0)}


@pytest.fixture
def loaded(monkeypatch):
    """What threads load, and by which thread; nothing is compiled."""
    seen = {}

    def load_kernel(source, architecture):
        assert architecture == "sm_90"
        assert source not in seen
        seen[source] = threading.current_thread()
        return source

    monkeypatch.setattr(warming, "load_kernel", load_kernel)
    with simulator.use("H200"):
        yield seen


@pytest.mark.parametrize("options", [{}, {"accumulate": "float32"}, {"where": True}])
def test_threads_load_the_whole_family(options, loaded):
    warm = lr.warm_up("sum", "float32", **options)
    assert warm.wait()
    assert warm.is_done
    assert set(loaded) == set(family_of("sum", dtype="float32", **H200, **options))
    assert warm.kernels == len(loaded)
    assert threading.main_thread() not in loaded.values()


def test_the_caller_does_not_wait(monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr(warming, "load_kernel", lambda *_: go_on.wait())
    with simulator.use("H200"):
        warm = lr.warm_up("max", "float32")
        assert not warm.is_done
        assert not warm.wait(timeout=0.01)
        go_on.set()
        assert warm.wait()


def test_an_error_is_for_who_waits_and_ends_the_rest(monkeypatch):
    seen = []

    def load_kernel(source, architecture):
        seen.append(source)
        raise lr.CacheError(f"no room for {source.entry}")

    monkeypatch.setattr(warming, "load_kernel", load_kernel)
    with simulator.use("H200"):
        warm = lr.warm_up("sum", "float32")
        with pytest.raises(lr.CacheError, match="no room for sum_float32"):
            warm.wait()
        assert len(seen) <= len(warm._threads)


def test_another_driver_gets_none_of_it(monkeypatch):
    go_on, first = threading.Event(), threading.Event()

    def load_kernel(source, architecture):
        first.set()
        go_on.wait()

    monkeypatch.setattr(warming, "load_kernel", load_kernel)
    monkeypatch.setattr(warming, "_processors", lambda: 1)
    with simulator.use("H200"):
        warm = lr.warm_up("sum", "float32")
        assert first.wait(10)
    with simulator.use("A100"):
        go_on.set()
        assert not warm.wait()
    assert len(warm._left) == warm.kernels - 1


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [(("nothing",), {}, lr.UnsupportedError), (("sum", "float32"), {"shape": 3}, TypeError)],
)
def test_what_makes_no_sense_is_refused_at_once(arguments, options, error, loaded):
    with pytest.raises(error):
        lr.warm_up(*arguments, **options)
    assert not loaded


@pytest.mark.parametrize(
    ("value", "asked"), [*((off, False) for off in (None, "", "0", "off", "False", "no")), ("1", True)]
)
def test_the_variable_brings_the_rest_of_a_family_once(value, asked, loaded, monkeypatch):
    monkeypatch.delenv(warming.VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(warming.VARIABLE, value)

    def fake(source, architecture):
        return loading.LoadedKernel(SimpleNamespace(name=source.entry), None, False)

    monkeypatch.setattr(mapping, "load_kernel", fake)
    monkeypatch.setattr(mapping, "check_launch", lambda *_: None)
    with lr.Context.primary() as context:
        for shape in ((3000,), (40, 50)):
            mapping.map_request(request_of("sum", shape=shape, dtype="float32"), context)
        for warm in binding.selected().kept.get("warm-ups", {}).values():
            warm.wait()
    assert set(loaded) == (set(family_of("sum", dtype="float32", **H200)) if asked else set())


@pytest.mark.parametrize("op", ["sum", "logsumexp", "mean_var", "argmax"])
def test_calls_of_any_shape_take_members_of_the_family_alone(op, loaded, monkeypatch):
    """So that after a warm-up no new shape compiles anything."""
    taken = {}

    def fake(source, architecture):
        taken[source] = taken.get(source, 0) + 1
        return loading.LoadedKernel(SimpleNamespace(name=source.entry), None, False)

    monkeypatch.setattr(mapping, "load_kernel", fake)
    rng = random.Random(op)
    with lr.Context.primary() as context, context.pushed():
        place = Place(lr.Stream.legacy(context))
        forms = [
            Form(op, place, np.dtype("float32"), None, axis=a, keepdims=False, strategy=None) for a in (None, 0, 1)
        ]
        for _ in range(300):
            length, odd = int(2 ** rng.uniform(1, 24)), 4 * rng.randrange(2)
            assert not forms[0].prepared((length,), None, None, None).is_nothing
            for form, shape in ((forms[1], (length >> 8 or 2, 512)), (forms[2], (512, length >> 8 or 2))):
                form.prepared(shape, (shape[1] * 4 + odd, 4), None, None)
    assert set(taken) <= set(family_of(op, dtype="float32", **H200))
    assert len(taken) >= 8
    assert max(taken.values()) <= 3 * 8, "a form asks for a kernel once for each size of block and cluster"


def test_a_process_that_ends_begins_no_further_kernel():
    script = """
import time
from lowlevel_reduce.plans import warming
begun = []
def load_kernel(source, architecture):
    begun.append(source)
    print(len(begun), flush=True)
    time.sleep(0.2)
warming.load_kernel = load_kernel
warming._processors = lambda: 1
warming.warm_up("sum", "float32")
time.sleep(0.1)
"""
    environment = {**os.environ, "LOWLEVEL_REDUCE_DRIVER": "simulator"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["1"]

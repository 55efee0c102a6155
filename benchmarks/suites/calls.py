"""The cells of every form of a call, with its driver calls, and of calls whose shape is new each time."""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.measure import new_shapes
from benchmarks.measure.figures import OURS, Row, figure, row_of
from benchmarks.measure.processes import environment_of, last_line
from benchmarks.measure.timing import host_us
from benchmarks.measure.turns import Entries, in_turn, telling
from benchmarks.suites.cell import Cell, some
from benchmarks.suites.forms import FORMS, Arrays, Do, Form, host_array, installed
from benchmarks.suites.setting import Setting
from lowlevel_reduce import ReduceError

__all__ = ["form_cells", "new_shape_cells"]

FORM_SECONDS, NEW_SHAPES_SECONDS = 1.0, 30.0
"""About how long a cell takes: 3 rounds of 7 times 50 calls of two libraries; processes that compile."""

CALLS, ROUNDS_OF_CALLS = 50, 5


def form_cells(*, quick: bool = False) -> list[Cell]:
    """Return a cell for each form of a call."""
    forms = some(FORMS, (0, 1, 20, 30), quick=quick)
    return [Cell(form.name, functools.partial(_form, form=form), FORM_SECONDS, goal=True) for form in forms]


def _form(setting: Setting, *, form: Form) -> list[Row]:
    setting.settle()
    arrays: Arrays = setting.kept("arrays", lambda: _arrays(setting))
    if form.needs is not None and form.needs not in arrays.libraries:
        setting.missing[form.needs] = setting.missing.get(form.needs, "it is not installed")
        return []
    others = {name: call for name, call in form.others.items() if _LIBRARIES[name] in arrays.libraries}
    failed: Entries = {}
    right = np.asarray(form.right(arrays))
    takers = {}
    for name, call in {OURS: form.ours, **others}.items():
        with telling(name, failed):
            _check(call(arrays), right)
            takers[name] = functools.partial(_call_us, setting, arrays, form, call)
    samples = in_turn(takers, 2 if setting.quick else 3, failed)
    entries = {name: figure(taken) for name, taken in samples.items()} | failed
    counted: Mapping[str, Mapping[str, float]] = setting.kept("driver calls", lambda: _driver_calls(setting))
    facts: dict[str, Any] = {"kind": "form", "op": "call", "shape": list(arrays.host.shape), "axis": None}
    if form.name in counted:
        facts["driver_calls"] = round(sum(counted[form.name].values()), 2)
    return [row_of(form.name, entries, mode="host", dtype="float32", **facts)]


_LIBRARIES = {"torch": "torch", "CuPy": "cupy", "JAX": "jax"}
"""The module of each library that has an entry."""


def _arrays(setting: Setting) -> Arrays:
    libraries, missing = installed()
    setting.missing |= {name: why for name, why in missing.items() if name in ("jax", "numba")}
    for peer, package in (("torch", "torch"), ("CuPy", "cupy")):
        if setting.peer(peer) is None:  # which says why
            libraries = {name: library for name, library in libraries.items() if name != package}
    return Arrays(setting.stream, libraries)


def _check(got: Any, right: np.ndarray[Any, Any]) -> None:
    found = host_array(got).astype(np.float64)
    if found.shape != right.shape or not np.allclose(found, right, rtol=1e-3, atol=0.05):
        raise ReduceError("the result is not NumPy's: not timed")


def _call_us(setting: Setting, arrays: Arrays, form: Form, call: Do) -> float:
    timed = functools.partial(call, arrays)
    calls = max(1, CALLS // form.calls)
    return host_us(timed, setting.stream.context, calls=calls, rounds=ROUNDS_OF_CALLS) / form.calls


def _driver_calls(setting: Setting) -> Mapping[str, Mapping[str, float]]:
    """Return the driver calls by form, which a process of its own counts."""
    try:
        text = last_line([sys.executable, "-m", "benchmarks.profile.driver_calls"], environment_of(None))
    except RuntimeError as error:
        setting.missing["driver calls"] = str(error)[:200]
        return {}
    counted: Mapping[str, Mapping[str, float]] = json.loads(text)
    return counted


def new_shape_cells(*, quick: bool = False) -> list[Cell]:
    """Return a cell for each kind of call whose shape is new each time."""
    kinds = list(new_shapes.KINDS)[:1] if quick else list(new_shapes.KINDS)
    calls = 60 if quick else new_shapes.CALLS
    return [
        Cell(_NEW.format(kind=kind), functools.partial(_new_shapes, kind=kind, calls=calls), NEW_SHAPES_SECONDS)
        for kind in kinds
    ]


_NEW = "new shapes: {kind}"


def _new_shapes(setting: Setting, *, kind: str, calls: int) -> Sequence[Row]:
    """Return the row of a kind, each library in a fresh process, this one with an empty cache of kernels."""
    setting.settle()
    failed: Entries = {}
    entries: Entries = {}
    for name, library in new_shapes.LIBRARIES.items():
        with telling(name, failed), tempfile.TemporaryDirectory() as cache:
            words = ["--library", library, "--kind", kind, "--calls", str(calls), "--seed", str(setting.seed)]
            command = [sys.executable, "-m", "benchmarks.measure.new_shapes", *words]
            entries[name] = json.loads(last_line(command, environment_of(cache)))
    entries = {name: entry for name, entry in entries.items() if entry} | failed  # empty: without such a call
    return [row_of(_NEW.format(kind=kind), entries, mode="process", kind="new shapes", op="call", shape=[], axis=None,
                   dtype="float32", calls=calls)]  # fmt: skip

"""What a one-shot call asks of the driver, in every form: one launch for each kernel and at most two queries."""

from collections import Counter

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from lowlevel_reduce.driver import Stream

ROWS, COLUMNS = 40, 96
X = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(np.float32)
BORDERS = np.array([0, 5, 600, 601, ROWS * COLUMNS])

FORMS = {
    "whole": lambda a, **on: lr.sum(a.x, **on),
    "rows": lambda a, **on: lr.sum(a.x, axis=1, **on),
    "columns": lambda a, **on: lr.sum(a.x, axis=0, **on),
    "places": lambda a, **on: lr.argmax(a.x, axis=1, **on),
    "two results": lambda a, **on: lr.mean_var(a.x, axis=1, **on),
    "two results of all": lambda a, **on: lr.minmax(a.x, **on),
    "initial": lambda a, **on: lr.sum(a.x, initial=2.5, **on),
    "mask": lambda a, **on: lr.sum(a.x, where=a.mask, **on),
    "two arrays": lambda a, **on: lr.dot(a.x, a.y, **on),
    "map": lambda a, **on: lr.sum(a.x, map="x * x", **on),
    "keepdims": lambda a, **on: lr.max(a.x, axis=0, keepdims=True, **on),
    "into": lambda a, **on: lr.sum(a.x, axis=1, out=a.out, **on),
    "into two": lambda a, **on: lr.mean_var(a.x, axis=1, out=a.outs, **on),
    "segments": lambda a, **on: lr.segmented_reduce(a.flat, a.borders, **on),
    "partials": lambda a, **on: lr.partials(a.flat, chunk=1024, **on),
    "partials about an element": lambda a, **on: lr.partials(a.flat, "var", chunk=4096, first=a.flat, **on),
    "partials with a mask": lambda a, **on: lr.partials(a.flat, chunk=2048, where=a.mask, **on),
    "fold": lambda a, **on: lr.combine_partials(a.parts, length=X.size, chunk=1024, dtype="float32", **on),
    "fold into": lambda a, **on: lr.combine_partials(
        a.parts, length=X.size, chunk=1024, dtype="float32", initial=1.5, out=a.one, **on
    ),
    "fold of shares": lambda a, **on: lr.combine_partials(
        a.parts, length=X.size, chunk=1024, dtype="float32", shards=2, **on
    ),
}
LAUNCHES = {"segments": 2, "partials with a mask": 2}  # the whole chunks, and the rest


class Arrays:
    def __init__(self, stream):
        def on(array):
            return lr.DeviceArray.from_numpy(array, stream)

        self.x, self.y, self.mask = on(X), on(X[::-1].copy()), on(X > 0)
        self.flat, self.borders = on(X.ravel()), on(BORDERS)
        self.out = lr.DeviceArray.empty((ROWS,), "float32", stream)
        self.outs = lr.DeviceArray.empty((2, ROWS), "float32", stream)
        self.one = lr.DeviceArray.empty((), "float32", stream)
        self.parts = lr.partials(self.flat, chunk=1024, stream=stream)


def counts(call):
    before = Counter(simulator.selected().calls)
    call()
    return simulator.selected().calls - before


def several(results):
    return results if isinstance(results, tuple) else (results,)


def check(made, launches):
    assert made.pop("cuLaunchKernelEx") == launches
    assert sum(made.values()) <= 2, made
    assert set(made) <= {"cuCtxGetId", "cuCtxGetCurrent", "cuStreamIsCapturing"}


@pytest.fixture(params=["legacy", "own", "given"])
def where(request, context, machine):
    if machine != "simulated":
        pytest.skip("calls are counted by the simulated driver")
    if request.param == "legacy":
        yield Stream.legacy(context), {}
        return
    with Stream.create(context) as stream:
        yield stream, {"stream": stream} if request.param == "given" else {}


@pytest.mark.parametrize("form", FORMS)
def test_a_repeated_call_is_one_launch_for_each_kernel(where, form):
    stream, on = where
    arrays = Arrays(stream)
    expected = None
    for _ in range(2):
        expected = FORMS[form](arrays, **on)
    made = counts(lambda: FORMS[form](arrays, **on))
    check(made, LAUNCHES.get(form, 1))
    del expected


@pytest.mark.parametrize("op", ["sum", "mean_var"])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_so_is_a_call_with_a_new_shape_once_its_kernel_is_there(where, op, axis):
    stream, on = where
    first, others = X, [np.ascontiguousarray(X[: ROWS - n, : COLUMNS - n]) for n in (7, 3, 5, 1)]
    lr.reduce(lr.DeviceArray.from_numpy(first, stream), op, axis=axis, **on)
    known = []
    for array in others:
        x = lr.DeviceArray.from_numpy(array, stream)
        results = []
        made = counts(lambda x=x, results=results: results.append(lr.reduce(x, op, axis=axis, **on)))
        for found, expected in zip(*map(several, (results[0], lr.tree.reduce(array, op, axis=axis))), strict=True):
            assert found.numpy().tobytes() == expected.tobytes()
        if not made["cuKernelGetFunction"]:  # which binds a kernel in blocks of another size
            known.append(made)
    assert known
    for made in known:
        check(made, 1)

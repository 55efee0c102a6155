"""Kernels that may start before the one ahead of them has ended, without their wait for it: the simulator must see it.

Each kernel that carries the attribute is launched twice behind a kernel that writes what it reads, and the host waits
for nothing in between, in the natural order.
"""

import contextlib
import re

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.simulator import machine

WAIT = "wait_for_prerequisites();"
NO_WAIT = (("base/ptx_launch.cuh", 'asm volatile("griddepcontrol.wait;" ::: "memory");', ""),)
EARLY = "data race: (reads|writes|updates) what .* of the earlier kernel .*, before griddepcontrol.wait"

# What a plan computes, and the kernel that must be caught.
PLANS = {
    "tiles": ({"shape": 40_000, "strategy": "tiles"}, "tiles"),
    "two passes": ({"shape": 40_000, "strategy": "two_pass"}, "first_pass"),
    "block": ({"shape": 5000, "strategy": "block"}, "block"),
    "cluster": ({"shape": 15_000, "strategy": "cluster"}, "cluster"),
    "few elements": ({"shape": (500, 3), "axis": 1, "strategy": "elements"}, "elements"),
    "short rows": ({"shape": (500, 40), "axis": 1, "strategy": "short_rows"}, "short_rows"),
    "rows": ({"shape": (40, 5000), "axis": 1, "strategy": "rows"}, "rows"),
    "rows at once": ({"shape": (8, 5000), "axis": 1, "strategy": "batch"}, "at_once"),
    "batch": ({"shape": (2, 60_000), "axis": 1, "strategy": "batch"}, "batch"),
    "columns of threads": ({"shape": (20, 3000), "axis": 0, "strategy": "columns"}, "columns"),
    "columns of blocks": ({"shape": (500, 100), "axis": 0, "strategy": "columns"}, "columns"),
    "columns of several blocks": ({"shape": (50_000, 3), "axis": 0}, "columns"),
}
SEGMENTS = {"short segments": 3000, "long segments": 3}

# One wait among several of a kernel: the place before and after it, and the operator and the plan that need it.
ONE_WAIT = {
    "the second of two passes": (
        ("whole/reduce_two_pass.cuh", "", ""), "sum", {"shape": 40_000, "strategy": "two_pass"}
    ),
    "blocks that fold the partials of tiles": (
        ("whole/reduce_tiles.cuh", "if (rank != 0) return;\n        ", ""),
        "sum",
        {"shape": 40_000, "strategy": "tiles"},
    ),
    "blocks that fold the partials of columns": (
        ("columns/reduce_columns.cuh", "        launch_dependents();\n        ", "\n        return fold_columns"),
        *("sum", {"shape": (50_000, 3), "axis": 0}),
    ),
    "blocks that fold the partials of rows": (
        ("rows/reduce_batch.cuh", "        launch_dependents();\n        ", "\n        if (rank != 0"),
        *("sum", {"shape": (2, 60_000), "axis": 1, "strategy": "batch", "cluster": 1}),
    ),
    "columns that read a pivot": (
        ("columns/reduce_columns.cuh", "problem.device_length != nullptr) ", ""),
        "std",
        {"shape": (500, 100), "axis": 0, "strategy": "columns"},
    ),
    "whole arrays that read a pivot": (
        ("tree/source.cuh", "problem.device_length != nullptr) ", ""), "std", {"shape": 5000, "strategy": "block"}
    ),
}  # fmt: skip


def one_wait(file, before, after):
    """Return the edit that drops a wait."""
    return ((file, before + WAIT + after, before + ";" + after),)


class Chain:
    """A stream of a simulated device of its own, and an array in it that a kernel writes from `x`."""

    def __init__(self, x):
        self._x = x

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.driver = stack.enter_context(lr.simulator.use("H200", seed=None))
            self.context = stack.enter_context(lr.Context.primary(lr.Device(0)))
            stack.enter_context(self.context.pushed())
            self.stream = stack.enter_context(lr.Stream.create(self.context))
            name, shape = self._x.dtype.name, (1, *self._x.shape)
            copy = stack.enter_context(lr.plan("max", dtype=name, shape=shape, axis=0, context=self.context))
            self._given = lr.DeviceArray.from_numpy(self._x.reshape(shape), self.stream)
            self.made = lr.DeviceArray.empty(self._x.shape, name, self.stream)
            self.copying = copy.bind(self.stream)
            stack.callback(self.copying.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception):
        return self._stack.__exit__(*exception)

    def bound(self, plan):
        """Return a launch of a plan, which is closed at the end, and an array for its results."""
        launch = self._stack.enter_context(plan).bind(self.stream)
        self._stack.callback(launch.close)
        return launch, lr.DeviceArray.empty(plan.result_shape, plan.result_dtype, self.stream)

    def copy(self):
        """Let a kernel write the array anew; the host has waited for all before."""
        self.stream.synchronize()
        self.copying(self._given.pointer, self.made.pointer)


def values(shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def reduced(op, **problem):
    """Reduce the array twice behind the kernel that writes it; return the results' bytes."""
    with Chain(values(problem["shape"])) as chain:
        launch, result = chain.bound(lr.plan(op, dtype="float32", context=chain.context, **problem))
        chain.copy()
        for _ in range(2):
            launch(chain.made.pointer, result.pointer)
        return result.numpy().tobytes()


def by_segments(count):
    with Chain(values(30_000)) as chain:
        offsets = np.linspace(0, 30_000, count + 1).astype(np.int64)
        given = lr.DeviceArray.from_numpy(offsets, chain.stream)
        plan = lr.segmented_plan("sum", length=30_000, segments=count, dtype="float32", context=chain.context)
        launch, result = chain.bound(plan)
        chain.copy()
        for _ in range(2):
            launch(chain.made.pointer, result.pointer, given.pointer)
        return result.numpy().tobytes()


def of_partials():
    """Fold partials that a kernel has made just before."""
    with Chain(values(9000)) as chain:
        plan = lr.combine_plan("sum", length=9000, chunk=1024, dtype="float32", context=chain.context)
        launch, result = chain.bound(plan)
        chain.copy()
        made = lr.partials(chain.made, "sum", chunk=1024, stream=chain.stream)
        launch(made.pointer, result.pointer)
        return result.numpy().tobytes()


def captured(chain, launch, result):
    """Return a graph that writes the array and reduces it, captured from a stream."""
    with lr.Graph.capture(chain.stream) as graph:
        chain.copying(chain._given.pointer, chain.made.pointer)
        launch(chain.made.pointer, result.pointer)
    return graph


def added(chain, launch, result):
    """Return a graph that does the same, made node by node."""
    graph = lr.Graph.create(chain.context)
    first = graph.add_kernel(chain.copying.kernels[0], chain._given.pointer, chain.made.pointer, 0)
    graph.add_kernel(launch.kernels[0], chain.made.pointer, result.pointer, 0, after=[first])
    return graph


def in_a_graph(make):
    problem = {"shape": 5000, "strategy": "block"}
    with Chain(values(5000)) as chain:
        launch, result = chain.bound(lr.plan("sum", dtype="float32", context=chain.context, **problem))
        chain.stream.synchronize()
        with make(chain, launch, result) as graph, graph.instantiate() as executable:
            executable.launch(chain.stream)
            return result.numpy().tobytes()


def caught(run, *arguments, **options):
    """Return the fault of a launch that is too early."""
    with pytest.raises(machine.KernelFault) as fault:
        run(*arguments, **options)
    assert re.match(EARLY, fault.value.reason), fault.value.reason
    return fault.value


@pytest.mark.parametrize(("problem", "kernel"), PLANS.values(), ids=PLANS)
def test_each_kernel_must_wait(edited, problem, kernel):
    expected = lr.tree.reduce(values(problem["shape"]), axis=problem.get("axis")).tobytes()
    assert reduced("sum", **problem) == expected
    edited(NO_WAIT)
    assert caught(reduced, "sum", **problem).kernel.endswith(f"_{kernel}")


@pytest.mark.parametrize("count", SEGMENTS.values(), ids=SEGMENTS)
def test_kernels_of_segments_must_wait(edited, count):
    by_segments(count)
    edited(NO_WAIT)
    assert "segments" in caught(by_segments, count).kernel


def test_the_fold_of_partials_must_wait(edited):
    assert of_partials() == lr.tree.reduce(values(9000)).tobytes()
    edited(one_wait("whole/reduce_partials.cuh", "", ""))
    assert "partials" in caught(of_partials).kernel


@pytest.mark.parametrize("make", [captured, added])
def test_kernels_in_graphs_must_wait(edited, make):
    assert in_a_graph(make) == lr.tree.reduce(values(5000)).tobytes()
    edited(NO_WAIT)
    assert caught(in_a_graph, make).kernel.endswith("_block")


@pytest.mark.parametrize(("place", "op", "problem"), ONE_WAIT.values(), ids=ONE_WAIT)
def test_each_of_a_kernels_waits_is_needed(edited, place, op, problem):
    reduced(op, **problem)
    edited(one_wait(*place))
    caught(reduced, op, **problem)

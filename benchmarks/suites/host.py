"""The suites of small arrays and of calls: device time in a hot L2, time from call to value, host time of a call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import lowlevel_reduce as lr
from benchmarks.measure.figures import BARE, OURS, Row, figure, name_of, row_of
from benchmarks.measure.problems import Case, check, pattern
from benchmarks.measure.timing import host_us
from benchmarks.measure.turns import in_turn, telling
from benchmarks.peers.common import RawArray
from benchmarks.suites.calls import form_cells, new_shape_cells
from benchmarks.suites.cell import Cell, array_cell, some
from benchmarks.suites.setting import Setting
from lowlevel_reduce.driver import binding, native_config

__all__ = ["bare_launch", "host", "small"]

SMALL_POWERS = (8, 10, 12, 14, 16, 18, 20)
GOAL_POWERS = (8, 16, 20)
CALL_LENGTH = 4096
CALLS_SECONDS = 0.8
"""About how long a cell takes: 5 rounds of 11 times 200 calls of 3 libraries, 5 to 20 µs each."""

Function = Callable[[], Any]


@dataclass(frozen=True)
class Call:
    """One call of a library.

    Attributes
    ----------
    function : callable
        The call, which is timed.
    value : callable, optional
        Returns the sum, given what the call returned; None if a call makes no sum, such as planning.
    """

    function: Function
    value: Callable[[Any], float] | None = float


def small(*, quick: bool = False) -> list[Cell]:
    """Return sums of up to 2^20 float32: device time back to back, and from a call to its value on the host."""
    peers = ("CUB", "cuda.compute", "CuPy", "torch")
    powers = some(SMALL_POWERS, (0, 4, 6), quick=quick)
    cells = [
        array_cell(f"{name_of(1 << p)}, device", Case("sum", (1 << p,)), peers, mode="hot", goal=p in GOAL_POWERS)
        for p in powers
    ]
    return cells + [
        _calls_cell(f"{name_of(1 << p)}, call to value", 1 << p, lambda calls: calls.values()) for p in powers
    ]


def host(*, quick: bool = False) -> list[Cell]:
    """Return the host times of one call: bound, prepared, one-shot, making a plan, every form, and new shapes."""

    def bound(calls: Calls, strategy: str) -> dict[str, Call]:
        return {OURS: calls.bound(strategy)} | ({BARE: calls.bare()} if strategy == "block" else {})

    cells = [
        _calls_cell(f"bound launch, {name}", CALL_LENGTH, functools.partial(bound, strategy=name), goal=name == "block")
        for name in ("block", "tiles", "two_pass")
    ]
    made: list[tuple[str, Callable[[Calls], Mapping[str, Call]]]] = [
        ("prepared call", lambda calls: {OURS: calls.bound("block"), **calls.prepared()}),
        ("one-shot, out=", lambda calls: calls.one_shot(out=True)),
        ("one-shot", lambda calls: calls.one_shot(out=False)),
    ]
    cells += [_calls_cell(name, CALL_LENGTH, entries, goal=name == "one-shot") for name, entries in made]
    return [
        *cells,
        _calls_cell("plan of a loaded kernel", CALL_LENGTH, lambda calls: {OURS: calls.planning()}, calls=20),
        *form_cells(quick=quick),
        *new_shape_cells(quick=quick),
    ]


def _calls_cell(
    name: str, length: int, entries: Callable[[Calls], Mapping[str, Call]], *, goal: bool = False, calls: int = 200
) -> Cell:
    def measure(setting: Setting) -> Sequence[Row]:
        setting.settle()
        made = Calls(setting, length)
        return [made.row(name, entries(made), calls=calls)]

    return Cell(name, measure, CALLS_SECONDS, goal)


class Calls:
    """One small array for every library, and their calls on it."""

    def __init__(self, setting: Setting, length: int) -> None:
        self._setting = setting
        self._stream = setting.stream
        self._length = length
        self._x = lr.DeviceArray.from_numpy(pattern("float32").values[:length], self._stream)
        self._raw = RawArray(self._x.pointer, (length,), np.dtype(np.float32))
        self._keep: list[Any] = []
        self._failed: dict[str, dict[str, Any]] = {}

    def row(self, cell: str, entries: Mapping[str, Call], *, calls: int = 200) -> Row:
        """Return a row of host times, the calls taken in turn; one that is wrong or raises has failed."""
        context, rounds = self._stream.context, 3 if self._setting.quick else 5
        figures = dict(self._failed)
        for name, each in entries.items():
            with telling(name, figures):
                self._check(each, exact=name in (OURS, BARE))
        takers = {
            name: functools.partial(host_us, each.function, context, calls=calls, rounds=11)
            for name, each in entries.items()
        }
        samples = in_turn(takers, rounds, figures)
        figures = {name: figure(times) for name, times in samples.items()} | figures
        return row_of(cell, figures, mode="host", op="sum", shape=[self._length], axis=None, dtype="float32")

    def _check(self, call: Call, *, exact: bool) -> None:
        """Raise if a call's sum is wrong."""
        if call.value is not None:
            value = np.asarray([call.value(call.function())], np.float32)
            check(Case("sum", (self._length,)), [value], exact=exact)

    def _target(self) -> lr.DeviceArray:
        """Return memory for one result, filled with NaN."""
        return lr.DeviceArray.from_numpy(np.full((), np.nan, np.float32), self._stream)

    def planning(self) -> Call:
        """Return the call that makes a plan whose kernel is loaded already."""
        context = self._stream.context
        return Call(functools.partial(lr.plan, "sum", shape=self._length, dtype="float32", context=context), None)

    def bound(self, strategy: str) -> Call:
        """Return a bound launch."""
        made = lr.plan("sum", shape=self._length, dtype="float32", context=self._stream.context, strategy=strategy)
        launch, out = made.bind(self._stream), self._target()
        source, target = self._x.pointer, out.pointer
        self._keep += [made, launch]
        return Call(lambda: launch(source, target), lambda _: float(out))

    def bare(self) -> Call:
        """Return the launch of `block` as the driver's call, with all arguments prepared."""
        context = self._stream.context
        made = lr.plan("sum", shape=self._length, dtype="float32", context=context, strategy="block")
        launch, out = made.bind(self._stream), self._target()
        self._keep += [made, launch]
        return Call(bare_launch(launch, self._stream, self._x.pointer, out.pointer), lambda _: float(out))

    def one_shot(self, *, out: bool) -> dict[str, Call]:
        """Return ``sum(x)`` of every library, into existing memory or into new memory."""
        x, stream, target = self._x, self._stream, self._target()
        ours: Function = (lambda: lr.sum(x, out=target, stream=stream)) if out else (lambda: lr.sum(x, stream=stream))
        return {OURS: Call(ours), **self._others({
            "torch": lambda torch: Call(_torch_call(torch, self._raw, out=out)),
            "CuPy": lambda cupy: Call(_cupy_call(cupy, self._raw, out=out)),
        })}  # fmt: skip

    def values(self) -> dict[str, Call]:
        """Return the calls that return a number on the host."""
        x, stream = self._x, self._stream

        def of_torch(torch: Any) -> Call:
            one = _torch_call(torch, self._raw, out=False)
            return Call(lambda: one().item())

        def of_cupy(cupy: Any) -> Call:
            one = _cupy_call(cupy, self._raw, out=False)
            return Call(lambda: float(one()))

        others = self._others({"torch": of_torch, "CuPy": of_cupy})
        return {OURS: Call(lambda: float(lr.sum(x, stream=stream))), **others}

    def prepared(self) -> dict[str, Call]:
        """Return the prepared call of ``cuda.compute``, if that is installed."""

        def prepared(compute: Any) -> Call:
            case = Case("sum", (self._length,))
            inputs = self._setting.harness.inputs(case, "hot")
            ready = compute.ready(case, inputs, self._stream)[0]()
            self._keep.append(ready)
            return Call(lambda: ready.enqueue(0), lambda _: float(ready.results()[0][0]))

        return self._others({"cuda.compute": prepared})

    def _others(self, makers: Mapping[str, Callable[[Any], Call]]) -> dict[str, Call]:
        """Return the calls of the competitors that are installed; one that cannot be made fails without the others."""
        calls = {}
        for name, make in makers.items():
            peer = self._setting.peer(name)
            if peer is not None:
                with telling(name, self._failed):
                    calls[name] = make(peer)
        return calls


def bare_launch(bound: lr.BoundReduction, stream: lr.Stream, source: int, target: int) -> Function:
    """Return a bound launch of one kernel as the call of cuda.bindings, with all arguments prepared."""
    (kernel,) = bound.kernels
    pointers = kernel.packed_for(int, source, target, 0)
    call = binding.function("cuLaunchKernelEx")
    arguments = (native_config(kernel.config, stream.handle), kernel.kernel.function, pointers, 0)
    return lambda: call(*arguments)


def _torch_call(peer: Any, raw: RawArray, *, out: bool) -> Function:
    """Return ``torch.sum`` as users call it, on torch's current stream."""
    torch = peer.torch
    x = torch.as_tensor(raw, device="cuda")
    if not out:
        return lambda: torch.sum(x)
    target = torch.empty((1,), device="cuda")
    return lambda: torch.sum(x, dim=0, keepdim=True, out=target)


def _cupy_call(peer: Any, raw: RawArray, *, out: bool) -> Function:
    """Return ``cupy.sum`` as users call it, on CuPy's current stream."""
    cupy = peer.cupy
    x = cupy.asarray(raw)
    if not out:
        return lambda: cupy.sum(x)
    target = cupy.empty((), "float32")
    return lambda: cupy.sum(x, out=target)

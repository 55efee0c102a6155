"""Calls without a length: lengths and partials in one collective, and the right bits whatever ranks expected."""

import gc
import sys
import weakref

import fake_torch
import numpy as np
import pytest
from ranks_in_threads import bits, communicators, engines, on_each, parts_of, values

import lowlevel_reduce as lr
from lowlevel_reduce.arrays import libraries
from lowlevel_reduce.parts import calls, groups, letters

LEAF = 1024


def there(part, own):
    return lr.DeviceArray.from_numpy(part, own)


@pytest.mark.parametrize(
    ("op", "shape", "axis"),
    [
        ("sum", (5 * LEAF + 77,), None),
        ("argmax", (5 * LEAF + 77,), None),
        ("softmax_stats", (3, 3 * LEAF + 4), 1),
        ("logsumexp", (3 * LEAF + 4, 2), 0),
    ],
)
def test_an_equal_call_is_one_collective(op, shape, axis, stream, context):
    x, y = values(shape, "float32"), values(shape, "float32")[::-1].copy()
    expected = [bits(lr.reduce(each, op, axis=axis, stream=stream)) for each in (x, y)]
    both = [parts_of(each, axis, 2) for each in (x, y)]

    def called(engine, own):
        first, second = (there(parts[engine.rank], own) for parts in both)
        length = shape[0 if axis is None else axis]
        assert bits(lr.distributed.reduce(first, op, engine, axis=axis, length=length)) == expected[0]
        found = [bits(lr.distributed.reduce(first, op, engine, axis=axis))]
        del engine.gathered[:]
        for each in (second, first):
            found.append(bits(lr.distributed.reduce(each, op, engine, axis=axis)))
        assert engine.gathered == [letters.letter_bytes(2)] * 2
        return found

    assert on_each(communicators(2, context), called, context) == [[expected[0], *expected[::-1]]] * 2


@pytest.mark.parametrize(
    ("op", "connected"), [("sum", communicators), ("mean_var", communicators), ("sum", lambda ranks, _: engines(ranks))]
)
def test_what_ranks_expected_wrongly_is_done_again(op, connected, stream, context):
    # The first rank has the same part in all three, and so expects what the last call had.
    wholes = [values(number, "float32") for number in (5 * LEAF + 7, 6 * LEAF, 5 * LEAF + 8)]
    parts = [parts_of(each, None, 2) for each in wholes]
    assert len({len(each[0]) for each in parts}) == 1
    expected = [bits(lr.reduce(each, op, stream=stream)) for each in wholes]
    order = (0, 0, 1, 1, 0, 2, 2, 0, 1)

    def called(engine, own):
        mine = [there(each[engine.rank], own) for each in parts]
        return [bits(lr.distributed.reduce(mine[number], op, engine)) for number in order]

    assert on_each(connected(2, context), called, context) == [[expected[number] for number in order]] * 2


@pytest.mark.parametrize("connected", [communicators, lambda ranks, _: engines(ranks)])
def test_rows_cut_within_a_leaf_exchange_their_lengths_and_are_not_looked_at_again(
    connected, stream, context, monkeypatch
):
    x = values((3, 2 * LEAF + 30), "float32")
    expected = [bits(lr.reduce(each, op, axis=1, stream=stream)) for op in ("logsumexp", "var") for each in (x, -x)]
    halves = [np.split(each, 2, axis=1) for each in (x, -x)]
    looked_at, request_of = [], calls.request_of
    monkeypatch.setattr(calls, "request_of", lambda *a, **b: [looked_at.append(a[0]), request_of(*a, **b)][1])

    def called(engine, own):
        mine = [there(np.ascontiguousarray(each[engine.rank]), own) for each in halves]
        return [bits(lr.distributed.reduce(part, op, engine, axis=1)) for op in ("logsumexp", "var") for part in mine]

    assert on_each(connected(2, context), called, context) == [expected] * 2
    assert sorted(looked_at) == ["logsumexp", "logsumexp", "var", "var"]


def test_a_right_guess_after_a_wrong_one_is_one_collective_again(context):
    def called(engine, own):
        # The first rank's part is the same; the second's is longer the second time.
        parts = [there(np.ones(2048 if engine.rank == 0 else length, "f4"), own) for length in (1025, 1026)]
        found = []
        for part in (parts[0], parts[0], parts[1], parts[1]):
            del engine.gathered[:]
            assert float(lr.distributed.sum(part, engine)) == 2048 + (1025 if part is parts[0] else 1026)
            found.append(len(engine.gathered))
        return found[1], found[3]

    assert on_each(communicators(2, context), called, context) == [(1, 1)] * 2


def test_an_engine_that_works_elsewhere_than_the_array_s_library_is_not_repeated(context, monkeypatch):
    (engine,) = communicators(1, context)
    with context.pushed(), lr.Stream.create(context) as own:
        monkeypatch.setitem(sys.modules, "torch", fake_torch.module(lambda ordinal: own.handle))
        libraries._known.clear()  # of a library that another test stands in for
        part = fake_torch.Tensor(there(np.ones(2048, "f4"), own))
        for options in ({}, {"length": 2048}):  # in the legacy stream, for the engine names none
            assert float(lr.distributed.sum(part, engine, **options)) == 2048
            with monkeypatch.context() as patch:
                patch.setattr(calls, "_plan_of", lambda *_: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    lr.distributed.sum(part, engine, **options)
    lr.distributed.forget(engine)


def test_a_second_array_and_an_output_are_of_a_letter_too(stream, context):
    x, y = values(4 * LEAF + 5, "float32"), values(4 * LEAF + 5, "float32")[::-1].copy()
    expected = bits(lr.dot(x, y, stream=stream)) + bits(lr.sum(x, where=y > 0, stream=stream))
    parts, others = (parts_of(each, None, 2) for each in (x, y))
    masks = [each > 0 for each in others]

    def called(engine, own):
        part, other, mask = (there(each[engine.rank], own) for each in (parts, others, masks))
        out, found = lr.DeviceArray.empty((), "f4", own), []
        for _ in range(2):
            del engine.gathered[:]
            lr.distributed.dot(part, engine, second=other, out=out)
            found.append(bits(out) + bits(lr.distributed.sum(part, engine, where=mask)))
        assert len(engine.gathered) == 2
        return found

    assert on_each(communicators(2, context), called, context) == [[expected] * 2] * 2


@pytest.mark.parametrize("other", ["another operator", "no array", "other axes"])
def test_a_rank_that_calls_something_else_is_heard_by_those_who_sent_letters(other, context):
    def called(engine, own):
        part = there(np.ones(4096, "f4"), own)
        for _ in range(2):
            assert lr.distributed.sum(part, engine, keepdims=True).numpy() == [8192]
        op, array = "sum", part
        if engine.rank == 1:
            op = "max" if other == "another operator" else op
            array = {"no array": "no array", "other axes": there(np.ones((2, 2048), "f4"), own)}.get(other, part)
        try:
            lr.distributed.reduce(array, op, engine, keepdims=True)
        except (lr.ReduceError, TypeError) as error:
            found = error
        assert lr.distributed.sum(part, engine, keepdims=True).numpy() == [8192]
        return found

    first, second = on_each(communicators(2, context), called, context)
    assert isinstance(first, lr.GroupError), first
    assert isinstance(second, TypeError if other == "no array" else lr.GroupError), second


def test_what_does_not_fit_a_letter_takes_two_collectives(stream, context, monkeypatch):
    monkeypatch.setattr(letters, "_LEAST_BYTES", 64)
    monkeypatch.setattr(letters, "_MOST_BYTES", 64 + 16)  # two partials
    x = values(6 * LEAF, "float32")
    expected, parts = bits(lr.sum(x, stream=stream)), parts_of(x, None, 2)

    def called(engine, own):
        part = there(parts[engine.rank], own)
        found = [bits(lr.distributed.sum(part, engine))]
        del engine.gathered[:]
        found.append(bits(lr.distributed.sum(part, engine)))
        assert engine.gathered == [80, 16 + 32]
        return found

    assert on_each(communicators(2, context), called, context) == [[expected] * 2] * 2


def test_engines_of_the_host_exchange_their_lengths(stream, context):
    x = values(5 * LEAF + 1, "float32")
    expected, parts = bits(lr.sum(x, stream=stream)), parts_of(x, None, 2)

    def called(engine, own):
        part = there(parts[engine.rank], own)
        return [bits(lr.distributed.sum(part, engine)) for _ in range(3)]

    assert on_each(engines(2), called, context) == [[expected] * 3] * 2


def test_a_forgotten_group_leaves_no_memory(context):
    (engine,) = communicators(1, context)
    with context.pushed(), lr.Stream.create(context) as own:
        part = there(np.ones(2048, "f4"), own)
        for _ in range(2):
            assert float(lr.distributed.sum(part, engine)) == 2048
        memory = [weakref.ref(each) for each in groups.group_of(engine)._letters.values()]
        assert len(memory) == 1
        gc.disable()  # none of it waits for the collector
        lr.distributed.forget(engine)
        gc.enable()
        assert memory[0]() is None
        assert float(lr.distributed.sum(part, engine)) == 2048
    lr.distributed.forget(engine)


@pytest.mark.parametrize("named", ["by its group", "as torch's default"])
def test_a_group_is_forgotten_by_all_that_names_it(named, context, monkeypatch):
    (engine,) = engines(1)
    monkeypatch.setattr(groups, "_default_group", lambda: engine)
    with context.pushed(), lr.Stream.create(context) as own:
        assert float(lr.distributed.sum(np.ones(2048, "f4"), stream=own)) == 2048
        group = lr.distributed.group(engine)
        assert group.plans
        lr.distributed.forget(group if named == "by its group" else None)
        assert not group.plans
        assert lr.distributed.group(engine) is not group
    lr.distributed.forget(engine)


def test_a_dropped_plan_is_not_repeated(context, monkeypatch):
    monkeypatch.setattr(calls, "_MOST_PLANS", 2)

    def made(engine, own):
        part = there(np.ones(4096, "f4"), own)
        assert float(lr.distributed.sum(part, engine)) == 8192
        for op in ("max", "min"):
            lr.distributed.reduce(part, op, engine)
        del engine.gathered[:]
        assert float(lr.distributed.sum(part, engine)) == 8192
        return len(engine.gathered) > 1

    assert on_each(communicators(2, context), made, context) == [True] * 2

"""`lr.distributed` over ranks that are threads of one process: the bits of the whole, and errors on every rank."""

import contextlib
import itertools
import sys

import fake_torch
import ml_dtypes
import numpy as np
import pytest
from ranks_in_threads import bits, communicators, engines, on_each, parts_of, values

import lowlevel_reduce as lr
from lowlevel_reduce.arrays import libraries
from lowlevel_reduce.parts import asked, calls, groups


@pytest.mark.parametrize("whole_length", ["told", "exchanged"])
@pytest.mark.parametrize(
    ("op", "dtype", "options"),
    [
        ("sum", "float32", {}),
        ("sum", "float32", {"initial": 0.5, "map": "x * x"}),
        ("argmax", "float32", {}),
        ("mean_var", "float32", {"ddof": 1}),
        ("logsumexp", ml_dtypes.bfloat16, {}),
    ],
)
def test_every_rank_has_the_bits_of_the_whole(op, dtype, options, whole_length, stream, context, cut):
    leaf = 4096 // np.dtype(dtype).itemsize
    x = values(5 * leaf + 77, dtype)
    expected = bits(lr.reduce(x, op, stream=stream, **options))
    for ranks in cut((1, 2, 4, 8), (2,)):
        members, parts = engines(ranks), parts_of(x, None, ranks)
        length = {"length": len(x)} if whole_length == "told" else {}

        def twice(engine, own, parts=parts, length=length):
            found = [
                lr.distributed.reduce(parts[engine.rank], op, engine, stream=own, **length, **options) for _ in "12"
            ]
            return [bits(each) for each in found]

        assert on_each(members, twice, context) == [[expected, expected]] * ranks


@pytest.mark.parametrize("op", ["sum", "max", "argmax", "logsumexp", "softmax_stats", "mean_var"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 5 * 1024 + 4), -1), ((5 * 1024 + 4, 3), 0)])
def test_rows_in_parts_have_the_bits_of_whole_rows(op, shape, axis, stream, context, cut):
    x = values(shape, "float32")
    expected = bits(lr.reduce(x, op, axis=axis, keepdims=True, stream=stream))
    for ranks in cut((1, 2, 4, 8), (3,)):
        parts = parts_of(x, axis, ranks)

        def once(engine, own, parts=parts):
            found = lr.distributed.reduce(
                parts[engine.rank], op, engine, axis=axis, keepdims=True, length=x.shape[axis], stream=own
            )
            return bits(found)

        assert on_each(engines(ranks), once, context) == [expected] * ranks


@pytest.mark.parametrize("op", ["sum", "argmax", "logsumexp", "mean_var"])
@pytest.mark.parametrize(
    ("shape", "axis", "lengths"),
    [
        ((3, 5124), 1, (1700, 3424)),
        ((3, 5124), 1, (0, 1700, 10, 3414)),  # one part lies within a leaf, and the first rank has nothing
        ((3, 5124), 1, (2048, 0, 1024, 2052)),  # at leaves, though not as shard_lengths cuts
        ((2, 2100, 3), 1, (1000, 1040, 60)),  # a leaf of three ranks, and rows side by side
        ((3, 5124), 1, (0, 5124, 0)),  # one rank has everything
    ],
)
def test_rows_may_be_cut_anywhere(op, shape, axis, lengths, stream, context):
    # Far from zero, a variance shows which element it is about.
    x = values(shape, "float32") + np.float32(3e7 if op == "mean_var" else 0)
    expected = bits(lr.reduce(x, op, axis=axis, stream=stream))
    parts = np.split(x, np.cumsum(lengths)[:-1], axis=axis)

    def twice(engine, own):
        part = np.ascontiguousarray(parts[engine.rank])
        options = {"axis": axis, "stream": own}
        return [
            bits(lr.distributed.reduce(part, op, engine, **options, **length))
            for length in ({"length": shape[axis]}, {}, {"length": shape[axis]})
        ]

    ranks = len(lengths)
    assert on_each(engines(ranks), twice, context) == [[expected] * 3] * ranks


def test_narrow_elements_travel_and_other_arrays_do_not(stream, context):
    x = values((2, 5000), ml_dtypes.bfloat16)
    expected = bits(lr.max(x, axis=1, stream=stream))

    def once(engine, own):
        part = np.ascontiguousarray(np.split(x, [2500], axis=1)[engine.rank])
        found = bits(lr.distributed.max(part, engine, axis=1, stream=own))
        with pytest.raises(lr.UnsupportedError, match="dot of two arrays takes a cut at leaves"):
            lr.distributed.dot(part, engine, axis=1, second=part, stream=own)
        with pytest.raises(
            lr.CutError, match="the parts have 2500 . 2500 elements of the axis, 5000 together; it has 5"
        ):
            lr.distributed.max(part, engine, axis=1, length=5001, stream=own)
        return found

    assert on_each(engines(2), once, context) == [expected] * 2


def test_a_mask_a_second_array_and_a_root(stream, context):
    x, y = values(4100, "float32"), values(4100, "float32")[::-1].copy()
    mask = x > 0
    cases = [("sum", {"where": mask}), ("dot", {"second": y})]
    for op, beside in cases:
        ((name, other),) = beside.items()
        expected = bits(lr.reduce(x, op, stream=stream, **beside))
        cuts = list(itertools.pairwise([0, *itertools.accumulate(lr.shard_lengths(4100, "f4", 2))]))

        def once(engine, own, op=op, name=name, other=other, cuts=cuts):
            mine = slice(*cuts[engine.rank])
            found = lr.distributed.reduce(x[mine], op, engine, length=4100, root=1, stream=own, **{name: other[mine]})
            return None if found is None else bits(found)

        assert on_each(engines(2), once, context) == [None, expected]


def test_nothing_has_the_result_of_nothing_and_a_rank_may_have_nothing(stream, context):
    def once(engine, own):
        few = np.ones(10 if engine.rank == 0 else 0, "f4")
        return [
            float(lr.distributed.sum(np.ones(0, "f4"), engine, stream=own)),
            float(lr.distributed.sum(few, engine, stream=own)),
            float(lr.distributed.sum(few, engine, length=10, stream=own)),
        ]

    assert on_each(engines(2), once, context) == [[0.0, 10.0, 10.0]] * 2


@pytest.mark.parametrize(
    ("changed", "words", "length"),
    [
        ({"op": "std"}, "the ranks disagree about the operator", None),
        ({"op": "std"}, "the ranks disagree about the operator", 8192),
        ({"dtype": "int32"}, "the ranks disagree about the type: on rank 0 it is float32, on rank 1 'int32'", None),
        ({"dtype": "int32"}, "the ranks disagree about the type: on rank 0 it is float32, on rank 1 'int32'", 8192),
        ({"chunk": 2048}, "the ranks disagree about the chunk", None),
        ({"ddof": 2}, "the ranks disagree about the options", 8192),
        ({"root": 0}, "the ranks disagree about the root", None),
    ],
)
def test_ranks_that_disagree_all_hear_it(changed, words, length, context):
    def once(engine, own):
        wanted = {"op": "var", "dtype": "float32", "chunk": 1024, "ddof": 0, "root": None}
        wanted |= changed if engine.rank == 1 else {}
        part = np.ones(4096, wanted.pop("dtype"))
        return lr.distributed.reduce(part, wanted.pop("op"), engine, length=length, stream=own, **wanted)

    found = on_each(engines(2), once, context)
    assert [type(each) for each in found] == [lr.GroupError] * 2
    assert all(words in str(each) for each in found), found


@pytest.mark.parametrize("length", [None, 8192])
def test_a_part_that_does_not_fit_is_an_error_everywhere(length, context):
    def once(engine, own):
        found = []
        for mine in ((4096, 4096), (4096, 4000) if length else (4000, 4096), (4096, 4096)):
            try:
                part = np.ones(mine[engine.rank], "f4")
                found.append(float(lr.distributed.sum(part, engine, length=length, stream=own)))
            except lr.ReduceError as error:
                found.append(error)
        return found

    first, second = on_each(engines(2), once, context)
    assert [first[0], first[2], second[0], second[2]] == [8192.0] * 4
    if length:
        assert isinstance(second[1], lr.CutError)
        assert "rank 1 could not take part" in str(first[1])
        assert "rank 1 has 4000 elements, and by the cut of 8192 over 2 ranks 4096: from number 4096" in str(second[1])
    else:
        assert isinstance(first[1], lr.CutError)
        assert str(first[1]) == str(second[1])


def test_a_rank_may_pass_what_it_has_in_place_of_a_part(context):
    gone = FileNotFoundError("the part is gone")

    def once(engine, own):
        return lr.distributed.sum(np.ones(4096, "f4") if engine.rank == 0 else gone, engine, stream=own)

    first, second = on_each(engines(2), once, context)
    assert second is gone
    assert "rank 1 cannot take part: FileNotFoundError: the part is gone" in str(first)


def test_what_fails_on_one_rank_is_told_to_all(context):
    def once(engine, own):
        part = np.ones(4096, "f4") if engine.rank == 0 else "no array"
        return lr.distributed.sum(part, engine, stream=own)

    first, second = on_each(engines(2), once, context)
    assert isinstance(second, TypeError)
    assert "rank 1 cannot take part: TypeError: str is no array" in str(first)


@pytest.mark.parametrize("fault", ["no array", "no memory to bind the plan"])
def test_a_rank_that_fails_before_it_gathers_lets_no_other_wait(fault, context, monkeypatch):
    """A length that was used before leaves nothing to compare: the others gather partials at once."""

    def bound(group, share_bytes, stream, real=groups.BytesGroup.gather):
        if group.rank == 1 and fault != "no array":
            raise MemoryError(fault)
        return real(group, share_bytes, stream)

    def once(engine, own):
        part, found = np.ones(4096, "f4"), []
        for each in (part, "no array" if engine.rank == 1 and fault == "no array" else part):
            try:
                found.append(float(lr.distributed.sum(each, engine, length=8192, stream=own)))
            except (lr.GroupError, MemoryError, TypeError) as error:
                found.append(str(error))
        return found

    monkeypatch.setattr(groups.BytesGroup, "gather", bound)
    first, second = on_each(engines(2), once, context)
    assert first[1].startswith("rank 1 could not take part in the reduction"), first
    assert fault in second[1]
    assert [first[0], second[0]] == ([8192.0] * 2 if fault == "no array" else [first[1], second[1]])


@pytest.mark.parametrize(("op", "axis", "lengths"), [("sum", None, (4096, 4096)), ("mean_var", 1, (2000, 3000))])
def test_a_rank_without_a_part_gathers_what_the_others_do(op, axis, lengths, machine, context):
    """As often, and shares of the same sizes: those of first elements and of shared chunks too."""
    if machine == "cuda":
        pytest.skip("the fold of a refused share ends the context, which other tests use")

    def once(engine, own):
        part = values((lengths[engine.rank],) if axis is None else (3, lengths[engine.rank]), "f4")
        for each in (part, part if engine.rank == 0 else "no array"):
            del engine.gathered[:]
            try:
                found = bits(lr.distributed.reduce(each, op, engine, axis=axis, length=sum(lengths), stream=own))
            except (lr.ReduceError, TypeError) as error:
                found = error
        return engine.gathered, found

    (first, heard), (second, raised) = on_each(communicators(2, context), once, context)
    assert first == second
    assert len(first) == (1 if axis is None else 3)
    assert "the kernel traps" in str(heard)
    assert isinstance(raised, TypeError)


@pytest.mark.parametrize("length", [None, 8192])
def test_one_rank_may_work_in_several_contexts(length, device, context):
    """The others repeat a plan that all have agreed about, while it makes its kernels in another context."""

    def once(engine, own):
        part = np.ones(4096, "f4")
        found = [float(lr.distributed.sum(part, engine, length=length, stream=own)) for _ in range(2)]
        for _ in range(2):
            if engine.rank == 0:
                found.append(float(lr.distributed.sum(part, engine, length=length, stream=own)))
                continue
            with lr.Context.create(device) as other, other.pushed(), lr.Stream.create(other) as stream:
                found.append(float(lr.distributed.sum(part, engine, length=length, stream=stream)))
        found.append(float(lr.distributed.sum(part, engine, length=length, stream=own)))
        lr.distributed.forget(engine)
        return found

    assert on_each(engines(2), once, context) == [[8192.0] * 5] * 2


@pytest.mark.parametrize("length", [None, 8192])
@pytest.mark.parametrize(("shape", "axis"), [((), 0), ((), -1), ((4096, 2), 2), ((4096, 2), -3)])
def test_an_axis_that_one_rank_does_not_have_is_an_error_everywhere(shape, axis, length, context):
    def once(engine, own):
        part, at = (np.ones((4096, 2), "f4"), 0) if engine.rank == 0 else (np.ones(shape, "f4"), axis)
        return lr.distributed.sum(part, engine, axis=at, length=length, stream=own)

    first, second = on_each(engines(2), once, context)
    assert isinstance(first, lr.GroupError), first
    assert str(second) == f"axis {axis} does not exist in an array of {len(shape)} axes"


def test_what_one_rank_alone_prepared_drops_no_plan_of_it(context, monkeypatch):
    """Ranks drop the same plans: one that makes a plan again would wait for others that still have it."""
    monkeypatch.setattr(calls, "_MOST_PLANS", 3)

    def once(engine, own):
        part, found = np.ones(4096, "f4"), []

        def called(op):
            return float(lr.distributed.reduce(part, op, engine, length=8192, stream=own))

        found.append(called("sum"))
        with pytest.raises(lr.GroupError if engine.rank == 0 else TypeError):
            lr.distributed.max(part if engine.rank == 0 else "no array", engine, stream=own)
        return found + [called(op) for op in ("max", "min", "sum")]

    assert on_each(engines(2), once, context) == [[8192.0, 1.0, 1.0, 8192.0]] * 2


@pytest.mark.parametrize(
    ("leaves", "told"),
    [(9, 64), (1017, 4096)],
    ids=["a share as long as a letter", "a share as long as what ranks compare"],
)
def test_partials_are_not_taken_for_what_ranks_tell(leaves, told, context):
    """One rank repeats a call with a length, while the other asks for something else, or tells its own."""

    def once(engine, own):
        length = leaves * 1024
        part = np.ones(lr.shard_lengths(length, "f4", 2, chunk=1024)[engine.rank], "f4")
        options = {"length": length, "chunk": 1024, "stream": own}
        assert float(lr.distributed.sum(part, engine, **options)) == length
        (made,) = groups.group_of(engine).plans.values()
        assert made.share_bytes == told
        if engine.rank == 1:
            options |= {"length": None} if told == 64 else {"nan": "ignore"}
        try:
            return lr.distributed.sum(part, engine, **options)
        finally:
            lr.distributed.forget(engine)

    first, second = on_each(engines(2), once, context)
    assert "rank 1 reduces something else than rank 0" in str(first)
    assert isinstance(second, lr.GroupError)
    assert "another reduction than this rank" in str(second)


def test_ranks_that_call_something_else_behind_equal_plans_hear_it(context):
    def once(engine, own):
        part = np.ones(4096, "f4")
        for op in ("sum", "prod"):
            lr.distributed.reduce(part, op, engine, length=8192, stream=own)
        return lr.distributed.reduce(part, ("sum", "prod")[engine.rank], engine, length=8192, stream=own)

    found = on_each(engines(2), once, context)
    assert all("reduces something else than" in str(each) for each in found), found


def test_a_plan_is_bound_once_and_called_again_and_again(stream, context):
    x = values(4 * 1024 + 3, "float32")
    expected = lr.reduce(x, stream=stream).numpy().tobytes()
    parts = parts_of(x, None, 2)

    def once(engine, own):
        made = lr.distributed.plan("sum", engine, length=len(x), dtype="float32", context=context)
        launch = made.bind(own)
        there = lr.DeviceArray.from_numpy(parts[engine.rank], own)
        result = lr.DeviceArray.empty((), "f4", own)
        launch.check(there.pointer, result.pointer)
        launch(there.pointer, result.pointer)
        launch(there.pointer, result.pointer)
        assert (made.share_bytes, launch.capturable) == (48, False)
        return result.numpy().tobytes()

    assert on_each(engines(2), once, context) == [expected] * 2


def test_where_a_result_goes_is_looked_at_also_of_a_part_that_is_known(stream, context):
    (engine,) = engines(1)
    made = lr.distributed.plan("sum", engine, length=5000, dtype="float32", context=context)
    launch = made.bind(stream)
    there, out = lr.DeviceArray.from_numpy(np.ones(5000, "f4"), stream), lr.DeviceArray.empty(2, "f4", stream)
    launch.check(there.pointer, out.pointer)
    with pytest.raises(ValueError, match="align"):
        launch.check(there.pointer, out.pointer + 2)


def test_the_library_of_every_rank_has_one_version(context, monkeypatch):
    real = asked.describe
    monkeypatch.setattr(
        asked,
        "describe",
        lambda op, group, **options: real(op, group, **options | {"versions": (f"0.{group.rank}", 2)}),
    )
    found = on_each(engines(2), lambda engine, own: lr.distributed.sum(np.ones(9, "f4"), engine, stream=own), context)
    assert all("disagree about the library version: on rank 0 it is 0.0" in str(each) for each in found), found


@pytest.mark.parametrize("op", ["sum", "mean_var"])
def test_device_memory_is_gathered_in_the_order_of_the_stream(op, stream, context):
    x = values(4 * 1024 + 9, "float32")
    expected, parts = bits(lr.reduce(x, op, stream=stream)), parts_of(x, None, 2)

    def once(engine, own):
        found = [
            lr.distributed.reduce(parts[engine.rank], op, engine, stream=own, **length)
            for length in ({}, {"length": len(x)})
        ]
        assert lr.distributed.plan(op, engine, length=len(x), dtype="f4", context=context).bind(own).capturable
        return [bits(each) for each in found]

    assert on_each(communicators(2, context), once, context) == [[expected] * 2] * 2


def test_a_call_in_a_capture_is_refused_and_the_capture_goes_on(stream, context):
    """It would allocate, which spoils the capture; a plan is bound before."""
    (engine,) = communicators(1, context)
    x, out = lr.DeviceArray.from_numpy(np.ones(5000, "f4"), stream), lr.DeviceArray.empty((), "f4", stream)
    lr.sum(x, out=out, stream=stream)
    assert float(lr.distributed.sum(x, engine, length=5000, stream=stream)) == 5000
    with lr.Graph.capture(stream) as graph:
        for length in (5000, None):
            with pytest.raises(ValueError, match="a call over ranks cannot be captured"):
                lr.distributed.sum(x, engine, length=length, stream=stream)
        lr.sum(x, out=out, stream=stream)
    with graph, graph.instantiate() as executable:
        out._buffer.fill(0, stream=stream)
        executable.launch(stream)
        assert float(out) == 5000


@pytest.mark.parametrize("length", [None, 8192])
def test_a_capture_on_one_rank_is_heard_by_all_where_the_host_gathers(length, context):
    def once(engine, own):
        part, found = np.ones(4096, "f4"), []
        there = lr.DeviceArray.from_numpy(part, own)
        assert float(lr.distributed.sum(there, engine, length=length)) == 8192
        with lr.Graph.capture(own) if engine.rank == 1 else contextlib.nullcontext():
            try:
                lr.distributed.sum(there, engine, length=length)
            except (ValueError, lr.GroupError) as error:
                found.append(error)
        return *found, float(lr.distributed.sum(there, engine, length=length))

    (first, after), (second, after_too) = on_each(engines(2), once, context)
    assert "rank 1 c" in str(first), first
    assert "a call over ranks cannot be captured" in str(second)
    assert after == after_too == 8192


def test_the_fold_of_a_share_that_is_refused_is_an_error_of_the_driver(machine, context):
    if machine == "cuda":
        pytest.skip("it ends the context, which other tests use")

    def once(engine, own):
        part = np.ones(4096, "f4")
        lr.distributed.sum(part, engine, length=8192, stream=own)
        return float(lr.distributed.sum(part[: 4096 - engine.rank], engine, length=8192, stream=own))

    first, second = on_each(communicators(2, context), once, context)
    assert isinstance(second, lr.CutError)
    assert "the kernel traps" in str(first)


def test_what_is_no_group_is_refused():
    with pytest.raises(TypeError, match="a group is torch's, nccl4py's, mpi4py's, or an object with rank"):
        lr.distributed.sum(np.ones(3, "f4"), object.__new__(type("Some", (), {})))


def test_equal_calls_are_repeated_without_looking_for_the_plan(context, monkeypatch):
    stream = lr.Stream.legacy(context)
    working = [1]
    monkeypatch.setitem(sys.modules, "torch", fake_torch.module(lambda ordinal: working[0]))
    libraries._known.clear()  # of a library that another test stands in for
    x, y = values(5 * 1024 + 7, "float32"), values(5 * 1024 + 7, "float32")[::-1].copy()
    there = [lr.DeviceArray.from_numpy(each, stream) for each in (x, y)]
    (engine,) = engines(1)
    expected = [lr.tree.reduce(each).tobytes() for each in (x, y)]

    def sums(**options):
        parts = [fake_torch.Tensor(each) for each in there]
        return [lr.distributed.sum(part, engine, **options).numpy().tobytes() for part in parts]

    assert sums(length=len(x)) == sums() == expected
    plans = []
    with monkeypatch.context() as patch:
        patch.setattr(calls, "_plan_of", lambda *given: plans.append(given) or 1 / 0)
        assert sums(length=len(x)) == sums() == expected
        assert not plans
        for changed in ({"length": len(x), "keepdims": True}, {"chunk": 2048}, {"length": len(x), "root": 0}):
            with pytest.raises(ZeroDivisionError):
                sums(**changed)
        working[0] = 2  # another stream of the library
        with pytest.raises(ZeroDivisionError):
            sums(length=len(x))
    working[0] = 1
    for number in range(70):  # so many others that the group drops the plan
        lr.distributed.sum(np.ones(number, "f4"), engine, length=number, stream=stream)
    with monkeypatch.context() as patch:
        patch.setattr(calls, "_plan_of", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sums(length=len(x))

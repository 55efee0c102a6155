"""Kernels for aligned arrays, and their twins for arrays at any address: which is launched, and when it is loaded."""

import numpy as np
import pytest
from placed import POISON, assert_same, placed, reduced, values

import lowlevel_reduce as lr
from lowlevel_reduce.driver import Graph
from lowlevel_reduce.plans import mapping

SHAPES = [((5001,), None), ((70_000,), None), ((9, 1024), 1), ((9, 3000), 1)]


@pytest.fixture
def loaded(monkeypatch):
    """The entries of the kernels that are asked for, in their order."""
    entries = []

    def load(source, architecture):
        entries.append(source.entry)
        return real(source, architecture)

    real = mapping.load_kernel
    monkeypatch.setattr(mapping, "load_kernel", load)
    return entries


def of(plan, pointer, stream, second=None):
    """Return the bytes of what a launch of the plan makes of the array at `pointer`."""
    out = lr.DeviceArray.from_numpy(np.full(plan.result_shape, POISON, plan.result_dtype), stream)
    plan.bind(stream)(pointer, out.pointer, second)
    return out.numpy().tobytes()


@pytest.mark.loads_twins
def test_a_plan_loads_both_when_it_is_made(loaded, stream):
    with lr.plan("sum", shape=(9, 1024), dtype="float32", axis=1, context=stream.context):
        assert [entry.rpartition("_float32_")[2] for entry in loaded] == ["at_once", "rows_anywhere"]


@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_a_launch_takes_any_address_and_loads_the_twin_once(loaded, stream, shape, axis):
    x = values("float32", shape)
    wanted = lr.tree.reduce(x, axis=axis).tobytes()
    with lr.plan("sum", shape=shape, dtype="float32", axis=axis, context=stream.context) as plan:
        assert len(loaded) == 1
        for offset, kernels in ((0, 1), (4, 2), (16, 2), (1, 3)):
            with placed(x, stream, offset=offset) as pointer:
                assert of(plan, pointer, stream) == wanted
            assert len(loaded) == kernels, offset


LEAF = 512
"""Elements of float64."""

WHOLE = [
    (1, {}, ("block", 1, 1)),
    (7, {}, ("block", 8, 1)),
    (13, {}, ("cluster", 4, 4)),
    (32, {}, ("cluster", 4, 8)),
    (57, {}, ("cluster", 8, 8)),
    (66, {}, ("tiles", 8, 1)),
    (270, {"strategy": "tiles", "block_threads": 256}, ("tiles", 8, 1)),
    (33 * 16, {"strategy": "tiles", "block_threads": 512}, ("tiles", 16, 1)),
]
"""Whole arrays by leaves: blocks and clusters of several sizes, tiles whose partials a warp or a block folds."""


@pytest.mark.parametrize(("leaves", "options", "chosen"), WHOLE, ids=str)
def test_one_twin_takes_the_launches_of_all_whole_arrays(loaded, stream, leaves, options, chosen):
    x = values("float64", (leaves - 1) * LEAF + 5)
    signs = np.random.default_rng(2).choice([-1.0, 1.0], leaves)  # of leaves, whose sums then cancel: the order shows
    x = np.abs(x) * np.repeat(signs, LEAF)[: x.size]
    with lr.plan("sum", shape=x.shape, dtype=x.dtype, context=stream.context, **options) as plan:
        assert (plan.strategy.name, plan.strategy.warps, plan.strategy.cluster) == chosen
    assert_same(
        reduced(x, stream=stream, offset=8, repeat=2, **options), lr.tree.reduce(x), "twice: slots are left empty"
    )
    assert loaded[-1].endswith("_float64_whole_anywhere")


@pytest.mark.parametrize("dtype", ["float64", "int8"])
@pytest.mark.parametrize("more", [0, 5])
def test_the_twin_of_whole_arrays_has_no_other_code_for_aligned_ones(monkeypatch, stream, dtype, more):
    """No launch of one array gives it any, so that it joins their leaves too: by a shift of 0."""
    real = mapping.load_kernel
    monkeypatch.setattr(mapping, "load_kernel", lambda source, architecture: real(source.twin or source, architecture))
    x = values(dtype, 4 * 4096 // np.dtype(dtype).itemsize + more)
    assert_same(reduced(x, stream=stream, offset=0), lr.tree.reduce(x))


@pytest.mark.parametrize("leaves", [13, 66, 270])
def test_the_twin_of_whole_arrays_reads_a_length(stream, leaves):
    x = values("float64", leaves * LEAF)
    lengths = [x.size, x.size - LEAF * 9 - 1, LEAF + 1, 0]
    found = reduced(x, stream=stream, offset=8, lengths=lengths)
    for length, value in zip(lengths, found, strict=True):
        assert_same(value, lr.tree.reduce(x[:length]), str(length))


def test_a_mask_that_is_not_aligned_takes_the_twin(loaded, stream):
    x, where = values("float32", 5001), values("bool", 5001)
    wanted = lr.tree.reduce(x, where=where).tobytes()
    with (
        lr.plan("sum", shape=5001, dtype="float32", where=True, context=stream.context) as plan,
        placed(x, stream) as pointer,
    ):
        for offset, kernels in ((0, 1), (4, 1), (1, 2)):
            with placed(where, stream, offset=offset) as second:
                assert of(plan, pointer, stream, second) == wanted
            assert len(loaded) == kernels, offset


@pytest.mark.parametrize("strategy", ["rows", "short_rows"])
@pytest.mark.parametrize("shape", [(5, 300), (5, 296)])
def test_rows_that_vectors_do_not_fit_have_one_kernel_for_all(loaded, stream, shape, strategy):
    """As have aligned ones of a length that the device knows."""
    x = values("float16", shape)
    with lr.plan("sum", shape=shape, dtype="float16", axis=1, strategy=strategy, context=stream.context) as plan:
        assert plan.problem.aligned == (shape[1] % 8 == 0)
        length = lr.DeviceArray.from_numpy(np.asarray([shape[1] - 3], np.uint64), stream)
        out = lr.DeviceArray.from_numpy(np.zeros(shape[0], np.float16), stream)
        with placed(x, stream) as pointer:
            plan.bind(stream, length=length.pointer)(pointer, out.pointer)
            wanted = lr.tree.reduce(x[:, : shape[1] - 3], axis=1)
            assert out.numpy().tobytes() == wanted.tobytes()
    assert {entry.endswith("_anywhere") for entry in loaded[-1:]} == {True}


@pytest.mark.parametrize("many", [20_000, 200_000])
def test_a_kernel_for_aligned_arrays_refuses_others(stream, many):
    x = values("float32", many)
    out = lr.DeviceArray.from_numpy(np.zeros((), np.float32), stream)
    with (
        lr.plan("sum", shape=many, dtype="float32", context=stream.context) as plan,
        placed(x, stream, offset=4) as pointer,
    ):
        launch = plan.bind(stream)
        (aligned,), (anywhere,) = launch.kernels_for(pointer - 4), launch.kernels_for(pointer)
        assert (aligned,) == launch.kernels
        with pytest.raises(ValueError, match=rf"multiples of 16 bytes, not {pointer:#x}"):
            aligned(pointer, out.pointer, 0)
        with Graph.create(stream.context) as graph:
            with pytest.raises(ValueError, match="kernels_for"):
                graph.add_kernel(aligned, pointer, out.pointer, 0)
            assert graph.node_count == 0
            graph.add_kernel(anywhere, pointer, out.pointer, 0)
            with graph.instantiate() as executable:
                executable.launch(stream)
                assert out.numpy().tobytes() == lr.tree.reduce(x).tobytes()


@pytest.mark.parametrize("address", [1.5, "x", None])
def test_an_address_that_is_no_integer_is_refused(stream, address):
    with lr.plan("dot", shape=100, dtype="float32", context=stream.context) as plan:
        launch = plan.bind(stream)
        for refused in (lambda: launch.kernels_for(address), lambda: launch(address, 256, 256)):
            with pytest.raises(TypeError, match="device address(, an| is an) integer"):
                refused()


def test_a_one_shot_call_loads_the_twin_when_it_is_needed(loaded, stream):
    x = lr.DeviceArray.from_numpy(values("float32", 7 * 1024), stream)
    lr.sum(x, stream=stream)
    assert not [entry for entry in loaded if entry.endswith("_anywhere")]


@pytest.mark.loads_twins
@pytest.mark.parametrize(("shape", "axis"), SHAPES[:3], ids=str)
def test_a_plan_for_aligned_arrays_has_one_kernel_and_refuses_others(loaded, stream, shape, axis):
    x = values("float32", shape)
    options = {"shape": shape, "dtype": "float32", "axis": axis, "context": stream.context}
    with lr.plan("sum", **options, alignment=16) as plan:
        launch = plan.bind(stream)
        assert (len(loaded), plan.alignment) == (1, 16)
        assert plan.describe().splitlines()[-1].startswith("for arrays that begin at multiples of 16 bytes alone")
        out = lr.DeviceArray.from_numpy(np.full(plan.result_shape, POISON, "float32"), stream)
        with placed(x, stream) as pointer:
            launch.check(pointer, out.pointer)
            launch(pointer, out.pointer)
            assert out.numpy().tobytes() == lr.tree.reduce(x, axis=axis).tobytes()
        with placed(x, stream, offset=4) as pointer:
            for refused in (launch.check, launch):
                with pytest.raises(ValueError, match=r"made with alignment=16: an array begins at a multiple of 16"):
                    refused(pointer, out.pointer)
        assert len(loaded) == 1


def test_a_mask_of_a_plan_for_aligned_arrays_is_aligned_too(loaded, stream):
    x, where = values("float32", 5001), values("bool", 5001)
    with (
        lr.plan("sum", shape=5001, dtype="float32", where=True, alignment=16, context=stream.context) as plan,
        placed(x, stream) as pointer,
        placed(where, stream, offset=1) as second,
    ):
        launch = plan.bind(stream)
        out = lr.DeviceArray.from_numpy(np.zeros((), np.float32), stream)
        with pytest.raises(ValueError, match="and the second at one of 4"):
            launch.check(pointer, out.pointer, second)


def test_where_one_kernel_takes_all_addresses_nothing_is_assumed(stream):
    x = values("float16", (5, 300))
    with lr.plan("sum", shape=x.shape, dtype="float16", axis=1, alignment=16, context=stream.context) as plan:
        assert plan.alignment == 1
        with placed(x, stream, offset=2) as pointer:
            assert of(plan, pointer, stream) == lr.tree.reduce(x, axis=1).tobytes()


def test_a_plan_for_aligned_arrays_takes_no_length_for_rows(stream):
    with lr.plan("sum", shape=(9, 1024), dtype="float32", axis=1, alignment=16, context=stream.context) as plan:
        length = lr.DeviceArray.from_numpy(np.asarray([1000], np.uint64), stream)
        with pytest.raises(ValueError, match="make the plan without alignment"):
            plan.bind(stream, length=length.pointer)


@pytest.mark.parametrize(
    ("alignment", "error"), [(8, ValueError), (32, ValueError), ("16", TypeError), (True, TypeError)]
)
def test_other_alignments_are_refused(alignment, error, stream):
    with pytest.raises(error, match="alignment is None"):
        lr.plan("sum", shape=9, dtype="float32", alignment=alignment, context=stream.context)

"""Segments by offsets on the device: each has the bits that it has alone, whatever lies around it."""

import numpy as np
import pytest
from placed import assert_near, assert_same, values

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.operators import ElementMap, resolve
from lowlevel_reduce.plans import segments

LEAF = 1024
"""Elements of a leaf of float32; a segment of more than sixteen leaves is cut into tiles."""


def offsets_of(lengths, dtype="int64"):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(dtype)


def identity_of(op, dtype):
    """Return what a segment of no elements has, where NumPy has nothing."""
    reduction = resolve(op)
    types = reduction.types(element_type(dtype))
    empty = np.zeros(0, element_type(dtype).dtype)
    if reduction.empty is not None:
        return lr.tree.reduce(empty, op)
    if op == "argmax":
        return np.int64(-1)
    return lr.tree.reduce(empty, op, initial={"min": np.inf, "max": -np.inf}[op]).astype(types.result_dtype)


def expected(x, offsets, op="sum", **options):
    """Return the tree of each segment: one array a result."""
    found = {}  # equal runs of many tiny segments cost the tree once
    rows = []
    for first, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        part = x[first:end]
        key = part.tobytes() if part.size <= 8 else None
        if key is None or key not in found:
            result = identity_of(op, x.dtype) if part.size == 0 else lr.tree.reduce(part, op, **options)
            row = result if isinstance(result, tuple) else (result,)
            if key is None:
                rows.append(row)
                continue
            found[key] = row
        rows.append(found[key])
    return tuple(
        np.array(column, dtype=np.asarray(rows[0][k]).dtype) for k, column in enumerate(zip(*rows, strict=True))
    )


def check(stream, x, offsets, op="sum", **options):
    if x.dtype == np.float32 and op == "sum":  # rounding a float64 sum would hide the order of the additions
        options = {"accumulate": "float32", **options}
    reduction = resolve(op)
    types = reduction.types(element_type(x.dtype), options.get("accumulate"))
    result = lr.segmented_reduce(x, offsets, op, stream=stream, **options)
    actual = tuple(each.numpy() for each in result) if isinstance(result, tuple) else (result.numpy(),)
    longest = int(np.diff(offsets).max(initial=1))
    assert_near(actual, expected(x, offsets, op, **options), reduction, longest, types, f"{op} of {x.dtype}")
    return actual


SMALL = [0, 1, 2, 3, 0, 0, 4, 5, 8, 31, 32, 33, 100, 0, 127, 128, 129, 255, 256, 257, 511, 512, 513, 0]
LONG = [1000, 1023, 1024, 1025, 4097, 0, 16 * LEAF, 16 * LEAF + 1, 3, 17 * LEAF, 0]


@pytest.mark.parametrize("offsets_dtype", ["int32", "int64"])
def test_lengths_of_every_kind(stream, cut, offsets_dtype):
    for lengths in (SMALL, LONG, [*LONG, *SMALL, *LONG], [5], [0], [40_000], [0] * 70):
        check(stream, values("float32", sum(lengths)), offsets_of(lengths, offsets_dtype))


@pytest.mark.simulated_if(lambda length: length in (0, 3, 7, 12, 16, 100, 257, 1024, 1025))
@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 7, 12, 16, 17, 100, 128, 129, 256, 257, 1024, 1025])
def test_many_of_one_length(stream, cut, length):
    count = cut(3000, 70)
    check(stream, values("float32", count * length), offsets_of([length] * count))


@pytest.mark.parametrize("lengths", [[3] * 70, SMALL, [20_000, *SMALL]], ids=["tiny", "short", "long"])
def test_nothing_is_written_past_the_last_segment(stream, lengths):
    """Into memory that ends there; a cell of results that the library lends has room behind them."""
    x, offsets = values("float32", sum(lengths)), offsets_of(lengths)
    behind = np.full(64, 7, np.float32)
    room = lr.DeviceArray.from_numpy(np.concatenate([np.zeros(len(lengths), np.float32), behind]), stream)
    lr.segmented_reduce(x, offsets, stream=stream, out=room[: len(lengths)])
    assert np.array_equal(room.numpy()[: len(lengths)], lr.segmented_reduce(x, offsets, stream=stream).numpy())
    assert np.array_equal(room.numpy()[len(lengths) :], behind)


EDGES = {  # of float32, float16 and float64: what one, two, three and four vectors hold, one step, and two
    "float32": [4, 8, 12, 16, 128, 256],
    "float16": [8, 32, 256, 512],
    "float64": [2, 4, 6, 8, 64, 128],
}


@pytest.mark.parametrize("dtype", EDGES)
def test_one_element_more_than_each_way_to_fold_takes(stream, dtype):
    """Of each warp's thirty-two segments the longest decides how they are folded; others have one element less."""
    lengths = [edge + more - i % 2 for edge in EDGES[dtype] for more in (0, 1) for i in range(32)]
    check(stream, values(dtype, sum(lengths)), offsets_of(lengths))


def test_very_many_tiny_ones(stream, cut):
    count = cut(2_000_000, 4000)
    lengths = np.random.default_rng(0).integers(0, 4, count)
    x = np.random.default_rng(1).integers(0, 3, int(lengths.sum())).astype(np.float32)
    check(stream, x, offsets_of(lengths))


@pytest.mark.parametrize("op", ["sum", "prod", "argmax", "mean_var"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_about_one_step_at_every_place_of_a_block(stream, op, dtype):
    """A warp's lanes have what the last lane lacks, but not for all lengths."""
    lengths = np.random.default_rng(2).integers(100, 132, 128)
    lengths[40:60] = np.arange(116, 136)
    lengths[70:74] = [0, 17, 0, 256]
    check(stream, values(dtype, int(lengths.sum())), offsets_of(lengths), op)


def test_a_few_huge_ones(stream, cut):
    lengths = cut([10_000_000, 1, 5_000_001, 0, 3_000_000], [70_001, 1, 40_000, 0, 20_000])
    check(stream, values("float32", sum(lengths)), offsets_of(lengths))


def test_mixtures(stream, cut):
    rng = np.random.default_rng(0)
    for _ in range(cut(20, 2)):
        lengths = (10.0 ** rng.uniform(-1, cut(6, 4.6), cut(200, 40))).astype(int)
        rng.shuffle(lengths)
        check(stream, values("float32", int(lengths.sum())), offsets_of(lengths))


OPERATORS = ["sum", "prod", "min", "max", "minmax", "argmax", "any", "mean", "mean_var", "norm2", "logsumexp"]


@pytest.mark.parametrize("op", OPERATORS)
def test_operators(stream, cut, op):
    lengths = [5, 100, 1, 300, 17 * LEAF + 3, 40]
    if op in ("sum", "min", "max", "argmax", "any", "mean", "mean_var"):
        lengths.insert(2, 0)
    check(stream, values("float32", sum(lengths)), offsets_of(lengths), op)


@pytest.mark.parametrize(
    ("dtype", "op"), [("uint8", "sum"), ("float16", "max"), ("float64", "sum"), ("complex64", "sum")]
)
def test_types(stream, dtype, op):
    lengths = [0 if op == "sum" else 2, 3, 15, 16, 17, 300, 40_000, 7]
    check(stream, values(dtype, sum(lengths)), offsets_of(lengths), op)


@pytest.mark.parametrize("dtype", ["uint8", "float16"])
def test_the_last_segment_ends_with_the_array(stream, dtype):
    """It begins within a block of 16 bytes, and its last leaf is one element, in the block in which the other ends."""
    lengths = [3, 2 * 4096 // np.dtype(dtype).itemsize + 1]
    check(stream, values(dtype, sum(lengths)), offsets_of(lengths))


@pytest.mark.parametrize("option", [{"accumulate": "compensated"}, {"dtype": "float64"}], ids=str)
def test_how_it_is_summed_and_what_comes_out(stream, option):
    lengths = [5, 0, 100, 20_000]
    check(stream, values("float32", sum(lengths)), offsets_of(lengths), **option)


def test_initial_values_and_the_last_of_equal_ones(stream):
    lengths = [5, 0, 100, 2_000]
    x, offsets = values("float32", sum(lengths)), offsets_of(lengths)
    found = lr.segmented_reduce(x, offsets, "max", initial=100, stream=stream).numpy()
    assert found.tolist() == [100] * 4
    last = lr.segmented_reduce(np.zeros(12, np.float32), offsets_of([5, 7]), "argmax", last=True, stream=stream)
    assert last.numpy().tolist() == [4, 6]


@pytest.mark.parametrize("op", ["sum", "mean_var", "norm2"])
def test_maps(stream, op):
    lengths = [5, 0, 100, 20_000]
    x, offsets = values("float32", sum(lengths)), offsets_of(lengths)
    check(stream, x, offsets, op, map=ElementMap("x * x", numpy=lambda x: x * x))


def test_maps_and_masks_of_two_arrays_are_refused(stream):
    x, offsets = values("float32", 8), offsets_of([5, 3])
    with pytest.raises(lr.UnsupportedError, match="takes two arrays"):
        lr.segmented_reduce(x, offsets, map="x * y", stream=stream)
    with pytest.raises(TypeError, match="segmented_reduce has no keyword 'where'"):
        lr.segmented_reduce(x, offsets, where=x > 0, stream=stream)


def test_no_segments_and_no_elements(stream):
    assert lr.segmented_reduce(np.zeros(5, np.float32), np.zeros(1, np.int64), stream=stream).shape == (0,)
    assert (
        lr.segmented_reduce(np.zeros(0, np.float32), np.zeros(4, np.int64), stream=stream).numpy().tolist() == [0] * 3
    )
    result = lr.segmented_reduce(np.zeros(0, np.float32), np.zeros(3, np.int32), "min", stream=stream)
    assert result.numpy().tolist() == [np.inf] * 2


def test_what_lies_outside_of_the_offsets_counts_for_nothing(stream):
    x = values("float32", 500)
    offsets = np.array([100, 130, 130, 400], np.int64)
    assert_same(lr.segmented_reduce(x, offsets, stream=stream).numpy(), expected(x, offsets)[0])


class Bound:
    """A segmented plan over device memory of its own, each block of memory exactly as large as it must be."""

    def __init__(self, stream, x, offsets, op="sum", *, offset=0, guards=0, **options):
        context = stream.context
        self.stream, self.x = stream, x
        self.plan = lr.segmented_plan(
            op,
            length=x.size,
            segments=offsets.size - 1,
            dtype=x.dtype,
            offsets_dtype=offsets.dtype,
            context=context,
            **options,
        )
        self.memory = lr.Buffer.allocate(max(1, x.nbytes + offset), context)
        self.source = self.memory.pointer + offset
        lr.Buffer.from_pointer(self.source, x.nbytes, context=context).copy_from(x, stream=stream)
        self.offsets = lr.Buffer.allocate(offsets.nbytes, context)
        self.offsets.copy_from(offsets, stream=stream)
        self.out = np.empty(offsets.size - 1, self.plan.result_dtype)
        self.guards = np.full(guards, 0xA5, np.uint8)  # behind the results
        self.result = lr.Buffer.allocate(self.out.nbytes + guards, context)
        if guards:
            behind = lr.Buffer.from_pointer(self.result.pointer + self.out.nbytes, guards, context=context)
            behind.copy_from(self.guards)
        self.workspace = lr.Buffer.allocate(self.plan.workspace_bytes, context)
        self.launch = self.plan.bind(stream, self.workspace)
        queue_bytes = 32 * (x.nbytes // (16 * 4096) + 1)
        self.queue = lr.Buffer.from_pointer(self.workspace.pointer + 256, queue_bytes, context=context)

    def __call__(self):
        self.launch(self.source, self.result.pointer, self.offsets.pointer)

    def results(self):
        found = np.empty(self.out.nbytes + self.guards.size, np.uint8)
        self.result.copy_to(found, stream=self.stream)
        self.stream.synchronize()
        assert found[self.out.nbytes :].tobytes() == self.guards.tobytes(), "something was written behind the results"
        self.out[:] = found[: self.out.nbytes].view(self.out.dtype)
        return self.out.copy()

    def workspace_parts(self):
        """Return the bytes of the workspace: the queue's state, its entries, and the partials."""
        found = np.empty(self.plan.workspace_bytes, np.uint8)
        self.workspace.copy_to(found, stream=self.stream)
        self.stream.synchronize()
        return np.split(found, [256, 256 + self.queue.size_bytes])

    def queue_is_empty(self):
        """Tell whether the workspace is as it was before the first launch: state, counts and flags zero."""
        state, _, partials = self.workspace_parts()
        return not state.any() and not partials.any()

    def close(self):
        for each in (self.memory, self.offsets, self.result, self.workspace):
            each.close()


@pytest.fixture
def bound(stream):
    made = []

    def make(*arguments, **options):
        made.append(Bound(stream, *arguments, **options))
        return made[-1]

    yield make
    stream.synchronize()
    for each in made:
        each.close()


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_long_ones_by_fewer_blocks_than_tiles(bound, monkeypatch, blocks):
    """The blocks claim tiles and folds; a grid of one must not wait for itself."""
    monkeypatch.setattr(segments, "_blocks_of_long", lambda *_: blocks)
    lengths = [17 * LEAF, 3, 50 * LEAF + 1, 0, 100, 16 * LEAF + 1]
    x, offsets = values("float32", sum(lengths)), offsets_of(lengths)
    case = bound(x, offsets, accumulate="float32")
    for _ in range(2):
        case()
        assert_same(case.results(), expected(x, offsets, accumulate="float32")[0])
        assert case.queue_is_empty()


@pytest.mark.parametrize("offsets_dtype", ["int32", "int64"])
def test_several_groups_a_warp(bound, monkeypatch, offsets_dtype):
    """Of groups of a warp, the last incomplete, some are of tiny segments and some have long ones."""
    monkeypatch.setattr(segments, "_groups_of_a_warp", lambda *_: 4)
    lengths = [*[3, 0, 5, 1] * 40, *SMALL, 17 * LEAF, *[100, 90] * 30, 1500, *[2] * 200]
    x, offsets = values("float32", sum(lengths)), offsets_of(lengths, offsets_dtype)
    case = bound(x, offsets, accumulate="float32")
    case()
    assert_same(case.results(), expected(x, offsets, accumulate="float32")[0])
    assert case.queue_is_empty()


def test_many_long_ones_and_one_of_many_tiles(bound, stream):
    """More than have a block each for their partials, and more partials than a warp folds; behind them is no entry."""
    lengths = [16 * LEAF + 1] * 260 + [130 * 16 * LEAF]
    x, offsets = values("float32", sum(lengths)), offsets_of(lengths)
    case = bound(x, offsets, accumulate="float32")
    case.queue.fill(1, stream=stream)
    case()
    assert_same(case.results(), expected(x, offsets, accumulate="float32")[0])
    assert case.queue_is_empty()


@pytest.mark.parametrize("offset", [4, 8, 12])
def test_any_alignment(bound, offset):
    lengths = [3, 100, 0, 18 * LEAF + 5, 1, 1030]
    x, offsets = values("float32", sum(lengths)), offsets_of(lengths)
    case = bound(x, offsets, offset=offset)
    case.launch.check(case.source, case.result.pointer, case.offsets.pointer)
    case()
    assert_same(case.results(), expected(x, offsets)[0])


def test_replays_of_a_graph_meet_a_clean_workspace(bound, stream):
    first = [17 * LEAF, 0, 20 * LEAF + 1, 5]
    x = values("float32", sum(first))
    case = bound(x, offsets_of(first))
    with lr.Graph.capture(stream) as graph:
        case()
    orders = (first, first[::-1], [0, 0, 0, sum(first)], [1, 2, 3, 4], first)
    with graph.instantiate() as executable:
        for lengths in orders:
            offsets = offsets_of(lengths)
            case.offsets.copy_from(offsets, stream=stream)
            executable.launch(stream)
            assert_same(case.results(), expected(x, offsets)[0], str(lengths))
            assert case.queue_is_empty()


def test_a_call_that_was_interrupted_between_its_kernels_leaves_nothing_to_the_next(bound, stream):
    first = [17 * LEAF, 0, 20 * LEAF + 1, 5]
    x = values("float32", sum(first))
    case = bound(x, offsets_of(first))
    kernels = case.launch.kernels
    case.launch.kernels = (kernels[0], Interrupted())
    with pytest.raises(KeyboardInterrupt):
        case()
    stream.synchronize()
    assert not case.queue_is_empty()
    case.launch.kernels = kernels
    offsets = offsets_of([1, sum(first) - 4, 2, 1])
    case.offsets.copy_from(offsets, stream=stream)
    for _ in range(2):
        case()
        assert_same(case.results(), expected(x, offsets)[0])
        assert case.queue_is_empty()


WRONG = {
    "descending": [60_000, 20_000, 40_000, 0, 50_000],
    "outside": [0, 2**62, -5, 70_000, 2**40],
    "negative": [-(2**63), -1, 3, 60_000, 2**63 - 1],
    "a little outside": [59_990, 60_010, 60_020, 60_030, 60_040],
    "overlapping": [0, 60_000, 0, 60_000, 0],
    "more than there is room for": [0, 60_000] * 6,
    "short and far behind each other": [50_000, 50_010, 100, 110, 7],
    "short and far before each other": [100, 110, 59_990, 60_000, 59_995],
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_offsets_touch_nothing_outside(bound, name, machine):
    """The simulator sees a byte too far; a GPU at least goes on, and the next launch is right."""
    x = values("float32", 60_000)
    offsets = np.array(WRONG[name], np.int64)
    case = bound(x, offsets)
    case()
    case.results()
    assert case.queue_is_empty()
    right = np.array([0, 30_000, 30_001, 60_000, *[60_000] * (offsets.size - 4)], np.int64)
    case.offsets.copy_from(right, stream=case.stream)
    case()
    assert_same(case.results(), expected(x, right)[0])


@pytest.mark.parametrize("segments", [1, 31, 33, 70])
def test_nothing_is_written_behind_the_last_segment(bound, segments):
    """Warps of which the last lacks segments, in each of the ways to fold: tiny, short, longer ones, and long ones."""
    for longest in (3, 40, 200, 1500, 17 * LEAF):
        lengths = [1] * (segments - 1) + [longest]
        x, offsets = values("float32", sum(lengths)), offsets_of(lengths)
        case = bound(x, offsets, accumulate="float32", guards=256)
        case()
        assert_same(case.results(), expected(x, offsets, accumulate="float32")[0])


class Interrupted:
    """In place of a bound kernel: an interrupt before it is launched."""

    def put(self, *values):
        raise KeyboardInterrupt


def test_what_the_queue_has_no_room_for_is_not_written(bound, stream):
    """More long segments than an array has, by offsets that do not ascend, as the first kernel alone leaves them."""
    case = bound(values("float32", 60_000), np.array([0, 60_000] * 6 + [0], np.int64))
    kernels = case.launch.kernels
    case.launch.kernels = (kernels[0], Interrupted())
    with pytest.raises(KeyboardInterrupt):
        case()
    stream.synchronize()
    state, entries, partials = case.workspace_parts()
    assert int(state[:8].view(np.uint64)[0]) >> 40 == 6
    assert entries.reshape(-1, 32).any(axis=1).tolist() == [True] * 4
    assert not partials.any()


def test_workspace_too_small_or_misaligned(bound, stream):
    case = bound(values("float32", 40_000), offsets_of([40_000]))
    short = lr.Buffer.from_pointer(case.workspace.pointer, case.plan.workspace_bytes - 1, context=stream.context)
    with pytest.raises(ValueError, match="this plan needs"):
        case.plan.bind(stream, short)


@pytest.mark.parametrize(
    ("x", "offsets", "op", "error", "message"),
    [
        (np.zeros((2, 3), np.float32), [0, 1], "sum", ValueError, "x has shape"),
        (np.zeros(3, np.float32), [[0, 1]], "sum", ValueError, "offsets has shape"),
        (np.zeros(3, np.float32), [], "sum", ValueError, "one more than there are segments"),
        (np.zeros(3, np.float32), np.array([0, 1], np.uint64), "sum", TypeError, "int32 or int64"),
        (np.zeros(3, np.float32), [0, 1], "dot", lr.UnsupportedError, "takes two arrays"),
        (np.zeros(3, np.complex64), [0, 1], "min", lr.UnsupportedError, "min of complex64"),
    ],
)
def test_refusals(stream, x, offsets, op, error, message):
    given = offsets if isinstance(offsets, np.ndarray) else np.array(offsets, np.int64)
    with pytest.raises(error, match=message):
        lr.segmented_reduce(x, given, op, stream=stream)


def test_results_in_the_place_of_an_offset_are_refused(stream):
    """Of the last one too, of which there is one more than there are segments."""
    x, offsets = values("int64", 100), offsets_of([40, 60])
    with lr.Buffer.allocate(2 * offsets.nbytes, stream.context) as memory:
        memory.copy_from(np.concatenate([offsets, offsets]), stream=stream)
        there = lr.DeviceArray(memory, offsets.dtype, offsets.shape, stream)
        for place in (0, 1, 2):
            results = lr.Buffer.from_pointer(memory.pointer + 8 * place, 16, context=stream.context, owner=memory)
            with pytest.raises(ValueError, match="overlaps the second input"):
                lr.segmented_reduce(x, there, out=lr.DeviceArray(results, x.dtype, (2,), stream), stream=stream)
        results = lr.Buffer.from_pointer(memory.pointer + 24, 16, context=stream.context, owner=memory)
        out = lr.segmented_reduce(x, there, out=lr.DeviceArray(results, x.dtype, (2,), stream), stream=stream)
        assert_same(out.numpy(), expected(x, offsets)[0])


@pytest.mark.parametrize(
    ("op", "dtype", "slot", "leaves"), [("sum", "float32", 16, 16), ("mean_var", "float64", 32, 8)]
)
@pytest.mark.parametrize("length", [0, 1, 16 * LEAF - 1, 16 * LEAF, 10**6])
def test_workspace_bytes_are_as_documented(context, op, dtype, slot, leaves, length):
    plan = lr.segmented_plan(op, length=length, segments=3, dtype=dtype, context=context)
    leaf = 4096 // np.dtype(dtype).itemsize
    most = length // (16 * leaf) + 1
    assert plan.workspace_bytes == 256 + 32 * most + slot * (length // (leaves * leaf) + 2 * most)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_misaligned_offsets_are_refused_before_a_launch(stream, dtype):
    """A kernel reads them as they are: it would end with an error of which a context does not recover."""
    x, offsets = values("float32", 100), offsets_of([40, 60], dtype)
    with lr.Buffer.allocate(offsets.nbytes + offsets.itemsize, stream.context) as memory:
        shifted = lr.Buffer.from_pointer(
            memory.pointer + offsets.itemsize // 2, offsets.nbytes, context=stream.context, owner=memory
        )
        shifted.copy_from(offsets)
        there = lr.DeviceArray(shifted, offsets.dtype, offsets.shape, stream)
        with pytest.raises(ValueError, match=f"second input at .* is not aligned to {offsets.itemsize} bytes"):
            lr.segmented_reduce(x, there, stream=stream)

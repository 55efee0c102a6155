"""The mapping from problems to launches: complete, within limits, and refused in words where it cannot be."""

import itertools
import math
import re

import pytest

from lowlevel_reduce import UnsupportedError, layout
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.operators import resolve
from lowlevel_reduce.strategy import columns as column_policy
from lowlevel_reduce.strategy import rows as row_policy
from lowlevel_reduce.strategy import whole
from lowlevel_reduce.strategy.base import Task
from lowlevel_reduce.strategy.selection import needs_many_registers, request_of, select, why
from lowlevel_reduce.strategy.stubs import OperatorText, kernel_sources, row_kernel_source, with_twins

pytestmark = pytest.mark.usefixtures("without_elements")

BLACKWELL = whole.DeviceFacts((12, 0), 170, clusters=True, cooperative=True)
HOPPER = whole.DeviceFacts((9, 0), 132, clusters=True, cooperative=True)
TURING = whole.DeviceFacts((7, 5), 40, clusters=False, cooperative=True)
AMPERE = whole.DeviceFacts((8, 0), 108, clusters=False, cooperative=True)
LEAVES = sorted({0, 1, 2, 3, 7, 8, 9, *(2**i + d for i in range(4, 30, 2) for d in (-1, 0, 1))})


POSSIBLE = [
    (facts, name)
    for facts in (HOPPER, TURING, BLACKWELL)
    for name in (None, *whole.STRATEGIES)
    if name != "cluster" or facts.clusters
]


@pytest.mark.parametrize(("facts", "name"), POSSIBLE)
def test_every_leaf_has_a_place(facts, name):
    for leaves in LEAVES:
        chosen = whole.choose(leaves, facts, strategy=name)
        assert name in {None, chosen.name}
        assert chosen.tiles * chosen.warps >= leaves
        if chosen.blocks is not None:
            assert chosen.blocks % chosen.cluster == 0
            assert chosen.blocks * chosen.tiles_per_block >= chosen.tiles
        assert chosen.tiles_per_block & (chosen.tiles_per_block - 1) == 0
        assert chosen.block_threads <= 1024


@pytest.mark.parametrize(
    ("leaves", "mapping"),
    [
        (0, ("block", 1, 1, 1)),
        (1, ("block", 1, 1, 1)),
        (2, ("block", 2, 1, 1)),
        (3, ("block", 4, 1, 1)),
        (4, ("block", 4, 1, 1)),
        (5, ("block", 8, 1, 1)),
        (8, ("block", 8, 1, 1)),
        (9, ("cluster", 4, 4, 4)),
        (16, ("cluster", 4, 4, 4)),
        (17, ("cluster", 4, 8, 8)),
        (32, ("cluster", 4, 8, 8)),
        (33, ("cluster", 8, 8, 8)),
        (64, ("cluster", 8, 8, 8)),
        (65, ("tiles", 8, 1, 10)),
        (1048, ("tiles", 8, 1, 132)),
        (1572, ("tiles", 8, 1, 198)),
        (1573, ("tiles", 16, 1, 100)),
        (97_657, ("tiles", 16, 1, 6107)),
        (1 << 20, ("tiles", 16, 1, 65_568)),
    ],
)
def test_what_was_measured_on_an_h200_is_what_is_chosen_there(leaves, mapping):
    chosen = whole.choose(leaves, HOPPER)
    assert (chosen.name, chosen.warps, chosen.cluster, chosen.blocks) == mapping


def test_the_reason_names_the_row_of_the_table():
    assert [whole.why(leaves, HOPPER).rpartition(" for ")[2] for leaves in (0, 5, 64, 65, 1573)] == [
        "arrays of at most 1 x 4 KiB", "arrays of at most 8 x 4 KiB", "arrays of at most 64 x 4 KiB",
        "arrays of at most 1572 x 4 KiB", "longer arrays"]  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "axis", "op", "name", "words"),
    [
        ((4096, 1000), 0, "sum", "columns", "side by side"),
        ((5000, 100), 1, "sum", "short_rows", "no more than one leaf"),
        ((500, 100), 1, "sum", "rows", "few enough for a warp each"),
        ((20, 20_000), 1, "sum", "batch", "too few to fill the device"),
        ((1200, 100_000), 1, "sum", "batch", "however many there are"),
        ((300, 70_000), 1, "sum", "batch", "part of the device idle"),
        ((3000, 2000), 1, "sum", "rows", "a warp for each leaf"),
        ((3000, 9000), 1, "sum", "batch", "a warp for each leaf"),
        ((3000, 3001), 1, "sum", "rows", "a warp to a leaf"),
        ((5000, 20_000), 1, "sum", "rows", "enough to fill the device: warps"),
        ((5000, 12_288), 1, "var", "rows", "the accumulator is wide: warps"),
        ((100, 30, 40), (0, 2), "sum", "batch", "few rows of few leaves"),
        ((100, 3000, 40), (0, 2), "sum", "batch", "a warp for each leaf"),
        ((70, 4096), 1, "sum", "batch", "few rows of few leaves"),
        ((1000, 4097), 1, "sum", "rows", "many rows of few leaves"),
        ((1000, 12_288), 1, "sum", "batch", "tiles of 16 warps take less"),
        ((5000, 12_288), 1, "sum", "rows", "turns of few warps take less"),
    ],
)
def test_the_reason_for_rows_goes_with_what_is_chosen(shape, axis, op, name, words):
    request = request_of(op, shape=shape, axis=axis, dtype="float32")
    assert select(request, HOPPER).strategy.name == name
    assert words in why(request, HOPPER)


def test_clusters_of_eight_are_for_large_devices():
    few = HOPPER._replace(multiprocessors=32)
    assert [whole.choose(leaves, few).name for leaves in (16, 17, 64)] == ["cluster", "tiles", "tiles"]


@pytest.mark.parametrize("facts", [HOPPER, HOPPER._replace(multiprocessors=16), TURING, AMPERE])
def test_small_tiles_are_for_arrays_that_have_few(facts):
    most = 8 * (facts.multiprocessors - 1) * 3 // 2
    few, more = whole.choose(most, facts), whole.choose(most + 1, facts)
    assert (few.warps, few.blocks) == (8, -(-most // 8) + 1)  # of which one folds
    assert (more.warps, more.blocks) == (16, most // 16 + 2)


def test_where_float64_is_slow_few_leaves_are_spread_over_a_cluster():
    for leaves, mapping in ((1, ("block", 1, 1)), (2, ("block", 2, 1)), (3, ("cluster", 1, 4)),
                            (4, ("cluster", 1, 4)), (8, ("cluster", 2, 4)), (9, ("cluster", 4, 4))):  # fmt: skip
        chosen = whole.choose(leaves, BLACKWELL)
        assert (chosen.name, chosen.warps, chosen.cluster) == mapping
    fast = whole.DeviceFacts((10, 0), 148, clusters=True, cooperative=True)
    assert [whole.choose(leaves, fast).name for leaves in (4, 8)] == ["block", "block"]
    assert [whole.choose(leaves, TURING).name for leaves in (4, 8)] == ["block", "block"]  # which has no clusters


@pytest.mark.parametrize("accumulator_bytes", [4, 8, 16])
def test_workspace_holds_the_partials_of_every_strategy(accumulator_bytes):
    for leaves, name, threads in itertools.product(LEAVES, ("tiles", "two_pass", "cooperative"), (256, 512)):
        size = whole.workspace_bytes(leaves, accumulator_bytes)
        chosen = whole.choose(leaves, HOPPER, strategy=name, cluster=1, block_threads=threads)
        assert whole.HEADER_BYTES + chosen.partials * (32 if accumulator_bytes == 16 else 16) <= size


@pytest.mark.parametrize("warps", [8, 16, 32])
def test_more_partials_than_two_runs_are_folded_by_a_block_a_run(warps):
    run = 128 * warps
    counts = [1, 2, run, 2 * run, 2 * run + 1, 3 * run, 3 * run + 1, 1000 * run]
    assert [whole.folding_blocks(count, warps) for count in counts] == [0, 1, 1, 1, 3, 3, 4, 1000]


def test_a_cluster_makes_one_partial_of_its_tiles():
    for leaves in (1000, 1001):
        for cluster in (1, 4):
            chosen = whole.choose(leaves, HOPPER, strategy="tiles", cluster=cluster)
            assert chosen.partials == -(-leaves // (chosen.warps * cluster))
    assert whole.choose(1000, HOPPER, strategy="cluster").partials == 0


def test_workspace_is_monotonic():
    sizes = [whole.workspace_bytes(leaves, 8) for leaves in range(5000)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 256 + 16


def test_old_devices_get_neither_clusters_nor_dependent_launches():
    for leaves in LEAVES:
        chosen = whole.choose(leaves, TURING)
        assert chosen.cluster == 1
        assert not chosen.programmatic


@pytest.mark.parametrize(
    ("options", "facts", "error", "message"),
    [
        ({"strategy": "magic"}, HOPPER, ValueError, "no strategy 'magic' for whole arrays; there is block, cluster"),
        ({"strategy": "tiles", "cluster": 3}, HOPPER, ValueError, "1, 2, 4, 8 or 16 blocks, not 3"),
        ({"strategy": "two_pass", "cluster": 2}, HOPPER, ValueError, "does not use clusters"),
        ({"strategy": "tiles", "block_threads": 100}, HOPPER, ValueError, "not 100"),
        ({"strategy": "tiles", "block_threads": 128}, HOPPER, ValueError, "256, 512, 1024"),
        ({"strategy": "tiles", "block_threads": 1024}, BLACKWELL, ValueError, r"\[256, 512\] threads here"),
        ({"strategy": "cooperative", "block_threads": 1024}, HOPPER, ValueError, r"\[256, 512\] threads here"),
        ({"strategy": "cluster"}, TURING, UnsupportedError, "this device has 7.5"),
        ({"strategy": "tiles", "cluster": 2}, TURING, UnsupportedError, "this device has 7.5"),
    ],
)
def test_refusals(options, facts, error, message):
    with pytest.raises(error, match=message):
        whole.choose(1000, facts, **options)


def test_refuses_what_the_device_cannot_do():
    facts = whole.DeviceFacts((7, 5), 40, clusters=False, cooperative=False)
    with pytest.raises(UnsupportedError, match="cooperative"):
        whole.choose(1000, facts, strategy="cooperative")


def test_refuses_more_blocks_than_a_grid_has():
    with pytest.raises(ValueError, match="a grid has at most"):
        whole.choose(2**36, HOPPER, strategy="tiles")


SIZES = [1, 2, 5, 31, 100, 1000, 4097, 70_000, 1 << 20]
ACCUMULATORS = {1: (4, 8), 2: (4, 8, 16), 4: (4, 8, 16), 8: (8, 16), 16: (16,)}
TYPES = [(itemsize, accumulator) for itemsize, sizes in ACCUMULATORS.items() for accumulator in sizes]


def rows_of(rows, length, itemsize, axis, strides=None):
    shape = (rows, length) if axis == 1 else (length, rows)
    return layout.problem_of(shape, itemsize, axis=axis, strides_bytes=strides)


def choose_rows(problem, facts, itemsize, accumulator_bytes, **options):
    sizes = {name: options.pop(name) for name in ("heavy", "two_arrays") if name in options}
    return row_policy.choose_rows(Task(problem, facts, itemsize, accumulator_bytes, **sizes), **options)


@pytest.mark.parametrize("facts", [HOPPER, TURING, BLACKWELL])
@pytest.mark.parametrize(("itemsize", "accumulator_bytes"), TYPES)
@pytest.mark.parametrize("axis", [0, 1])
def test_every_row_has_a_place(axis, itemsize, accumulator_bytes, facts):
    for rows, length in itertools.product(SIZES, SIZES):
        if rows * length * itemsize > layout.MAX_BYTES:
            continue
        problem = rows_of(rows, length, itemsize, axis)
        if problem.kind == "whole":
            continue
        chosen = choose_rows(problem, facts, itemsize, accumulator_bytes)
        assert 1 <= chosen.blocks <= whole.MAX_GRID
        assert chosen.block_threads <= 1024
        if chosen.partials:
            assert chosen.folders >= 1
            size = chosen.workspace_bytes(rows, accumulator_bytes)
            needed = whole.slot_bytes(accumulator_bytes) * rows * chosen.parts
            assert size >= whole.HEADER_BYTES + needed
        else:
            assert chosen.workspace_bytes(rows, accumulator_bytes) == 0


def test_rows_take_as_many_blocks_as_a_grid_has_and_no_more():
    by_blocks = {"strategy": "batch", "cluster": 1}  # a block a row
    assert choose_rows(rows_of(whole.MAX_GRID, 4, 1, 1), HOPPER, 1, 8, **by_blocks).blocks == whole.MAX_GRID
    with pytest.raises(ValueError, match=f"need {whole.MAX_GRID + 1} blocks; a grid has at most {whole.MAX_GRID}"):
        choose_rows(rows_of(whole.MAX_GRID + 1, 4, 1, 1), HOPPER, 1, 8, **by_blocks)


def test_a_forced_strategy_is_the_one_chosen():
    for rows, length in ((5, 100), (5, 3000), (1, 10**6)):
        for name in ("short_rows", "rows", "batch"):
            problem = rows_of(rows, length, 4, 1, strides=(8 * length, 8))
            if name == "short_rows" and length > 1024:
                with pytest.raises(ValueError, match="does not go with"):
                    choose_rows(problem, HOPPER, 4, 8, strategy=name)
                continue
            chosen = choose_rows(problem, HOPPER, 4, 8, strategy=name)
            assert chosen.name == name
            assert (chosen.workspace_bytes(rows, 8) > 0) == (name == "batch" and length == 10**6)


@pytest.mark.parametrize("name", ["short_rows", "rows", "batch"])
def test_rows_without_elements_take_any_strategy(name):
    for rows in (0, 1, 5, 100_000):
        chosen = choose_rows(rows_of(rows, 0, 4, 1, strides=(40, 4)), HOPPER, 4, 8, strategy=name)
        assert chosen.name == name
        assert chosen.folders == 0


@pytest.mark.parametrize(("axis", "name"), [(1, "columns"), (0, "rows"), (1, "magic")])
def test_a_strategy_that_does_not_go_with_the_rows(axis, name):
    with pytest.raises(ValueError, match="does not go with|no strategy 'magic' for rows"):
        choose_rows(rows_of(100, 100, 4, axis), HOPPER, 4, 8, strategy=name)


@pytest.mark.parametrize(
    ("rows", "length", "mapping"),
    [
        (256, 256, (4, 64)),  # a warp a row
        (8 * 132, 256, (4, 264)),
        (8 * 132 + 1, 256, (1, 265)),  # four rows a warp
        (4 * (132 * 8 - 1), 256, (1, 132 * 8 - 1)),
        (4 * (132 * 8 - 1) + 1, 256, (8, 132)),
        (40, 4, (1, 1)),
        (131, 8000, (8, 131)),  # a row takes eight warps
        (33, 4096, (8, 33)),
        (100_000, 2048, (4, 50_000)),
        (100_000, 3000, (3, 100_000)),
        (100_000, 20_000, (8, 50_000)),
    ],
)
def test_few_rows_are_spread_over_the_multiprocessors(rows, length, mapping):
    chosen = choose_rows(rows_of(rows, length, 4, 1, strides=(4 * length, 4)), HOPPER, 4, 8)
    assert (chosen.warps, chosen.blocks) == mapping


@pytest.mark.parametrize(
    ("rows", "length", "facts", "mapping"),
    [
        (16, 1 << 17, HOPPER, (16, 8, 1)),
        (32, 1 << 16, HOPPER, (16, 4, 1)),
        (8, 1 << 15, HOPPER, (8, 4, 1)),
        (64, 1 << 15, HOPPER, (16, 2, 1)),
        (64, 1 << 16, HOPPER, (16, 1, 4)),  # more tiles than multiprocessors
        (132, 1 << 15, HOPPER, (16, 2, 1)),
        (8, 1 << 18, HOPPER, (16, 1, 16)),  # more than a cluster holds
        (4, 1 << 16, HOPPER._replace(multiprocessors=40), (8, 1, 8)),  # a small context
        (16, 1 << 17, AMPERE, (16, 1, 8)),
    ],
)
def test_rows_of_a_few_tiles_are_clusters_where_multiprocessors_are_left(rows, length, facts, mapping):
    chosen = choose_rows(rows_of(rows, length, 4, 1), facts, 4, 8)
    assert (chosen.name, chosen.warps, chosen.cluster, chosen.parts) == ("batch", *mapping)


@pytest.mark.parametrize("cluster", [1, 2, 4, 8, 16])
def test_a_cluster_that_has_a_row_for_itself_leaves_no_partials(cluster):
    for length, parts in ((100, 1), (cluster * 8 * 1024, 1), (cluster * 8 * 1024 + 1, 2)):
        chosen = choose_rows(rows_of(5, length, 4, 1), HOPPER, 4, 8, strategy="batch", cluster=cluster)
        assert (chosen.warps, chosen.cluster, chosen.parts) == (8, cluster, parts)
        assert chosen.folders == (0 if parts == 1 else 5)
        assert chosen.blocks == cluster * (5 * parts + chosen.folders)
        assert (chosen.workspace_bytes(5, 8) > 0) == (parts > 1)
        many = choose_rows(rows_of(500, length, 4, 1), HOPPER, 4, 8, strategy="batch", cluster=cluster)
        assert many.parts > 1 or many.folders == 0


@pytest.mark.parametrize(
    ("rows", "length", "folders"),
    [
        (396, 2**18, 396),  # a block for each row
        (397, 2**18, 7),  # sixteen partials: a warp folds four rows, and a block has sixteen warps
        (4096, 2**18, 64),
        (4096, 2**19, 64),
        (4096, 2**19 + 4, 128),  # a second register for each lane
        (4096, 2**20 + 4, 256),
        (4096, 2**21, 256),
        (4096, 2**21 + 4, 4096),  # too many partials for a warp
    ],
)
def test_many_long_rows_are_folded_by_few_blocks(rows, length, folders):
    chosen = choose_rows(rows_of(rows, length, 4, 1), HOPPER, 4, 8)
    assert (chosen.name, chosen.warps, chosen.folders) == ("batch", 16, folders)
    assert chosen.blocks == rows * chosen.parts + folders


def test_clusters_that_rows_do_not_take():
    for options, message in (
        ({"strategy": "batch", "cluster": 3}, "1, 2, 4, 8 or 16 blocks, not 3"),
        ({"strategy": "batch", "cluster": 0}, "1, 2, 4, 8 or 16 blocks, not 0"),
        ({"strategy": "rows", "cluster": 2}, "cluster=2 goes with 'batch'"),
        ({"cluster": 2}, "cluster=2 goes with 'batch'"),
    ):
        with pytest.raises(ValueError, match=message):
            choose_rows(rows_of(100, 100, 4, 1), HOPPER, 4, 8, **options)
    with pytest.raises(UnsupportedError, match=r"9\.0 or newer; this device has 7\.5"):
        choose_rows(rows_of(100, 100, 4, 1), TURING, 4, 8, strategy="batch", cluster=2)


@pytest.mark.parametrize(
    ("rows", "length", "way"),
    [
        (1000, 5000, ("batch", 5)),  # a warp for each leaf
        (20_000, 5000, ("batch", 5)),
        (300, 10_000, ("batch", 10)),
        (100_000, 1100, ("rows", 2)),
        (512, 2048, ("batch", 8)),  # few rows
        (100_000, 1101, ("rows", 2)),  # not at vectors each: hardly anything of a second leaf
        (1000, 5001, ("rows", 8)),  # five leaves, the last of them in part: at once, for there is little to load
        (20_000, 5001, ("rows", 5)),  # at any address, as many rows as fill the device: a warp for each leaf
        (2000, 3001, ("rows", 4)),
        (3000, 3001, ("rows", 3)),
        (3000, 2001, ("rows", 2)),
        (3000, 16_001, ("rows", 16)),
        (3000, 16_385, ("rows", 8)),  # too many leaves for that
        (10_000, 11_000, ("rows", 4)),
        (300, 12_000, ("batch", 16)),
        (300, 2**18, ("batch", 16)),  # a block for each row: two or three on a multiprocessor
        (500, 2**16, ("rows", 8)),  # nearly four on each
        (300, 2**15, ("rows", 8)),  # not long enough
        (20_000, 2**17, ("batch", 16)),  # long enough whatever the number
        (1000, 95 * 1024, ("rows", 8)),
        (1000, 95 * 1024 + 4, ("batch", 16)),
        (1000, 95 * 1024 + 5, ("rows", 8)),  # at any address
    ],
)
def test_warps_of_a_row(rows, length, way):
    chosen = choose_rows(rows_of(rows, length, 4, 1), HOPPER, 4, 8)
    assert (chosen.name, chosen.warps_of_a_row) == way


@pytest.mark.parametrize(
    ("length", "itemsize", "two_arrays", "lie"),
    [
        (5000, 4, False, "Aligned"),
        (5001, 4, False, "Contiguous"),
        (501, 4, False, "Contiguous"),
        (5001, 8, False, "Contiguous"),
        (5001, 2, False, "Contiguous"),
        (5000, 4, True, "Aligned"),
    ],
)
def test_rows_that_vectors_fit_have_a_twin_at_any_address(length, itemsize, two_arrays, lie):
    problem = layout.problem_of(
        (3000, length), itemsize, axis=1, second_strides_bytes=(length, 1) if two_arrays else None,
        second_itemsize=int(two_arrays),
    )  # fmt: skip
    chosen = choose_rows(problem, HOPPER, itemsize, 8, two_arrays=two_arrays)
    assert chosen.aligned == problem.aligned == (lie == "Aligned")
    source = row_kernel_source(OperatorText("sum", "Sum", 8), chosen)
    assert f" {lie}Rows" in source.text
    assert (source.twin is not None) == chosen.aligned
    entry = "sum_rows_anywhere" if chosen.kernel == "at_once" else f"{source.entry}_anywhere"
    assert source.twin is None or (" ContiguousRows" in source.twin.text and source.twin.entry == entry)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    ("leaves", "forced"),
    [
        *[(leaves, {}) for leaves in (1, 3, 8, 16, 40, 64, 65, 3000, 1 << 20)],
        *[(3000, {"strategy": "tiles", "block_threads": threads}) for threads in (256, 512, 1024)],
        (3000, {"strategy": "tiles", "cluster": 4}),
        (3000, {"strategy": "cluster", "cluster": 16}),
        (16, {"strategy": "block", "block_threads": 512}),
        (64, {"strategy": "block"}),
    ],
    ids=str,
)
def test_what_a_caller_forces_has_a_twin_that_takes_it(leaves, forced, wide):
    """Unasked all have one and the same, which has no loop over tiles, and one size of blocks and of clusters."""
    chosen = whole.choose(leaves, HOPPER, wide_accumulator=wide, **forced)
    (source,) = kernel_sources(OperatorText("sum", "Sum", 8, wide=wide), chosen)
    threads = int(re.search(r"__launch_bounds__\((\d+),", source.twin.text)[1])
    shared = source.twin.entry == "sum_whole_anywhere"
    assert chosen.block_threads <= threads
    assert shared or forced
    if shared:
        assert chosen.tiles_per_block == 1
        assert chosen.cluster <= (8 if chosen.name == "cluster" else 1)
        assert f"reduce_anywhere<Op, {threads // 32}, 8>" in source.twin.text


@pytest.mark.parametrize(("lie", "kernels"), [("aligned", 2), ("contiguous", 1), ("strided", 1)])
def test_short_rows_have_one_kernel_and_its_twin(lie, kernels):
    """Of any length, however many, in blocks of one warp or of eight, along one axis or several."""
    apart = {"aligned": 16, "contiguous": 4, "strided": 16}[lie]
    step = 8 if lie == "strided" else 4
    found = set()
    for length in range(4, 1025, 4):
        for rows in (3, 100_000):
            row = step * length + apart
            for strides in ((2 * row, row, step), (2 * row + 16, row, step)):
                problem = layout.problem_of((rows, 2, length), 4, axis=2, strides_bytes=strides)
                chosen = choose_rows(problem, HOPPER, 4, 8, strategy="short_rows")
                found.update(with_twins([row_kernel_source(OperatorText("sum", "Sum", 8), chosen)]))
    assert len(found) == kernels


@pytest.mark.parametrize(
    ("shape", "axis", "entry", "aligned"),
    [
        ((1 << 14, 1 << 14), 0, "columns_wide", True),
        ((100_000, 1001), 0, "columns", False),
        ((64, 50, 16, 256), (0, 2), "columns_strided_wide", False),
        ((64, 50, 16, 5), (0, 2), "columns_strided", False),
    ],
    ids=str,
)
def test_kernels_for_columns(shape, axis, entry, aligned):
    """One for narrow loads and one for wide ones, each also for several reduced axes, which takes any address."""
    chosen = choose_rows(layout.problem_of(shape, 4, axis=axis), HOPPER, 4, 8)
    source = row_kernel_source(OperatorText("sum", "Sum", 8), chosen)
    assert source.entry == f"sum_{entry}"
    assert chosen.aligned is aligned
    straight = "true" if isinstance(axis, int) else "false"
    arguments = f"reduce_columns<Op, {', '.join(map(str, chosen.loads))}, {straight}, Begin::"
    assert f"{arguments}{'aligned' if aligned else 'anywhere'}>(problem);" in source.text
    assert (source.twin is not None) is aligned
    assert source.twin is None or f"{arguments.replace('true', 'false')}anywhere>(problem);" in source.twin.text


def test_columns_of_all_shapes_share_kernels():
    texts = set()
    for length, columns in itertools.product((3, 100, 2000, 70_000, 1 << 24), (2, 7, 64, 99, 1000)):
        chosen = choose_rows(layout.problem_of((length, columns), 4, axis=0), HOPPER, 4, 8)
        texts.add(row_kernel_source(OperatorText("sum", "Sum", 8), chosen).text)
    assert len(texts) <= 3  # narrow, wide, and wide where the array begins anywhere


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("axis", [0, 1, (0, 1)])
@pytest.mark.parametrize("strategy", [None, "short_rows", "rows", "batch"])
def test_no_rows_or_no_elements(shape, axis, strategy):
    problem = layout.problem_of(shape, 4, axis=axis)
    if problem.kind == "columns" and strategy is not None:
        strategy = "columns"
    chosen = choose_rows(problem, HOPPER, 4, 8, strategy=strategy)
    assert (chosen.blocks == 0) == (problem.rows == 0)


@pytest.mark.parametrize(("shape", "axis"), [((4, 1 << 24), 0), ((4096, 4, 512), 1), ((1 << 20, 4, 10), 1)], ids=str)
def test_columns_of_a_vector_are_folded_by_a_thread_each(shape, axis):
    problem = layout.problem_of(shape, 4, axis=axis)
    chosen = choose_rows(problem, HOPPER, 4, 8)
    inner, width = problem.kept[0].size, chosen.loads[0]
    threads = problem.rows // inner * -(-inner // width)
    assert (chosen.tile.vectors, chosen.tile.turns, chosen.parts) == (1, 1, 1)
    assert chosen.blocks == -(-threads // chosen.block_threads)


@pytest.mark.parametrize("shape", [(1 << 20, 256), (1 << 24, 8), (1343693, 99), (100_000, 1000)], ids=str)
def test_long_columns_keep_every_multiprocessor_busy(shape):
    chosen = choose_rows(layout.problem_of(shape, 4, axis=0), HOPPER, 4, 8)
    of_a_multiprocessor = (chosen.blocks - chosen.folders) / HOPPER.multiprocessors
    assert of_a_multiprocessor >= 1.8
    assert of_a_multiprocessor / math.ceil(of_a_multiprocessor) >= 0.8


def test_blocks_of_columns_have_every_vector_once():
    for itemsize, accumulator_bytes in TYPES:
        for length, columns in itertools.product((3, 50, 2000, 70_000, 1 << 24), (3, 64, 99, 1000)):
            chosen = choose_rows(rows_of(columns, length, itemsize, 0), HOPPER, itemsize, accumulator_bytes)
            width, at_once = chosen.loads
            tile, threads = chosen.tile, chosen.block_threads
            assert all(size & size - 1 == 0 for size in (*tile, threads))
            needed = -(-length * itemsize // 16)
            a_block = tile.vectors * tile.turns
            assert (chosen.parts - 1) * a_block < -(-needed // 256) * 256
            assert needed <= chosen.parts * a_block
            beside = tile.columns // width
            each = max(1, tile.vectors * beside // threads)
            assert each <= 8 * at_once  # a thread has room for the folds of so many rounds
            assert tile.turns == 1 or tile.columns <= threads  # a thread folds a column's turns
            tiles = math.ceil(math.ceil(columns / width) / beside)
            assert chosen.blocks == tiles * chosen.parts + chosen.folders
            assert (chosen.folders > 0) == (chosen.parts > 1 and chosen.folded_by != "cluster")
            assert chosen.cluster == (chosen.parts if chosen.folded_by == "cluster" else 1)


def test_how_columns_are_cut_in_one_word():
    chosen = choose_rows(layout.problem_of((1 << 14, 1 << 8), 4, axis=0), HOPPER, 4, 8)
    word, by = chosen.count, ("nobody", "cluster", "warps", "blocks").index(chosen.folded_by)
    fields = [word & 0xFFFFFFFF, *(1 << (word >> shift & 255) for shift in (32, 40, 48)), word >> 56]
    assert fields == [chosen.parts, *chosen.tile, by]
    assert chosen.parts > 1


@pytest.mark.parametrize(
    ("length", "columns", "facts", "is_cluster"),
    [
        (2048, 512, HOPPER, True),
        (3000, 64, HOPPER, True),
        (70_000, 64, HOPPER, False),  # more parts than a cluster holds
        (2048, 512, AMPERE, False),
    ],
)
def test_columns_of_a_few_tiles_are_clusters(length, columns, facts, is_cluster):
    chosen = choose_rows(rows_of(columns, length, 4, 0), facts, 4, 8)
    assert (chosen.folded_by == "cluster") is is_cluster
    if is_cluster:
        assert (chosen.parts, chosen.folders, chosen.blocks % chosen.cluster) == (chosen.cluster, 0, 0)
        assert 2 <= chosen.cluster <= 8
        assert chosen.blocks <= (chosen.resident_blocks - 1) * facts.multiprocessors  # all run at once


@pytest.mark.parametrize(
    ("rows", "by", "blocks"),
    [(99, "nobody", 0), (99, "cluster", 0), (99, "warps", 13), (512, "warps", 64), (513, "warps", 65),
     (10**6, "warps", 512), (99, "blocks", 99), (513, "blocks", 512)],
)  # fmt: skip
def test_blocks_that_fold_partials(rows, by, blocks):
    assert column_policy.folders(rows, by) == blocks


@pytest.mark.parametrize(
    ("op", "dtype", "options", "wide"),
    [
        ("sum", "float32", {}, False),
        ("sum", "complex64", {}, False),
        ("mean", "complex128", {}, False),
        ("sum", "complex64", {"nan": "ignore"}, False),
        ("sum", "complex64", {"where": True}, True),
        ("mean", "complex64", {"nan": "ignore"}, True),  # counts too
        ("prod", "complex64", {}, True),
        ("minmax", "float64", {}, False),
        ("minmax", "float16", {}, False),
        ("minmax", "int8", {}, False),
        ("minmax", "bool", {}, True),  # by keys, sixteen a vector
        ("argmin", "uint8", {}, False),
        ("argmin", "bool", {}, True),
        ("var", "int8", {}, False),
        ("var", "float8_e5m2", {}, True),
        ("argmax", "bfloat16", {}, False),
        ("argmax", "float64", {}, False),
        ("argmax", "float64", {"last": True}, True),
        ("mean_var", "float16", {}, True),
        ("logsumexp", "float64", {}, True),
    ],
)
def test_large_arrays_are_folded_by_full_blocks_unless_a_thread_needs_more(op, dtype, options, wide):
    reduction = resolve(op, **options)
    found = needs_many_registers(reduction, reduction.types(element_type(dtype)))
    assert found is wide
    assert whole.choose(1 << 20, HOPPER, wide_accumulator=found).warps == (8 if wide else 16)


def test_wide_accumulators_of_small_elements_get_more_warps():
    chosen = [whole.choose(1 << 20, HOPPER, wide_accumulator=True, small_elements=small) for small in (False, True)]
    assert [each.resident_blocks for each in chosen] == [2, 3]
    assert whole.choose(1 << 20, HOPPER, strategy="cooperative", wide_accumulator=True).resident_blocks == 1


@pytest.mark.parametrize(
    ("shape", "axis", "strategy", "kind", "counts"),
    [
        (1 << 22, None, "tiles", "whole", (256, 256)),
        (1 << 22, None, "two_pass", "whole", (1, 512)),
        (1 << 14, None, "cluster", "whole", (1, 0)),
        (1 << 17, None, "block", "whole", (8, 0)),
        ((5000, 100), 1, "short_rows", "short_rows", None),
        ((5000, 9000), 1, "batch", "shaped", None),
        ((5000, 9000), 0, "columns", "shaped", None),
    ],
)
@pytest.mark.parametrize("facts", [HOPPER, AMPERE])
def test_what_launches_need_is_told_of_all_strategies_alike(shape, axis, strategy, kind, counts, facts):
    if strategy == "cluster" and not facts.clusters:
        return
    chosen = select(request_of("sum", shape=shape, axis=axis, dtype="float32"), facts, strategy=strategy).strategy
    assert (chosen.name, chosen.argument_kind, chosen.programmatic) == (strategy, kind, facts == HOPPER)
    assert chosen.counts == (counts or (chosen.count, 0))

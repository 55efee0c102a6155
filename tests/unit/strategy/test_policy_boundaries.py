"""What the policies choose on both sides of each of their boundaries: a number moved by one shows here."""

import pytest

from lowlevel_reduce import UnsupportedError, layout
from lowlevel_reduce.strategy import columns as column_policy
from lowlevel_reduce.strategy import fields, row_bounds, row_times
from lowlevel_reduce.strategy import rows as row_policy
from lowlevel_reduce.strategy import whole as policy
from lowlevel_reduce.strategy.base import Loads, Task, Tile, short_row_bits
from lowlevel_reduce.strategy.column_cuts import Cut, loads_of, places_of
from lowlevel_reduce.strategy.columns import Way
from lowlevel_reduce.strategy.whole import DeviceFacts

pytestmark = pytest.mark.usefixtures("without_elements")

HOPPER = DeviceFacts((9, 0), 132, clusters=True, cooperative=True)
ADA = DeviceFacts((8, 9), 128, clusters=False, cooperative=True)
DATACENTER_BLACKWELL = DeviceFacts((10, 0), 148, clusters=True, cooperative=True)


def rows_of(rows, length, itemsize=4, stride=None):
    """Return rows that lie `stride` bytes apart, or one after the other."""
    strides = (length * itemsize if stride is None else stride, itemsize)
    return layout.problem_of((rows, length), itemsize, axis=1, strides_bytes=strides)


def columns_of(length, columns, itemsize=4, stride=None):
    strides = (columns * itemsize if stride is None else stride, itemsize)
    return layout.problem_of((length, columns), itemsize, axis=0, strides_bytes=strides)


# Whole arrays


@pytest.mark.parametrize(("facts", "programmatic"), [(ADA, False), (HOPPER, True), (DATACENTER_BLACKWELL, True)])
def test_launches_depend_on_their_predecessors_from_hopper_on(facts, programmatic):
    for strategy in (None, "tiles", "two_pass", "block"):
        assert policy.choose(1000, facts, strategy=strategy).programmatic is programmatic
    assert not policy.choose(1000, facts, strategy="cooperative").programmatic


@pytest.mark.parametrize("leaves", [0, 1, 2, 1000])
def test_the_strategy_of_clusters_needs_them_for_one_block_too(leaves):
    with pytest.raises(UnsupportedError, match=r"9\.0 or newer; this device has 8\.9"):
        policy.choose(leaves, ADA, strategy="cluster")
    with pytest.raises(UnsupportedError, match=r"9\.0 or newer; this device has 8\.9"):
        policy.choose(leaves, ADA, strategy="cluster", cluster=1)


def test_a_grid_has_as_many_blocks_as_the_driver_takes():
    assert policy.MAX_GRID == 2_147_483_647
    options = {"strategy": "two_pass", "block_threads": 256}
    assert policy.choose(8 * policy.MAX_GRID, HOPPER, **options).blocks == policy.MAX_GRID
    with pytest.raises(ValueError, match="need 2147483648 blocks; a grid has at most 2147483647"):
        policy.choose(8 * policy.MAX_GRID + 1, HOPPER, **options)


@pytest.mark.parametrize(("multiprocessors", "most"), [(63, 4), (64, 8)])
def test_clusters_are_portable_on_large_devices(multiprocessors, most):
    assert policy.largest_cluster(HOPPER._replace(multiprocessors=multiprocessors)) == most
    assert policy.largest_cluster(ADA) == 1


def test_tiles_of_new_devices_are_smaller():
    for facts, warps, resident in ((HOPPER, 16, 2), (DATACENTER_BLACKWELL, 8, 2), (ADA, 16, 2)):
        chosen = policy.choose(1 << 20, facts)
        assert (chosen.name, chosen.warps, chosen.resident_blocks) == ("tiles", warps, resident)
    assert policy.choose(1 << 20, HOPPER, block_threads=1024).warps == 32
    with pytest.raises(ValueError, match=r"takes blocks of \[256, 512\] threads here"):
        policy.choose(1 << 20, DATACENTER_BLACKWELL, block_threads=1024)


@pytest.mark.parametrize(("leaves", "facts", "warps"), [(8192, HOPPER, 8), (8193, HOPPER, 16),
                                                        (8193, DATACENTER_BLACKWELL, 8)])  # fmt: skip
def test_tiles_of_a_forced_strategy(leaves, facts, warps):
    assert policy.choose(leaves, facts, strategy="two_pass").warps == warps
    assert policy.choose(leaves, facts, strategy="cooperative").warps == 8


def test_blocks_that_a_strategy_takes():
    for name, fitting in (("block", "32, 64, 128, 256, 512"), ("cluster", "32, 64, 128, 256, 512"),
                          ("tiles", "256, 512, 1024"), ("cooperative", "256, 512")):  # fmt: skip
        with pytest.raises(ValueError, match=rf"\[{fitting}\] threads here, not 96"):
            policy.choose(1000, HOPPER, strategy=name, block_threads=96)


@pytest.mark.parametrize(("accumulator", "slot"), [(4, 16), (12, 16), (13, 32), (16, 32), (24, 32), (25, 48), (36, 48)])
def test_units_of_a_slot(accumulator, slot):
    assert policy.slot_bytes(accumulator) == slot
    assert [policy.workspace_bytes(leaves, accumulator) for leaves in (0, 1, 8, 9)] == [
        256 + slot, 256 + slot, 256 + slot, 256 + 2 * slot]  # fmt: skip


# Rows


def choose(problem, facts=HOPPER, *, itemsize=4, accumulator=8, heavy=False, two_arrays=False, **options):
    return row_policy.choose_rows(Task(problem, facts, itemsize, accumulator, heavy, two_arrays), **options)


def test_rows_of_more_than_a_leaf_are_not_short():
    rows = 2000
    assert [choose(rows_of(rows, length)).name for length in (1023, 1024, 1025)] == ["short_rows", "short_rows", "rows"]


def test_few_short_rows_have_a_warp_each():
    """Of more than half as many vectors as a warp has lanes, and eight for each multiprocessor."""
    assert [choose(rows_of(5, length)).name for length in (64, 65, 1024)] == ["short_rows", "rows", "rows"]
    assert [choose(rows_of(rows, 100)).name for rows in (1056, 1057)] == ["rows", "short_rows"]
    chosen = choose(rows_of(1056, 100))
    assert (chosen.warps_of_a_row, chosen.in_one_turn, chosen.warps, chosen.blocks) == (1, True, 4, 264)
    assert choose(rows_of(5, 100), accumulator=9).name == "short_rows"
    assert choose(rows_of(5, 100), heavy=True).name == "short_rows"
    strided = layout.problem_of((5, 100), 4, axis=1, strides_bytes=(1000, 8))
    assert choose(strided).name == "short_rows"


@pytest.mark.parametrize(
    ("accumulator", "itemsize", "heavy", "residents"),
    [
        (8, 4, False, (4, (16, 2))),
        (9, 4, False, (3, (12, 2))),
        (16, 4, False, (3, (12, 2))),
        (17, 4, False, (2, (16, 1))),
        (4, 2, False, (3, (16, 2))),
        (8, 3, False, (4, (16, 2))),
        (8, 4, True, (2, (16, 1))),
        (16, 4, True, (2, (16, 1))),
    ],
)
def test_blocks_of_rows_on_a_multiprocessor(accumulator, itemsize, heavy, residents):
    """Where warps have rows or several leaves, and where each has one leaf: of how many warps at most, and how many."""
    options = {"itemsize": itemsize, "accumulator_bytes": accumulator, "heavy": heavy, "two_arrays": False}
    assert row_bounds.bounds_of_rows(row_policy.RowStrategy("rows", 1), **options) == (8, residents[0])
    for name in ("rows", "batch"):
        leaves = row_policy.RowStrategy(name, 1, warps=4, in_one_turn=True)
        assert row_bounds.bounds_of_rows(leaves, **options) == residents[1]
        newer = (8, 1) if residents[1] == (16, 1) else residents[1]
        assert row_bounds.bounds_of_rows(leaves, newer=True, **options) == newer


@pytest.mark.parametrize(
    ("accumulator", "itemsize", "heavy", "blocks"),
    [(16, 2, False, 3), (16, 1, False, 3), (16, 2, True, 2), (12, 2, False, 2), (24, 2, False, 2), (8, 2, False, 2)],
)
def test_blocks_of_short_rows_of_moments(accumulator, itemsize, heavy, blocks):
    """Of small elements three blocks fit where accumulators are two float64, and two otherwise."""
    options = {"itemsize": itemsize, "accumulator_bytes": accumulator, "heavy": heavy, "two_arrays": False}
    assert row_bounds.bounds_of_rows(row_policy.RowStrategy("short_rows", 1), **options) == (8, blocks)
    assert row_bounds.bounds_of_rows(row_policy.RowStrategy("short_rows", 1, contiguous=False), **options) == (8, 2)


def test_blocks_of_strided_rows_on_a_multiprocessor():
    """Gathering takes more registers than loading vectors."""

    def resident(name, itemsize, accumulator):
        way = row_policy.RowStrategy(name, 1, contiguous=False)
        return row_bounds.bounds_of_rows(way, itemsize, accumulator, heavy=False, two_arrays=False)[1]

    assert [resident("rows", itemsize, 8) for itemsize in (1, 2, 4, 8)] == [3, 3, 3, 3]
    assert [resident("rows", 4, accumulator) for accumulator in (16, 17)] == [3, 2]
    assert [resident("short_rows", itemsize, 8) for itemsize in (2, 4)] == [2, 2]


def test_blocks_of_two_arrays_on_a_multiprocessor():
    def resident(itemsize, accumulator, contiguous=True, name="rows"):
        rows = row_policy.RowStrategy(name, 1, contiguous=contiguous)
        return row_bounds.bounds_of_rows(rows, itemsize, accumulator, heavy=True, two_arrays=True)[1]

    assert (resident(4, 8), resident(2, 8), resident(4, 9), resident(4, 7)) == (4, 2, 2, 2)
    assert (resident(8, 8), resident(4, 8, contiguous=False)) == (4, 2)
    batch = row_policy.RowStrategy("batch", 1, in_one_turn=True)
    options = {"itemsize": 4, "heavy": True, "two_arrays": True}
    found = [row_bounds.bounds_of_rows(batch, accumulator_bytes=size, **options) for size in (8, 9, 16, 17)]
    assert found == [(16, 2), (16, 1), (16, 1), (16, 1)]
    strided = row_policy.RowStrategy("batch", 1, in_one_turn=True, contiguous=False)
    assert row_bounds.bounds_of_rows(strided, accumulator_bytes=8, **options) == (12, 2)
    for name in ("rows", "short_rows"):  # of fewer warps, too
        narrower = row_policy.RowStrategy(name, 1, warps=4)
        assert row_bounds.bounds_of_rows(narrower, accumulator_bytes=8, **options) == (8, 4)


@pytest.mark.parametrize(
    ("rows", "leaves", "few"),
    [(528, 4, True), (529, 3, False), (1, 2112, True), (1, 2113, False), (132, 16, True), (133, 16, False)],
)
def test_few_rows(rows, leaves, few):
    assert row_policy._are_few(rows, leaves, HOPPER) is few


@pytest.mark.parametrize(
    ("rows", "leaves", "uneven"),
    [
        (300, 64, True),  # two or three on a multiprocessor: a quarter is idle
        (300, 63, False),
        (475, 64, True),  # a tenth and a little
        (476, 64, False),
        (528, 64, False),
        (529, 64, False),  # more than four on one
        (396, 64, False),
    ],
)
def test_rows_that_multiprocessors_share_badly(rows, leaves, uneven):
    assert row_policy._are_uneven(rows, leaves, HOPPER) is uneven


@pytest.mark.parametrize(
    ("rows", "leaves", "cut"), [(263, 9, True), (264, 9, False), (1056, 95, False), (1056, 96, True)]
)
def test_rows_that_are_cut_into_tiles(rows, leaves, cut):
    task = Task(rows_of(rows, leaves * 1024), HOPPER, 4, 8)
    assert (row_policy._why_cut(task, leaves) is not None) is cut
    if rows == 1056:
        assert row_policy._why_cut(task._replace(heavy=True), leaves) is None
        assert row_policy._why_cut(task._replace(accumulator_bytes=9), leaves) is None
        assert row_policy._why_cut(task._replace(two_arrays=True), leaves) is None


@pytest.mark.parametrize(
    ("rows", "length", "way"),
    [
        (3000, 2048, ("rows", 8)),  # two leaves: two rows in a block
        (3000, 2049, ("batch", 3)),
        (3000, 10 * 1024, ("batch", 10)),
        (3000, 10 * 1024 + 4, ("rows", 8)),
        (500, 8 * 1024 + 4, ("batch", 9)),
    ],
)
def test_a_warp_for_each_leaf(rows, length, way):
    length = length if length % 4 == 0 else length + 3
    chosen = choose(rows_of(rows, length))
    assert chosen.name == way[0]
    if way[0] == "batch":
        assert chosen.warps == way[1]


@pytest.mark.parametrize(("rows", "many"), [(2111, False), (2112, True)])
def test_many_rows_at_any_address(rows, many):
    problem = rows_of(rows, 3001)
    assert row_policy._are_many_at_any_address(Task(problem, HOPPER, 4, 8)) is many
    chosen = choose(problem)
    assert (chosen.warps_of_a_row, chosen.in_one_turn) == ((3, True) if many else (4, False))


@pytest.mark.parametrize(("vector", "words"), [(1, False), (2, True), (4, True), (8, False), (16, False)])
def test_rows_of_words(vector, words):
    itemsize = 16 // vector

    def are_many(length, stride, two_arrays=False):
        problem = rows_of(3000, length, itemsize, stride=stride * itemsize)
        return row_policy._are_many_at_any_address(Task(problem, HOPPER, itemsize, 8, two_arrays=two_arrays))

    assert are_many(5001, 5003) is words
    assert not are_many(5008, 5008)
    assert are_many(5008, 5009) is words  # whole vectors that begin between those of the row before
    assert not are_many(5001, 5003, two_arrays=True)


@pytest.mark.parametrize(
    ("rows", "length", "itemsize", "warps"),
    [
        (96 * 132, 31_140, 2, 1),
        (96 * 132, 9001, 2, 1),
        (96 * 132 - 1, 31_140, 2, 16),
        (96 * 132, 16 * 2048 + 3, 2, 8),  # of more leaves than sixteen, each warp of a block takes some
        (96 * 132, 31_144, 2, 16),  # whole vectors
        (96 * 132, 62_281, 1, 16),
    ],
)
def test_many_rows_of_two_byte_elements_at_any_address_have_a_warp_each(rows, length, itemsize, warps):
    problem = rows_of(rows, length, itemsize=itemsize)
    assert choose(problem, itemsize=itemsize, accumulator=4).warps_of_a_row == warps
    assert ("for a warp each" in row_policy.why_rows(Task(problem, HOPPER, itemsize, 4))) == (warps == 1)


def test_little_of_a_second_leaf_gets_a_warp_in_rows_at_any_address():
    """Fewer of them than fill the device."""
    assert not choose(rows_of(900, 1024 + 513, stride=4 * 1541)).in_one_turn
    assert choose(rows_of(900, 1024 + 512, stride=4 * 1541)).in_one_turn


@pytest.mark.parametrize(("needed", "warps"), [(1055, 1), (1056, 8)])
def test_blocks_are_small_where_there_are_few(needed, warps):
    assert row_policy._warps_of_a_block(needed, 1, HOPPER) == warps
    assert row_policy._warps_of_a_block(needed, 2, HOPPER) == max(warps, 2)


@pytest.mark.parametrize(
    ("rows", "leaves", "tiles"),
    [
        (1, 9, (8, 2)),
        (3000, 10, (10, 1)),
        (3000, 11, (16, 1)),
        (16, 128, (16, 8)),
        (17, 128, (16, 1)),  # more tiles than multiprocessors
        (16, 129, (16, 1)),  # more than a cluster holds
        (132, 32, (16, 2)),
        (1000, 32, (16, 2)),  # two of any number of rows
        (1000, 33, (16, 1)),
    ],
)
def test_tiles_of_a_row(rows, leaves, tiles):
    assert tiles_of_a_row(rows, leaves, HOPPER) == tiles


def tiles_of_a_row(rows, leaves, facts, *, narrow=True):
    return row_policy._tiles_of_a_row(Task(rows_of(rows, leaves * 1024), facts, 4, 8 if narrow else 16), leaves)


def test_tiles_of_a_row_of_wide_accumulators():
    newer = HOPPER._replace(compute_capability=(10, 0))
    for facts, narrow, warps in ((HOPPER, False, 10), (newer, True, 10), (newer, False, 8)):
        assert tiles_of_a_row(3000, 10, facts, narrow=narrow) == (warps, 1)
    assert tiles_of_a_row(3000, 11, HOPPER, narrow=False) == (8, 1)
    assert tiles_of_a_row(1000, 32, ADA) == (16, 1)


GATHERED = [
    (1, 4, None, (8, 1)),  # few leaves
    (1, 5, "batch", (1, 1)),
    (1, 132, "batch", (1, 1)),
    (1, 133, "batch", (2, 1)),  # more leaves than multiprocessors
    (1, 264, "batch", (2, 1)),
    (1, 265, "batch", (4, 1)),
    (1, 1048, "batch", (4, 1)),  # two tiles to a multiprocessor
    (1, 1049, "batch", (8, 1)),
    (1, 1573, "batch", (8, 1)),  # large tiles would leave some without one
    (26, 5, "batch", (1, 1)),
    (66, 8, "batch", (4, 1)),
    (67, 8, None, (4, 1)),
    (132, 8, None, (8, 1)),
]
"""Rows of so many leaves, how they are reduced unless that depends on the accumulator, and the warps of a tile and the
tiles of a cluster."""


@pytest.mark.parametrize(("rows", "leaves", "name", "tiles"), GATHERED)
def test_tiles_of_elements_that_are_loaded_one_by_one(rows, leaves, name, tiles):
    problem = layout.problem_of((rows, leaves * 1024), 4, axis=1, strides_bytes=(leaves * 8192, 8))
    for accumulator_bytes in (8, 16):
        of = Task(problem, HOPPER, 4, accumulator_bytes)
        chosen = row_policy.choose_rows(of)
        assert chosen.name == (name or chosen.name)
        assert row_policy._tiles_of_a_row(of, leaves) == tiles
        assert name is None or (chosen.warps, chosen.cluster) == tiles


def test_runs_of_vectors_are_no_single_elements():
    in_runs = layout.problem_of((3, 2048, 4), 4, axis=(1, 2), strides_bytes=(64 * 1024, 32, 4))
    apart = layout.problem_of((3, 8192), 4, axis=1, strides_bytes=(64 * 1024, 8))
    found = [row_policy._tiles_of_a_row(Task(problem, HOPPER, 4, 16), 8) for problem in (in_runs, apart)]
    assert found == [(8, 1), (1, 1)]


@pytest.mark.parametrize(("rows", "folders"), [(396, 396), (397, 397 // 4 // 16 + 1)])
def test_rows_with_folding_blocks_of_their_own(rows, folders):
    assert choose(rows_of(rows, 1 << 18), strategy="batch").folders == folders


def test_partials_that_a_warp_folds():
    assert [row_policy.rows_of_a_warp(parts) for parts in (2, 32, 33, 64, 65, 128)] == [4, 4, 2, 2, 1, 1]
    problem = rows_of(4096, 128 * 16 * 1024)
    assert choose(problem, strategy="batch", cluster=1).folders == 4096 // 16
    problem = rows_of(4096, 128 * 16 * 1024 + 4)
    assert choose(problem, strategy="batch", cluster=1).folders == 4096


@pytest.mark.parametrize(
    ("length", "levels", "blocks"),
    [(0, 0, 1), (4, 0, 1), (5, 1, 1), (128, 5, 3), (129, 6, 5), (512, 7, 10), (513, 8, 10)],
)
def test_short_rows(length, levels, blocks):
    """Ten rows: how many levels of the tree one has in lanes and steps, and in how many blocks of one warp they are."""
    chosen = choose(rows_of(10, length, stride=4 * 1024), strategy="short_rows")
    assert (chosen.levels, chosen.blocks, chosen.warps) == (levels, blocks, 1)


@pytest.mark.parametrize(
    ("length", "second_itemsize", "kept", "values"),
    [
        # levels; bits of lanes, steps, groups, a lane's vectors, a warp's rows; warps, whole blocks; whether in part;
        # the vectors of a lane; whose result a lane holds, whether it is idle, how many it holds; bytes apart
        (4, 0, (3000, 32), (0, 0, 0, 5, 2, 7, 8, 2, 0, 0xF, 0, 0, 4, 1024, 2048, 4096)),
        (8, 0, (3000, 32), (1, 1, 0, 4, 3, 7, 8, 2, 0, 0xFF, 1, 0, 4, 512, 1024, 2048)),
        (100, 0, (3000, -800), (5, 5, 0, 0, 3, 3, 8, 46, 1, 0xFF, 7, 24, 1, 2**64 - 800, 2**64 - 1600, 2**64 - 3200)),
        (256, 0, (3000, 2048), (6, 5, 1, 0, 3, 2, 8, 93, 0, 0xFF, 3, 28, 1, 512, 2048, 4096)),
        (1024, 0, (3000, 4096), (8, 5, 3, 0, 3, 0, 8, 375, 0, 0xFF, 0, 31, 1, 512, 1024, 2048)),
        (1024, 4, (3000, 4096), (8, 5, 3, 0, 3, 0, 8, 375, 0, 0xF, 0, 31, 1, 512, 1024, 2048)),
        (8, 4, (3000, 32), (1, 1, 0, 4, 2, 6, 8, 5, 0, 0xF, 1, 0, 2, 512, 1024, 2048)),
    ],
)
def test_what_a_kernel_of_short_rows_is_told(length, second_itemsize, kept, values):
    """With a second array of the same type, the bytes between its vectors follow."""
    problem = rows_of(kept[0], length)._replace(kept=(layout.Axis(*kept, kept[1] if second_itemsize else 0),))
    strategy = row_policy.RowStrategy("short_rows", 1, (), levels=values[0], warps=8)
    found = fields.short_row_values(problem, strategy, 4, second_itemsize)
    *bits, whole, in_part, present, among, idle, results = values[:-3]
    words = bytes((*bits, in_part)), whole.to_bytes(4, "little") + bytes((present, among, idle, results))
    apart = values[-3:], values[-3:] if second_itemsize else (0, 0, 0)
    second = problem.kept[0].second_stride * (kept[0] - 1)
    reach = min(second, 0), max(second, 0) + second_itemsize + problem.reduced[0].second_stride * (length - 1)
    assert found == (*(int.from_bytes(word, "little") for word in words), *apart[0], *apart[1], *reach)
    assert len(fields.signature("short_rows")) == len(fields.signature("shaped")) + len(found)


@pytest.mark.parametrize("length", [4, 8, 128, 512])  # one, two and thirty-two lanes a row, in one step and in four
def test_rows_of_a_warp(length):
    """As many as a warp holds in large grids and where it cannot hold fewer, else half as many."""
    rows = {4: 4 * 32, 8: 8 * 16, 128: 8, 512: 2}[length]

    def warps(count, **options):
        chosen = choose(rows_of(count, length, stride=4 * 1024), strategy="short_rows", **options)
        return chosen.blocks * chosen.warps

    few, half = rows if length == 4 else rows // 2, length > 4
    assert [warps(count) for count in (few, few + 1)] == [1, 2]
    most = 2 * HOPPER.multiprocessors * rows
    assert [warps(count) for count in (most, most + 1)] == ([528, 265] if half else [264, 265])
    wide = 8 * HOPPER.multiprocessors * rows
    heavy = [warps(count, heavy=True) for count in (wide, wide + 1)]
    assert heavy == ([2112, 1064] if half else [1056, 1064])


@pytest.mark.parametrize(("length", "most"), [(301, 4), (777, 2), (1045, 1), (255, 8)])
def test_rows_in_turn_have_a_warp_each_if_they_are_few(length, most):
    """Those of more vectors than a warp has lanes, which take a round trip to memory each; others do not."""

    def rows_of_a_warp(rows):
        chosen = choose(rows_of(rows, length, 2), itemsize=2, accumulator=4, strategy="short_rows")
        return 1 << short_row_bits(chosen.levels, two_arrays=False, halved=chosen.halved)

    few = 32 * HOPPER.multiprocessors
    assert rows_of_a_warp(few) == (1 if length > 256 else most)
    assert rows_of_a_warp(2 * few) == (1 if length > 256 else most)
    assert rows_of_a_warp(few * most + 1) == most


def test_short_rows_of_two_arrays_are_not_half_as_many_to_a_warp():
    assert not choose(rows_of(8, 128), strategy="short_rows", two_arrays=True).halved


def test_a_row_of_two_leaves_is_not_short():
    with pytest.raises(ValueError, match="'short_rows' does not go with 5 rows of 1025"):
        choose(rows_of(5, 1025), strategy="short_rows")


def test_rows_along_axes_that_cannot_be_joined_take_the_same_kernel():
    def chosen(apart):
        problem = layout.problem_of((3, 5, 100), 4, axis=2, strides_bytes=(5 * 400 + apart, 400, 4))
        assert len(problem.kept) == (1 if apart == 0 else 2)
        return choose(problem)

    assert chosen(0) == chosen(16)


def test_modelled_times():
    """Of a leaf a multiprocessor; each turn after the first costs more, and so do warps that have nothing to load."""
    time = row_times.row_time
    assert time(132, 8.0, 8, HOPPER) == 8.0  # all busy
    assert time(132, 16.0, 8, HOPPER) == 16.0 + 30.0
    assert time(132, 24.0, 8, HOPPER) == 24.0 + 34.0
    assert time(132, 7.0, 8, HOPPER) == pytest.approx(7 * (1 + 2.2 * (0.94 - 0.875) ** 2))
    assert time(132, 7.52, 8, HOPPER) == pytest.approx(7.52)  # enough of them
    assert time(132, 8.5, 8, HOPPER) == pytest.approx(8.5 * (1 + 2.2 * (0.94 - 8.5 / 12) ** 2) + 30)


# Columns


@pytest.mark.parametrize(("accumulator", "heavy", "resident"), [(16, False, 3), (17, False, 2), (4, True, 2)])
def test_blocks_of_columns_on_a_multiprocessor(accumulator, heavy, resident):
    chosen = column_policy.choose_columns(Task(columns_of(5000, 64), HOPPER, 4, accumulator, heavy))
    assert chosen.resident_blocks == resident


@pytest.mark.parametrize(
    ("itemsize", "accumulator", "wide", "two_arrays", "loads"),
    [
        (4, 8, False, False, Loads(1, 4)),
        (4, 8, True, False, Loads(4, 2)),
        (4, 9, True, False, Loads(2, 2)),  # 32 bytes of accumulators, and registers for 64 bytes of elements
        (4, 8, True, True, Loads(4, 1)),
        (2, 4, False, False, Loads(2, 2)),
        (2, 4, True, False, Loads(8, 1)),
        (2, 5, True, False, Loads(4, 1)),
        (1, 8, False, False, Loads(4, 1)),
        (1, 4, True, False, Loads(8, 1)),
        (1, 40, False, False, Loads(1, 1)),
        (8, 8, False, False, Loads(1, 4)),
        (8, 8, True, False, Loads(2, 4)),
        (16, 16, False, False, Loads(1, 4)),
    ],
)
def test_what_kernels_for_columns_load(itemsize, accumulator, wide, two_arrays, loads):
    assert loads_of(itemsize, accumulator, wide=wide, two_arrays=two_arrays) == loads


@pytest.mark.parametrize(
    ("columns", "stride", "aligned"), [(32, None, True), (31, 128, False), (36, None, True), (32, 132, False)]
)
def test_columns_whose_loads_are_aligned(columns, stride, aligned):
    problem = columns_of(1000, columns, stride=stride)
    assert column_policy._are_aligned(problem, Loads(4, 2), 4) is aligned


def test_kernels_whose_threads_have_a_column_each_are_not_wide():
    """However large an element is: there is no other kernel."""
    chosen = column_policy.choose_columns(Task(columns_of(1 << 16, 4096, 16), HOPPER, 16, 16))
    assert (chosen.loads[0], chosen.wide, chosen.aligned) == (1, False, False)


@pytest.mark.parametrize(
    ("rows", "length", "fields"),
    [
        (100, 3000, (1, 8, 1, 5, 4)),  # a block for each row
        (5000, 3000, (1, 3, 1, 5, 10)),
        (5000, 2000, (1, 2, 1, 1, 8)),  # several rows of two warps
        (1000, 100, (1, 1, 1, 0, 8)),
        (5000, 8000, (1, 8, 1, 5, 4)),
        (8, 1 << 15, (1, 8, 4, 5, 4)),  # a cluster for each row
        (8, 1 << 20, (64, 16, 1, 5, 2)),
        (3000, 20_001, (1, 4, 1, 2, 4)),  # in turns
    ],
)
def test_how_rows_are_cut_in_one_word(rows, length, fields):
    """Parts of a row, its warps in a block, blocks of a cluster, log2 of the warps, blocks of a multiprocessor."""
    word = choose(rows_of(rows, length)).count
    assert (word & 0xFFFFFFFF, *(word >> shift & 255 for shift in (32, 40, 48, 56))) == fields


@pytest.mark.parametrize(("apart", "aligned"), [(128_000, True), (128_016, True), (128_008, False)])
def test_runs_of_columns_whose_loads_are_aligned(apart, aligned):
    problem = layout.problem_of((3, 1000, 32), 4, axis=1, strides_bytes=(apart, 128, 4))
    assert column_policy._are_aligned(problem, Loads(4, 2), 4) is aligned


def ways_of(length, columns, *, itemsize=4, accumulator=8, wide=False):
    """Return what the ways of one kernel have in common, as if its loads were the fastest, and the ways."""
    loads = loads_of(itemsize, accumulator, wide=wide)
    problem = columns_of(length, columns, itemsize)
    ways = column_policy.ways(Task(problem, HOPPER, itemsize, accumulator))
    found = [(way, of) for way, of in ways if of.loads == loads]
    return found[0][1]._replace(slower=1.0), [way for way, _ in found]


def test_room_for_the_folds_of_columns():
    assert [places_of(size) for size in (8, 9, 32, 33)] == [512, 256, 256, 64]
    each = [
        max(way.tile.vectors * way.tile.columns // way.threads for way in ways_of(100_000, 64, accumulator=size)[1])
        for size in (32, 33)
    ]
    assert each == [32, 8]  # eight rounds of four vectors, and two


def test_ways_to_cut_columns():
    """Sectors side by side at least; what threads and blocks have room for at most."""
    _, ways = ways_of(100_000, 1000)
    assert {way.tile.columns for way in ways} == {8, 16, 32, 64, 128, 256}
    assert {way.tile.turns for way in ways} == {1, 2, 4, 8, 16, 32}
    for way in ways:
        each = way.tile.vectors * way.tile.columns // way.threads
        assert 4 <= each <= 32
        assert way.tile.turns == 1 or (each == 32 and way.tile.columns * way.tile.turns.bit_length() <= 512)
        assert way.folded_by != "cluster" or way.parts * way.tile.columns <= 512
        assert way.making == -(-1000 // way.tile.columns) * way.parts
    assert max(way.tile.columns * way.tile.turns.bit_length() for way in ways if way.tile.turns > 1) == 512
    assert {way.tile.columns for way in ways_of(100_000, 5)[1]} == {8}
    for columns, most in ((31, 8), (32, 32)):  # of less than a line, a thread has few vectors: so has the one behind it
        each = {way.tile.vectors * way.tile.columns // way.threads for way in ways_of(100_000, columns)[1]}
        assert max(each) == most
    assert max(way.tile.vectors * way.tile.turns for way in ways_of(3000, 1000)[1]) == 1024  # the next power of two
    clusters = [way for way in ways_of(1 << 17, 1000)[1] if way.folded_by == "cluster"]
    assert max(way.parts * way.tile.columns for way in clusters) == 512


def folded_by(parts, making, *, threads=256, columns=32, resident=3, facts=HOPPER, **options):
    of = ways_of(1 << 17, 1000)[0]
    of = of._replace(resident=resident, task=of.task._replace(facts=facts))
    cut = Cut(Tile(columns, 64, 1), threads, columns, 64, columns, (1.0,), 0.0, 0.0)
    return column_policy._folded_by(cut, of, parts, making, **options)


@pytest.mark.parametrize(
    ("parts", "columns", "by"),
    [(1, 32, "nobody"), (2, 256, "cluster"), (2, 512, "warps"), (8, 64, "cluster"), (8, 128, "warps"),
     (9, 32, "warps"), (128, 32, "warps"), (129, 32, "blocks")],
)  # fmt: skip
def test_who_folds(parts, columns, by):
    """A cluster, if its first block has room for what all bring of the columns."""
    apart = "warps" if by == "cluster" else by
    assert folded_by(parts, 132, columns=columns) == by
    assert folded_by(parts, 132, columns=columns, facts=ADA) == apart
    assert folded_by(parts, 132, columns=columns, in_cluster=False) == apart


def test_clusters_run_at_once_and_small_blocks_are_few():
    assert [folded_by(8, making) for making in (264, 265)] == ["cluster", "warps"]
    assert [folded_by(8, making, resident=2) for making in (132, 133)] == ["cluster", "warps"]
    assert [folded_by(9, making) for making in (264, 10**6)] == ["warps", "warps"]
    assert [folded_by(1, making, threads=128) for making in (264, 265)] == ["nobody", None]


def test_modelled_costs():
    """In microseconds, by hand: reading and what is between, of the waves of blocks."""
    of, _ = ways_of(256, 32 * 132)
    round_bytes = 256 * 4 * 16  # of a block: sixteen loads of each thread
    alone = Way(Tile(32, 32, 1), 256, 132, 1, "nobody")  # a block for each multiprocessor, and a round each
    reading = round_bytes / 24e3 * 1.02  # a line side by side
    rest = 1 + 0.002  # before and after, and a partial
    assert column_policy.cost(alone, of) == pytest.approx(max(1.2, reading + 0.35) + 0.6 + 1 + rest + 132e-5)
    three = alone._replace(making=3 * 132)
    turn = max(1.2, 3 * reading + 0.35 / 9) + 0.6 / 9
    assert column_policy.cost(three, of) == pytest.approx(turn + 1 / 3 + rest + 3 * 132e-5)
    more = alone._replace(making=3 * 132 + 1)  # a second wave
    assert column_policy.cost(more, of) == pytest.approx(2 * (turn + 1 / 3) + rest + (3 * 132 + 1) * 1e-5)
    many = alone._replace(making=33 * 66)  # five waves and a half
    assert column_policy.cost(many, of) == pytest.approx(5.5 * (turn + 1 / 3) + rest + 33 * 66e-5)
    shared = alone._replace(parts=2, folded_by="warps")
    partials = 132 * 32 * 32 / 132 / 24e3
    assert column_policy.cost(shared, of) - column_policy.cost(alone, of) == pytest.approx(partials + 1 + 0.002)
    of_turns = alone._replace(tile=Tile(32, 32, 4))
    assert column_policy.cost(of_turns, of) - column_policy.cost(alone, of) == pytest.approx(
        3 * (max(1.2, reading + 0.35) + 0.6)
    )


def test_modelled_costs_of_all_columns_of_an_array_and_of_short_ones():
    """Blocks that have all read no broken lines, and elements that are absent are not read."""

    def cost(length):
        of, _ = ways_of(length, 32)
        return column_policy.cost(Way(Tile(32, 256, 1), 256, 3 * 132, 1, "nobody"), of)

    reading = 256 * 4 * 16 / 24e3  # of a block, in each of eight rounds
    assert cost(1024) == pytest.approx(8 * (3 * reading + 0.35 / 9) + 0.6 / 9 + 1 / 3 + 1 + 0.002 + 3 * 132e-5)
    assert cost(15) < cost(16) == cost(1024)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((512, 512, 512), (0, 2)),
        ((32, 256, 56, 56), (0, 2, 3)),
        ((128, 8, 16, 24), (0, 3)),
        ((32, 128, 56, 64), (1, 3)),
    ],
)
@pytest.mark.parametrize("narrow", [True, False])
def test_rows_in_runs_of_whole_vectors_are_mapped_like_contiguous_ones(shape, axis, narrow):
    def mapped(problem):
        way = row_policy.choose_rows(Task(problem, HOPPER, 4, 8 if narrow else 24, heavy=not narrow))
        return way.name, way.blocks, way.warps_of_a_row, way.parts, way.folders, way.warps, way.cluster

    runs = layout.problem_of(shape, 4, axis=axis)
    assert runs.kind == "strided"
    assert mapped(runs) == mapped(rows_of(runs.rows, runs.length))


def test_strided_rows_of_two_leaves_have_a_block_each():
    """Contiguous ones come two to a block, by a kernel that strided ones do without."""
    runs = layout.problem_of((128, 5000, 16), 4, axis=(0, 2))
    found = [choose(problem) for problem in (runs, rows_of(runs.rows, runs.length))]
    assert [(way.kernel, way.blocks, way.warps) for way in found] == [("batch", 5000, 2), ("at_once", 2500, 4)]


@pytest.mark.parametrize(
    ("strides", "aligned"),
    [((4096, 64, 4), True), ((4096, 60, 4), False), ((4100, 64, 4), False), ((4096, 64, 8), False)],
)
def test_runs_in_which_vectors_begin_at_multiples_of_sixteen_bytes(strides, aligned):
    def problem(run):
        return layout.problem_of((5, 7, run), 4, axis=(0, 2), strides_bytes=strides)

    assert row_policy.are_aligned(problem(8), 4) is aligned
    assert not row_policy.are_aligned(problem(7), 4)


@pytest.mark.parametrize("outer", [(), ((3, 4000, 1600),)])
def test_strides_of_both_arrays_have_their_own_fields(outer):
    """Of each axis its size, the size's reciprocal, its stride and the second array's: side by side if it is kept."""
    sizes, strides, seconds = zip(*outer, (6, 400, 16), (10, 8, 96), strict=True)
    problem = layout.problem_of(
        sizes, 4, axis=-1, strides_bytes=strides, second_strides_bytes=seconds, second_itemsize=4
    )
    values = fields.shape_values(problem)[4:]
    most = layout.MAX_AXES
    for number, first, between, apart, axes in (
        (0, 2, 1, 5, ((6, 400, 16), *outer)),
        (1, 2 + 5 * most, most, 1, ((10, 8, 96),)),
    ):
        assert values[number] == len(axes)
        for place, expected in enumerate(axes):
            at = first + apart * place
            assert tuple(values[at + kind * between] for kind in (0, 2, 3)) == expected

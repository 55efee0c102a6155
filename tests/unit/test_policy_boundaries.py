"""What the policies choose on both sides of each of their boundaries: a number moved by one shows here."""

import pytest

from lowlevel_reduce import UnsupportedError, column_policy, column_tiles, kernels, layout, policy, row_policy
from lowlevel_reduce.column_tiles import Together, Way
from lowlevel_reduce.policy import DeviceFacts

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


def choose(problem, facts=HOPPER, *, itemsize=4, accumulator=8, **options):
    return row_policy.choose_rows(problem, facts, itemsize=itemsize, accumulator_bytes=accumulator, **options)


def test_rows_of_more_than_a_leaf_are_not_short():
    assert [choose(rows_of(5, length)).name for length in (1023, 1024, 1025)] == ["short_rows", "short_rows", "batch"]


@pytest.mark.parametrize(
    ("accumulator", "itemsize", "heavy", "residents"),
    [
        (8, 4, False, (4, 8)),
        (9, 4, False, (3, 6)),
        (16, 4, False, (3, 6)),
        (17, 4, False, (2, 4)),
        (4, 2, False, (3, 8)),
        (8, 3, False, (4, 8)),
        (8, 4, True, (2, 4)),
        (16, 4, True, (2, 4)),
    ],
)
def test_blocks_of_rows_on_a_multiprocessor(accumulator, itemsize, heavy, residents):
    """Where a warp has rows, or several leaves, and where each has one leaf."""
    rows = row_policy.RowStrategy("rows", 1, (1, 0))
    leaves = row_policy.RowStrategy("batch", 1, (1, 0), warps=4)
    options = {"itemsize": itemsize, "accumulator_bytes": accumulator, "heavy": heavy, "two_arrays": False}
    assert tuple(row_policy._resident_blocks_of_rows(each, **options) for each in (rows, leaves)) == residents


def test_blocks_of_strided_rows_on_a_multiprocessor():
    """Gathering takes more registers than loading vectors."""

    def resident(name, itemsize, accumulator):
        way = row_policy.RowStrategy(name, 1, (1, 0), contiguous=False)
        return row_policy._resident_blocks_of_rows(way, itemsize, accumulator, heavy=False, two_arrays=False)

    assert [resident("rows", itemsize, 8) for itemsize in (1, 2, 4, 8)] == [3, 3, 3, 3]
    assert [resident("rows", 4, accumulator) for accumulator in (16, 17)] == [3, 2]
    assert [resident("short_rows", itemsize, 8) for itemsize in (2, 4)] == [2, 2]


def test_blocks_of_two_arrays_on_a_multiprocessor():
    def resident(itemsize, accumulator, contiguous=True, name="rows"):
        rows = row_policy.RowStrategy(name, 1, (1, 0), contiguous=contiguous)
        return row_policy._resident_blocks_of_rows(rows, itemsize, accumulator, heavy=True, two_arrays=True)

    assert (resident(4, 8), resident(2, 8), resident(4, 9), resident(4, 7)) == (4, 2, 2, 2)
    assert (resident(8, 8), resident(4, 8, contiguous=False)) == (4, 2)
    batch = row_policy.RowStrategy("batch", 1, (1, 0), warps=8)
    options = {"itemsize": 4, "heavy": True, "two_arrays": True}
    found = [row_policy._resident_blocks_of_rows(batch, accumulator_bytes=size, **options) for size in (8, 9, 16, 17)]
    assert found == [4, 2, 2, 2]
    strided = row_policy.RowStrategy("batch", 1, (1, 0), warps=8, contiguous=False)
    assert row_policy._resident_blocks_of_rows(strided, accumulator_bytes=8, **options) == 3
    narrower = row_policy.RowStrategy("rows", 1, (1, 0), warps=4)
    assert row_policy._resident_blocks_of_rows(narrower, accumulator_bytes=8, **options) == 2
    short = row_policy.RowStrategy("short_rows", 1, (), warps=4)
    assert row_policy._resident_blocks_of_rows(short, accumulator_bytes=8, **options) == 4


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
    problem = rows_of(rows, leaves * 1024)
    options = {"narrow": True, "two_arrays": False}
    assert (row_policy._why_cut(problem, HOPPER, 4, leaves, **options) is not None) is cut
    if rows == 1056:
        assert row_policy._why_cut(problem, HOPPER, 4, leaves, narrow=False, two_arrays=False) is None
        assert row_policy._why_cut(problem, HOPPER, 4, leaves, narrow=True, two_arrays=True) is None


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
    assert row_policy._are_many_at_any_address(problem, HOPPER, 4, two_arrays=False) is many
    assert choose(problem).template == ((3, 1) if many else (4, 0))


@pytest.mark.parametrize(("vector", "words"), [(1, False), (2, True), (4, True), (8, False), (16, False)])
def test_rows_of_words(vector, words):
    itemsize = 16 // vector
    problem = rows_of(10, 5001, itemsize, stride=5001 * itemsize + itemsize)
    assert row_policy._takes_words(problem, vector, two_arrays=False) is (words and vector != 1)
    whole = rows_of(10, 5008, itemsize, stride=5008 * itemsize)
    assert not row_policy._takes_words(whole, vector, two_arrays=False)
    if vector > 1:  # whole vectors that begin between those of the row before
        between = rows_of(10, 5008, itemsize, stride=5009 * itemsize)
        assert row_policy._takes_words(between, vector, two_arrays=False) is words
    assert not row_policy._takes_words(problem, vector, two_arrays=True)


def test_little_of_a_second_leaf_gets_a_warp_in_rows_at_any_address():
    """Fewer of them than fill the device."""
    assert choose(rows_of(900, 1024 + 513, stride=4 * 1541)).template == (2, 0)
    assert choose(rows_of(900, 1024 + 512, stride=4 * 1541)).template == (2, 1)


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
    assert row_policy._tiles_of_a_row(rows, leaves, HOPPER, narrow=True) == tiles


def test_tiles_of_a_row_of_wide_accumulators():
    assert row_policy._tiles_of_a_row(3000, 11, HOPPER, narrow=False) == (8, 1)
    assert row_policy._tiles_of_a_row(1000, 32, ADA, narrow=True) == (16, 1)


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
    [(0, 0, 1), (4, 0, 1), (5, 1, 1), (128, 5, 2), (129, 6, 3), (512, 7, 5), (513, 8, 10)],
)
def test_short_rows(length, levels, blocks):
    """Ten rows: how many levels of the tree one has in lanes and steps, and in how many blocks of one warp they are."""
    chosen = choose(rows_of(10, length, stride=4 * 1024))
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
    found = kernels.short_row_values(problem, strategy, 4, second_itemsize)
    assert found == (*values, *(values[-3:] if second_itemsize else (0, 0, 0)))
    assert len(kernels.signature("short_rows")) == len(kernels.signature("shaped")) + len(found)


@pytest.mark.parametrize("length", [4, 8, 128, 512])  # one, two and thirty-two lanes a row, in one step and in four
def test_rows_of_a_warp(length):
    rows = {4: 4 * 32, 8: 8 * 16, 128: 8, 512: 2}[length]
    assert [choose(rows_of(count, length, stride=4 * 1024)).blocks for count in (rows, rows + 1)] == [1, 2]


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
    time = row_policy._time
    assert time(132, 8.0, 8, HOPPER) == 8.0  # all busy
    assert time(132, 16.0, 8, HOPPER) == 16.0 + 30.0
    assert time(132, 24.0, 8, HOPPER) == 24.0 + 34.0
    assert time(132, 7.0, 8, HOPPER) == pytest.approx(7 * (1 + 2.2 * (0.94 - 0.875) ** 2))
    assert time(132, 7.52, 8, HOPPER) == pytest.approx(7.52)  # enough of them
    assert time(132, 8.5, 8, HOPPER) == pytest.approx(8.5 * (1 + 2.2 * (0.94 - 8.5 / 12) ** 2) + 30)


# Columns


@pytest.mark.parametrize(
    ("itemsize", "accumulator", "heavy", "resident"),
    [
        (1, 4, False, 3),
        (1, 5, False, 2),
        (2, 12, False, 4),
        (2, 13, False, 3),
        (4, 24, False, 3),
        (4, 25, False, 2),
        (4, 4, True, 2),
    ],
)
def test_blocks_of_columns_on_a_multiprocessor(itemsize, accumulator, heavy, resident):
    assert column_policy._resident_blocks_of_columns(itemsize, accumulator, heavy=heavy) == resident


def test_columns_that_one_thread_has_alone():
    def folds_alone(length, columns, itemsize=4, accumulator=8, stride=None):
        chosen = column_policy.choose_columns(
            columns_of(length, columns, itemsize, stride), HOPPER, itemsize, accumulator, heavy=False
        )
        return chosen.template[-1] == 0

    enough = 4 * 132 * 256  # threads
    assert folds_alone(16, 40)  # two columns of sixteen elements, 128 bytes
    assert not folds_alone(17, 40)
    assert folds_alone(128, 2 * enough)  # two columns a thread
    assert not folds_alone(128, 2 * enough - 2)
    assert not folds_alone(129, 2 * enough)  # more vectors than lanes


@pytest.mark.parametrize(
    ("columns", "stride", "fills"), [(32, None, True), (31, 128, False), (36, None, True), (32, 132, False)]
)
def test_columns_that_fill_vectors(columns, stride, fills):
    assert column_policy._fills_vectors(columns_of(1000, columns, stride=stride), 4) is fills


@pytest.mark.parametrize(
    ("columns", "accumulator", "widths"),
    [
        (64, 8, {1: 1.0}),  # 256 bytes in whole lines
        (96, 8, {1: 1.03, 4: 1.0}),
        (68, 8, {1: 1.2, 4: 1.0}),  # broken lines
        (64, 4, {1: 1.2, 4: 1.0}),
        (64, 5, {1: 1.0}),
    ],
)
def test_how_many_columns_a_thread_may_have(columns, accumulator, widths):
    problem = columns_of(1000, columns)
    if accumulator == 5:
        assert column_policy._widths(problem, 2, 4, accumulator, two_arrays=False) == {2: 1.0}  # was not measured
    else:
        assert column_policy._widths(problem, 2, 4, accumulator, two_arrays=False) == widths


@pytest.mark.parametrize(
    ("itemsize", "held", "accumulator", "stride", "width"),
    [
        (4, 16, 4, 4000, 4),
        (4, 16, 4, 4008, 2),
        (4, 16, 4, 4004, 1),
        (4, 16, 8, 4000, 2),
        (4, 16, 16, 4000, 1),
        (4, 8, 16, 4000, 1),
        (2, 16, 4, 4002, 4),
        (1, 32, 4, 4001, 8),
        (8, 32, 8, 4008, 1),
        (8, 32, 8, 4000, 2),
    ],
)
def test_columns_side_by_side(itemsize, held, accumulator, stride, width):
    problem = columns_of(1000, 100, itemsize, stride)
    assert column_policy._side_by_side(problem, itemsize, accumulator, held) == width


def test_loads_of_sixteen_bytes_are_wide_from_elements_of_four_on():
    found = {(w, s) for w in (1, 2, 4, 8, 16) for s in (1, 2, 4, 8, 16) if column_tiles.is_wide(w, s)}
    assert found == {(4, 4), (2, 8)}


def together(problem, width=1, *, accumulator=8, facts=HOPPER, tree=(32, 8)):
    return Together(problem, facts, width, tree, 4, accumulator, 4, 1.0)


@pytest.mark.parametrize(("width", "lanes", "most"), [(1, 1, 237), (1, 2, 237), (1, 4, 528), (4, 1, 528)], ids=str)
def test_blocks_that_let_the_next_launch_in_early(width, lanes, most):
    """1.8 or four for each of 132 multiprocessors."""
    columns = together(columns_of(5000, 256), width)
    assert [columns.is_early(Way(32, lanes, "nobody"), blocks) for blocks in (most, most + 1)] == [False, True]


def test_what_reading_ahead_saves():
    assert together(columns_of(5000, 256), 4).saved_early(9.0) == 0.4
    assert together(columns_of(5000, 256)).saved_early(1) == 0.85
    assert together(columns_of(5000, 256)).saved_early(1.01) == 0.0
    assert together(columns_of(5000, 255)).saved_early(1) == 0.65
    assert together(columns_of(5000, 256, stride=1028)).saved_early(1) == 0.65


def test_tiles_of_a_column_that_are_a_cluster():
    """From two to eight, and no more blocks than multiprocessors."""
    way = Way(32, 1, "cluster")  # tiles of eight lanes, 32 columns wide

    def fits(leaves, columns, **options):
        return together(columns_of(leaves * 1024, columns), **options).fits_clusters(way)

    assert [fits(leaves, 32) for leaves in (1, 2, 3)] == [True, True, False]  # four tiles, eight, twelve
    assert [fits(2, columns) for columns in (512, 513)] == [True, False]  # 128 blocks, 136
    assert fits(2, 16 * 32, facts=HOPPER._replace(multiprocessors=128))
    assert not fits(2, 16 * 32, facts=HOPPER._replace(multiprocessors=127))
    assert not fits(2, 32, facts=HOPPER._replace(multiprocessors=63))  # clusters of four
    assert not together(columns_of(32, 32), tree=(8, 1)).fits_clusters(way)  # one tile
    assert not fits(2, 32, accumulator=256)  # no room in shared memory


@pytest.mark.parametrize(
    ("columns", "stride", "beside", "width", "by"),
    [
        (64, None, 4, 1, "warps"),
        (64, None, 2, 1, "nobody"),  # a warp's threads load eight bytes side by side
        (64, None, 2, 2, "warps"),
        (63, None, 64, 1, "teams"),
        (63, None, 63, 1, "teams"),
        (63, None, 62, 1, "nobody"),
        (63, 256, 2, 1, "nobody"),
        (63, 260, 64, 1, "nobody"),
    ],
)
def test_who_copies(columns, stride, beside, width, by):
    assert together(columns_of(5000, columns, stride=stride), width).copied_by(beside) == by


@pytest.mark.parametrize(
    ("arguments", "in_cluster", "size"),
    [
        # places + what is brought + a level for each power of two of lanes + slots of the warps + alignment
        ((32, 1, 1, 8), False, 256 * 128 + 256 * 8 + 1 * 32 * 8 + 2 * 8 * 8 + 128),
        ((32, 32, 1, 8), False, 256 * 128 + 256 * 8 + 6 * 32 * 8 + 2 * 8 * 8 + 128),
        ((31, 1, 1, 8), False, 256 * 128 + 8 * 31 * 8 + 1 * 31 * 8 + 2 * 8 * 8 + 128),
        ((32, 1, 4, 8), False, 256 * 128 + 256 * 32 + 1 * 32 * 32 + 2 * 8 * 8 + 128),  # 32 bytes of a thread
        ((32, 1, 4, 9), False, 256 * 64 + 256 * 9 + 1 * 32 * 36 + 2 * 8 * 9 + 128),  # more
        ((32, 1, 1, 16), False, 256 * 128 + 256 * 16 + 1 * 32 * 16 + 2 * 8 * 16 + 128),
        ((32, 1, 1, 8), True, 256 * 128 + 256 * 8 + 1 * 32 * 8 + 2 * 8 * 8 + 128 + 16 + 8 * 32 * 8),
    ],
    ids=str,
)
def test_shared_memory_of_a_block(arguments, in_cluster, size):
    assert column_tiles.shared_bytes(*arguments, in_cluster=in_cluster) == size


@pytest.mark.parametrize(
    ("columns", "width", "itemsize", "accumulator", "most"),
    [
        (128, 1, 4, 8, 32),  # whole lines
        (128, 1, 4, 9, 16),
        (129, 1, 4, 8, 4),  # broken lines of more than 128 columns
        (127, 1, 4, 8, 32),  # all of one block
        (255, 1, 4, 8, 4),
        (132, 4, 4, 8, 2),
        (255, 2, 2, 8, 4),
        (100, 1, 2, 4, 4),
    ],
)
def test_lanes_of_a_thread(columns, width, itemsize, accumulator, most):
    problem, threads = columns_of(5000, columns, itemsize), -(-columns // width)
    assert column_tiles._lanes_of_a_thread(problem, threads, width, itemsize, accumulator) == most


@pytest.mark.parametrize(
    ("columns", "width", "itemsize", "besides"),
    [
        (127, 1, 4, [128]),  # broken lines that are all of one block
        (128, 1, 4, [64, 32, 16, 8]),
        (129, 1, 4, [64, 32, 16, 8]),
        (1024, 4, 4, [16, 8, 4]),  # 256, 128 and 64 bytes, and not two threads
        (1004, 4, 4, [32, 16, 8, 4]),
        (8, 1, 4, [8]),
        (32, 1, 8, [32, 16, 8, 4]),
        (16, 4, 2, [4]),
        (2, 1, 16, [2]),
    ],
)
def test_threads_side_by_side(columns, width, itemsize, besides):
    problem, threads = columns_of(5000, columns, itemsize), -(-columns // width)
    assert column_tiles._besides(problem, threads, width, itemsize) == besides


@pytest.mark.parametrize(
    ("rows", "parts", "resident", "by"),
    [
        (512, 2, 4, ("warps",)),
        (512, 8, 4, ("warps",)),
        (512, 9, 4, ("warps", "blocks")),
        (512, 9, 3, ("warps", "blocks")),
        (512, 9, 2, ("warps",)),
        (513, 9, 4, ("warps",)),
        (512, 128, 4, ("warps", "blocks")),
        (512, 129, 4, ("blocks",)),
    ],
)
def test_who_folds(rows, parts, resident, by):
    assert column_tiles.folding(rows, parts, resident) == by


def test_ways_have_room_in_shared_memory():
    """48 KiB, and thirty-two threads with one lane each where nothing has room."""
    for accumulator in (8, 40, 64, 100, 200, 1000):
        columns = together(columns_of(100_000, 4096), accumulator=accumulator)
        shapes = {(way.beside, way.lanes) for way in columns.ways()}
        taken = [column_tiles.shared_bytes(*shape, 1, accumulator) for shape in shapes]
        assert max(taken) <= 48 << 10 if accumulator < 1000 else shapes == {(32, 1)}


def test_modelled_costs():
    """In rounds, by hand: loads and starts of full waves, and of what is left in the last."""
    full, way = 132 * 4, Way(32, 1, "nobody")  # blocks of a wave; 32 columns and all eight lanes of the tree a block
    columns = together(columns_of(256, 32 * full), tree=(8, 1))
    assert columns.cut(way) == (8, 1, 0, full)
    # 16 bytes of a lane are an eighth of a round; 128 bytes side by side cost 1.3 %, and one wave 1 %.
    assert columns.cost(way) == pytest.approx((0.125 + 0.35) * 1.01 * 1.013)
    more = together(columns_of(256, 32 * (full + 1)), tree=(8, 1))  # of which the last does not keep the memory busy
    assert more.cost(way) == pytest.approx((0.125 + 0.35) * (1 + 1.15 / 4) * 1.01 * 1.013)
    half = together(columns_of(256, 32 * full * 3 // 2), tree=(8, 1))
    assert half.cost(way) == pytest.approx((0.125 + 0.35) * 1.5 * 1.01 * 1.013)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((512, 512, 512), (0, 2)),
        ((32, 256, 56, 56), (0, 2, 3)),
        ((128, 8, 16, 16), (0, 3)),
        ((32, 128, 56, 64), (1, 3)),
    ],
)
@pytest.mark.parametrize("narrow", [True, False])
def test_rows_in_runs_of_whole_vectors_are_mapped_like_contiguous_ones(shape, axis, narrow):
    def mapped(problem):
        sizes = {"itemsize": 4, "accumulator_bytes": 8 if narrow else 24, "heavy": not narrow}
        way = row_policy.choose_rows(problem, HOPPER, **sizes)
        return way.name, way.blocks, way.template, way.parts, way.folders, way.warps, way.cluster

    runs = layout.problem_of(shape, 4, axis=axis)
    assert runs.kind == "strided"
    assert mapped(runs) == mapped(rows_of(runs.rows, runs.length))


@pytest.mark.parametrize(
    ("strides", "aligned"),
    [((4096, 64, 4), True), ((4096, 60, 4), False), ((4100, 64, 4), False), ((4096, 64, 8), False)],
)
def test_runs_in_which_vectors_begin_at_multiples_of_sixteen_bytes(strides, aligned):
    def problem(run):
        return layout.problem_of((5, 7, run), 4, axis=(0, 2), strides_bytes=strides)

    assert row_policy._are_aligned(problem(8), 4) is aligned
    assert not row_policy._are_aligned(problem(7), 4)

"""Parts of rows as columns: which rows have such, how they are cut, and what folds their partials."""

import itertools
import math

import pytest

from lowlevel_reduce import layout
from lowlevel_reduce.dtypes import LANES, LEAF_BYTES, STEPS
from lowlevel_reduce.strategy import joined_columns
from lowlevel_reduce.strategy.fields import shape_values
from lowlevel_reduce.strategy.joined_columns import groups_of_tiles, in_memory, parts_of_rows
from lowlevel_reduce.strategy.selection import request_of, select, why
from lowlevel_reduce.strategy.whole import HEADER_BYTES, DeviceFacts

H200 = DeviceFacts((9, 0), 132, clusters=True, cooperative=True)

LEAVES = ((128, 1 << 10, 1 << 4), (2, 256, 1 << 18))
"""A shape and strides in bytes: 128 neighbours of two bytes, each with eight leaves."""


def problem_of(shape, strides, itemsize=4, axis=None):
    return layout.problem_of(shape, itemsize, axis=axis, strides_bytes=strides)


def parts(shape, strides, itemsize=4, axis=None):
    found = parts_of_rows(problem_of(shape, strides, itemsize, axis), itemsize)
    return found and (found[0].length, found[1])


def chosen(op="sum", dtype="bfloat16", shape=LEAVES[0], strides=LEAVES[1], axis=None):
    request = request_of(op, shape=shape, dtype=dtype, axis=axis, strides_bytes=strides)
    return request, select(request, H200)


def test_which_rows_have_parts():
    of = (7, 1 << 10, 1 << 8)  # neighbours, and what is inside their axis
    assert parts(of, (4, 28, 28 << 10)) == (1 << 18, 7)
    assert parts(of, (-4, 28, 28 << 10)) == (1 << 18, 7)
    assert parts(of, (28, 224, 224 << 10)) == (1 << 18, 7), "neighbours may lie apart, in the same sectors"
    assert parts(of, (32, 224, 224 << 10)) is None, "else nothing is shared"
    assert parts(of, (0, 28, 28 << 10)) is None
    assert parts((7, 1 << 10, 257), (4, 28, 28 << 10)) == (257 << 10, 7)
    assert parts((7, 1 << 10, 257), (2, 14, 14 << 10), 2) is None, "a leaf of shorter elements has more of them"
    assert parts((7, 1023, 1 << 8), (4, 28, 28 << 10)) is None, "leaves would lie in two parts"
    assert parts((1 << 10, 7, 1 << 8), (28, 4, 28 << 10)) is None, "a part has less than a leaf"
    assert parts((1 << 10, 1 << 8, 7), (28, 28 << 10, 4)) is None, "neighbours follow each other in the row"
    assert parts((7, 1 << 18, 2), (16, 224, 8)) is None, "elements of a part are closer to each other than parts"
    assert parts((7, 1 << 10), (4, 28)) is None, "there is too little to read"
    assert parts((2, 71 << 10), (4, 8)) is None, "of two parts of odd leaves no tile has whole subtrees"
    assert parts((2, 72 << 10), (4, 8)) == (72 << 10, 2)


@pytest.mark.parametrize(("dtype", "size"), [("int8", 1), ("bfloat16", 2), ("float32", 4), ("complex128", 16)])
def test_a_few_parts_of_any_number_of_leaves_have_a_way(dtype, size):
    for count, leaves in itertools.product((2, 3, 5, 8), (69, 113, 256, 281)):
        _, selection = chosen(dtype=dtype, shape=(count, leaves * LEAF_BYTES // size), strides=(size, size * count))
        assert selection.strategy.joined in (1, count)


def beside(shape, strides, axis, seconds=None):
    """Return size and stride of the kept axes that memory has of float32."""
    found = layout.problem_of(
        shape, 4, axis=axis, strides_bytes=strides, second_strides_bytes=seconds, second_itemsize=4 if seconds else 0
    )
    return [axis[:2] for axis in in_memory(found, 4).kept]


def test_axes_that_memory_has_as_one():
    of, strides = (32, 7, 96, 600), (2688, 4, 28, 86016)  # 32 x 96 x 7 in memory
    assert beside(of, strides, 3) == [(21504, 4)]
    assert beside(of, strides, 3, strides) == [(21504, 4)]
    assert beside(of, strides, 3, (268800 * 6, 230400, 2400, 4)) == [(7, 4), (96, 28), (32, 2688)], "nor do seconds"
    assert beside(of, (2692, 4, 28, 86144), 3) == [(672, 4), (32, 2692)]
    assert beside((7, 96, 600), (384, 4, 2688), 2) == [(672, 4)], "the results have them as one, too"
    assert beside((3,) + (2,) * 3 + (600,), (4, 12, 28, 60, 400), 4) == [(6, 4), (2, 28), (2, 60)]
    without_room = beside((3,) + (2,) * 4 + (600,), (4, 12, 28, 60, 124, 800), 5)
    assert without_room == [(3, 4), (2, 12), (2, 28), (2, 60), (2, 124)]


def test_axes_that_are_left_as_the_results_have_them():
    assert beside((7, 96, 64), (4, 28, 2688), 2) == [(672, 4)]
    assert beside((7, 96, 63), (4, 28, 2688), 2) == [(7, 4), (96, 28)], "of short columns it is the results that count"
    assert beside((31, 96, 64), (4, 124, 11904), 2) == [(2976, 4)]
    assert beside((32, 96, 64), (4, 128, 12288), 2) == [(32, 4), (96, 128)], "a run has whole vectors"
    assert beside((33, 96, 64), (4, 132, 12672), 2) == [(33, 4), (96, 132)], "or a line"


def groups(shape, strides, tiles=1 << 20, **options):
    return groups_of_tiles(problem_of(shape, strides, 2, **options), tiles)


def test_from_how_many_groups_tiles_are_taken_in_turn():
    assert groups((37, 22_289_495), (2, 74)) == 37
    assert groups((37, 22_289_495), (2, 74), 36) == 1, "groups have a tile at least"
    assert groups((37, 1 << 19), (2, 74)) == 1, "a cache holds the sectors of a group"
    assert groups((37, (1 << 19) + 1), (2, 74)) == 37
    assert groups((5, 1 << 20), (2, 10)) == 1, "elements of a group share sectors"
    assert groups((5, 1 << 21), (2, 10)) == 5
    assert groups((37, 22_289_495), (32, 1184)) == 1, "neighbours share none"
    assert groups((22_289_495, 37), (74, 2)) == 1, "neighbours follow each other"
    assert groups((4, 37, 1 << 20), (2 * 37 << 20, 2, 74)) == 4 * 37
    assert groups((4, 37, 1 << 20), (2 * 37 << 20, 2, 74), axis=(1, 2)) == 4 * 37
    assert groups((1 << 16, 1 << 20), (2, 2 << 16)) == 1, "more than half a word counts"


def test_the_argument_has_the_axes_of_the_results_behind_those_of_memory():
    problem = layout.problem_of((7, 96, 600), 4, axis=2, strides_bytes=(4, 28, 2688))
    values = shape_values(in_memory(problem, 4), results=problem.kept)
    assert values[4:6] == (1, 1)
    assert (values[6], values[8]) == (672, 4)
    assert [(values[11 + 5 * i], values[15 + 5 * i]) for i in (0, 1)] == [(7, 96), (96, 1)]
    assert values[-4] == 2 << 32 | 1
    assert shape_values(problem)[-4] == 2 << 32
    assert shape_values(layout.problem_of((7, 96, 600), 4, axis=2))[-4] == 0


def test_what_is_remembered_of_other_rows_is_not_taken_for_them():
    """Rows as long and as many, whose elements lie elsewhere, are cut by their length alone."""
    one_axis = {"shape": (math.prod(LEAVES[0]),), "strides": (4,)}
    for _ in range(2):
        assert chosen(**one_axis)[1].strategy.name != "columns"
        assert chosen()[1].strategy.name == "columns"


def test_axes_outside_the_neighbours_are_parts_as_well():
    found, joined = parts_of_rows(problem_of((5, 7, 3, 1 << 16), (28 << 18, 4, 28 << 16, 28), axis=(0, 1, 3)), 4)
    assert (found.length, joined, found.rows) == (1 << 16, 35, 105)
    assert [axis.size for axis in found.kept] == [7, 5, 3]
    assert [axis.result_stride for axis in found.kept] == [0, 0, 1]


def test_blocks_have_whole_subtrees():
    for shape, strides, dtype in (
        (*LEAVES, "bfloat16"),
        ((7, 72, 2656, 3, 16), (4, 448, 96768, 32256, 28), "float32"),
        ((5, 3 << 10, 96), (8, 40, 40 * 3 << 10), "float64"),
        ((7, 8965, 1 << 10), (4, 28, 28 * 8965), "float32"),
    ):
        for op in ("sum", "mean_var", "argmax"):
            request, selection = chosen(op, dtype, shape, strides)
            strategy = selection.strategy
            assert strategy.joined == shape[0]
            vectors = math.prod(shape[1:]) * request.types.element.itemsize // 16
            assert vectors == strategy.parts * strategy.tile.vectors * strategy.tile.turns
            assert vectors % (LANES * STEPS) == 0
            assert why(request, H200).startswith("parts of a row")


@pytest.mark.parametrize("rows", [1, 3])
def test_runs_of_a_row_are_whole_or_the_last(rows):
    for partials in (1, 100, 1024, 1025, 1 << 14, 96 << 8, 15687):
        run = joined_columns._run(rows, partials)
        assert run & (run - 1) == 0
        assert run == 1 or rows == 1 or partials % run == 0
        assert (run > 1) <= (partials > 1024)
    assert joined_columns._run(rows, 1 << 14) == 128


def test_a_workspace_has_slots_for_partials_and_runs():
    _, selection = chosen("sum", "bfloat16", (128, 1 << 15, 1 << 8), (2, 256, 1 << 23))
    strategy = selection.strategy
    partials = 128 * strategy.parts
    assert strategy.partials == partials
    assert strategy.run == 128
    assert selection.workspace_bytes == HEADER_BYTES + 16 * (partials + partials // 128)
    few = strategy._replace(run=1)
    assert few.workspace_bytes(3, 8) == HEADER_BYTES + 16 * 3 * partials

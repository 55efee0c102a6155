"""Rows of few elements that are loaded one by one: how they are cut, and when they are preferred."""

import numpy as np
import pytest

from lowlevel_reduce import layout
from lowlevel_reduce.dtypes import LANES, STEPS, VECTOR_BYTES, element_type
from lowlevel_reduce.strategy import elements, rows, whole
from lowlevel_reduce.strategy.base import Task
from lowlevel_reduce.strategy.selection import request_of, select, why

HOPPER = whole.DeviceFacts((9, 0), 132, clusters=True, cooperative=True)


def problem_of(shape, axis, itemsize=4, strides=None):
    strides = None if strides is None else tuple(itemsize * stride for stride in strides)
    return layout.problem_of(shape, itemsize, axis=axis, strides_bytes=strides)


def places(problem, chosen, itemsize):
    """Return how often each element of each row has a thread's place, as `reduce_elements` in cuda_src counts them."""
    word = chosen.count
    step_bits, lane_bits, warp_bits, warps, own_shift, part_shift = (word >> 8 * k & 255 for k in range(6))
    each, vector, beside = elements.elements_of_a_thread(itemsize), VECTOR_BYTES // itemsize, 5 - lane_bits
    found = np.zeros((problem.rows, problem.length), int)
    thread = np.arange(chosen.block_threads)
    lane, warp = thread % LANES, thread // LANES
    own, part = lane >> own_shift & (1 << beside) - 1, lane >> part_shift & (1 << lane_bits) - 1
    part += (warp & (1 << warp_bits) - 1) << lane_bits
    past = (warp >> warp_bits << beside) + own
    of_block = 1 << warps - warp_bits + beside
    for first in range(0, problem.rows, of_block):
        for e in range(each):
            position = part * each + e
            number = position // vector
            index = ((number >> step_bits) + (number & (1 << step_bits) - 1) * LANES) * vector + position % vector
            there = (first + past < problem.rows) & (index < problem.length)
            np.add.at(found, (first + past[there], index[there]), 1)
    return found


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("length", [1, 2, 7, 9, 40, 200, 256])
def test_every_element_has_one_thread(itemsize, length):
    for shape, axis in (((300, length), 1), ((length, 300), 0), ((length, 5), 0), ((3, length, 7), 1)):
        problem = problem_of(shape, axis, itemsize)
        chosen = elements.choose_elements(Task(problem, HOPPER, itemsize, 8))
        assert (places(problem, chosen, itemsize) == 1).all()
        assert chosen.warps <= elements.ELEMENT_WARPS
        rows_of_a_block = chosen.tile.columns * chosen.warps // chosen.warps_of_a_row
        assert (chosen.blocks - 1) * rows_of_a_block < problem.rows <= chosen.blocks * rows_of_a_block


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
def test_a_leaf_of_any_type_fits_into_a_block(itemsize):
    length = LANES * STEPS * VECTOR_BYTES // itemsize
    for shape, axis in (((2, length), 1), ((length, 64), 0)):
        problem = problem_of(shape, axis, itemsize)
        chosen = elements.choose_elements(Task(problem, HOPPER, itemsize, 8))
        assert (places(problem, chosen, itemsize) == 1).all()
        assert chosen.block_threads <= 512


def test_large_grids_take_rows_in_turns_and_those_that_warps_share_do_not():
    many = elements.choose_elements(Task(problem_of((1 << 26, 3), 1, 1), HOPPER, 1, 8))
    assert many.blocks <= 132 * elements._BLOCKS
    shared = problem_of((1 << 20, 1000), 1)
    chosen = elements.choose_elements(Task(shared, HOPPER, 4, 8))
    assert chosen.warps_of_a_row == 4
    assert chosen.blocks * chosen.warps // 4 >= shared.rows


MANY = 4 * 128 * 132
"""Rows of up to four elements that leave each multiprocessor 128 threads if each of these takes four."""


@pytest.mark.parametrize(
    ("shape", "axis", "itemsize", "strides", "blocks", "together"),
    [
        ((MANY, 3), 1, 2, None, MANY // 1024, True),
        ((MANY - 1, 3), 1, 2, None, MANY // 256, False),
        ((MANY, 2), 1, 1, None, MANY // 1024, True),
        ((MANY, 5), 1, 2, None, MANY // 512, True),
        ((MANY // 2, 8), 1, 2, None, MANY // 1024, True),
        ((MANY, 9), 1, 1, None, MANY // 128, False),  # two threads' each
        ((MANY, 3), 1, 4, None, MANY // 256, False),
        ((MANY, 1), 1, 2, None, MANY // 256, False),
        ((3, MANY), 0, 2, (1, 3), MANY // 1024, True),
        ((MANY, 3), 1, 2, (5, 1), MANY // 1024, True),
        ((MANY, 3), 1, 2, (6, 2), MANY // 256, False),
        ((MANY, 3), 1, 2, (0, 1), MANY // 256, False),
        ((MANY, 3), 1, 1, (1 << 31, 1), MANY // 1024, True),
        ((MANY, 3), 1, 1, (1 << 32, 1), MANY // 256, False),
        ((MANY // 8, 8, 3), 2, 2, (25, 3, 1), MANY // 256, False),
    ],
)
def test_many_rows_of_few_small_elements_are_taken_together(shape, axis, itemsize, strides, blocks, together):
    chosen = elements.choose_elements(Task(problem_of(shape, axis, itemsize, strides), HOPPER, itemsize, 4))
    assert (chosen.blocks, chosen.together) == (blocks, together)
    assert chosen.count >> 48 & 3 == together


@pytest.mark.parametrize(
    ("shape", "axis", "itemsize", "blocks", "together"),
    [
        ((3, 2 * MANY), 0, 2, MANY // 1024, 3),  # sixteen bytes of a row to a thread
        ((3, 2 * MANY - 8), 0, 2, (2 * MANY - 8 + 255) // 256, 0),
        ((5, MANY), 0, 2, MANY // 1024, 2),  # eight
        ((3, MANY + 4), 0, 2, MANY // 1024 + 1, 2),  # which is what rows are multiples of
        ((3, MANY + 2), 0, 2, MANY // 256 + 1, 0),
        ((4, MANY), 0, 4, MANY // 1024, 3),
        ((9, MANY), 0, 2, MANY // 128, 0),  # two threads' each
        ((1, MANY), 0, 2, MANY // 256, 0),
        ((4, MANY), 0, 8, MANY // 256, 0),
        ((8, 2, MANY // 4), 1, 2, MANY // 1024, 3),
    ],
)
def test_many_columns_of_few_small_elements_are_taken_together(shape, axis, itemsize, blocks, together):
    chosen = elements.choose_elements(Task(problem_of(shape, axis, itemsize), HOPPER, itemsize, 8))
    assert (chosen.blocks, chosen.together) == (blocks, together)
    assert chosen.count >> 48 & 3 == together


def test_columns_in_another_order_than_their_results_are_taken_one_by_one():
    size = MANY // 4
    in_order = problem_of((8, 2, size), 1, 2)
    turned = problem_of((size, 2, 8), 1, 2, (1, size, 2 * size))
    assert elements.choose_elements(Task(in_order, HOPPER, 2, 4)).together
    assert not elements.choose_elements(Task(turned, HOPPER, 2, 4)).together


@pytest.mark.parametrize("told", [{"heavy": True}, {"two_arrays": True}, {"accumulator_bytes": 8}])
def test_rows_of_other_operators_are_taken_one_by_one(told):
    of = {"itemsize": 2, "accumulator_bytes": 4, **told}
    assert not elements.choose_elements(Task(problem_of((MANY, 3), 1, 2), HOPPER, **of)).together


def test_no_rows_take_no_blocks():
    for shape, axis in (((0, 3), 1), ((3, 0), 0)):
        assert elements.choose_elements(Task(problem_of(shape, axis), HOPPER, 4, 8)).blocks == 0


@pytest.mark.parametrize(
    ("shape", "axis", "itemsize", "strides", "taken"),
    [
        ((5, 1024), 1, 4, None, True),
        ((5, 1025), 1, 4, None, False),  # more than a leaf
        ((1 << 31, 2), 1, 1, None, False),  # numbers of rows have 31 bits
        (((1 << 31) - 1, 2), 1, 1, None, True),
        ((3, 4), 0, 1, (1 << 30, 1), False),  # elements 2^31 bytes apart
        ((2, 4), 0, 1, (1 << 30, 1), True),
        ((40,), 0, 4, None, False),  # a whole array
    ],
)
def test_what_it_takes(shape, axis, itemsize, strides, taken):
    problem = problem_of(shape, axis, itemsize, strides)
    assert elements.takes_elements(problem, itemsize) == taken
    if not taken:
        with pytest.raises(ValueError, match="'elements' does not go with"):
            rows.choose_rows(Task(problem, HOPPER, itemsize, 8), strategy="elements")


@pytest.mark.parametrize(("rows", "beside", "warps"), [(147, 4, 1), (2112, 4, 1), (2113, 16, 4)])
def test_small_launches_have_a_warp_to_a_row(rows, beside, warps):
    """Eight threads share a row of 38 elements: in small launches those of one warp, else rows fill a sector."""
    chosen = elements.choose_elements(Task(problem_of((38, rows), 0, 2), HOPPER, 2, 4))
    assert (chosen.tile.columns, chosen.warps_of_a_row) == (beside, warps)


FASTER = [
    ("dot", "float16", (6, 328, 32, 2), (0, 2, 3), None),
    ("sum", "float32", (520, 2, 4, 6, 16), (2, 4), None),
    ("dot", "bfloat16", (1214, 29), 0, (1, 1214)),
    ("sum", "float32", (32, 512, 16), (0, 2), (24576, 16, 1)),
    ("max", "int8", (7, 56, 24, 3), 3, None),
    ("mean_var", "bfloat16", (937, 3), 1, (9, 3)),
    ("argmax", "float32", (8, 6, 8, 3), 3, None),
    ("logsumexp", "float32", (176, 6), 1, None),
    ("logsumexp", "float32", (7, 416), 0, None),
    ("logsumexp", "float64", (16, 224), 1, None),
    ("logsumexp", "float16", (5120, 16), 1, (32, 1)),
    ("sum", "int8", (4, 512, 2, 256), 0, None),
    ("sum", "int8", (9, 7, 35, 446, 4), 4, None),
    ("mean_var", "float32", (4, 28_264), 0, None),
    ("mean_var", "float32", (16, 6, 392), 1, None),
    ("mean_var", "float64", (6, 472, 54_976), 0, None),
    ("argmax", "float32", (32, 32), 0, (64, 2)),
    ("argmax", "float16", (5, 248, 88, 5), 0, (0, 440, 5, 1)),
    ("argmax", "float32", (32, 448, 8), 2, None),
    ("argmax", "int8", (184, 1016, 744, 2), 3, None),
    ("argmax", "int8", (3, 70_745_192), 0, (1, 3)),
    ("argmax", "bfloat16", (16, 6, 8, 40, 1976), 2, None),
    ("argmax", "float32", (16, 8, 7, 48, 248), 0, (336, 1_333_248, 1, 7, 5376)),
    ("sum", "float32", (36, 4, 2, 5, 11), 4, None),
    ("sum", "float32", (16, 8, 256), 0, None),
    ("sum", "float32", (16, 2, 32, 64, 128), 1, None),
    ("sum", "float32", (8, 6, 40, 144), (0, 2), None),
    ("sum", "float64", (1690, 449), 1, None),
    ("sum", "bfloat16", (8, 1 << 20), 0, None),
    ("dot", "float16", (141, 35), 0, None),
    ("sum", "bfloat16", (112, 64), 0, None),
    ("logsumexp", "float16", (86, 88), 0, None),
    ("logsumexp", "bfloat16", (66, 1768), 0, None),
    ("mean_var", "bfloat16", (100, 2000), 0, None),
    ("sum", "bfloat16", (300, 500), 0, None),
    ("sum", "bfloat16", (127, 3357), 0, (6498, 1)),
    ("sum", "bfloat16", (18, 11, 9361), 1, None),
    ("sum", "bfloat16", (11_262_944, 6), 1, None),
    ("sum", "bfloat16", (4_194_301, 7), 1, None),
    ("sum", "bfloat16", (200_000, 22), 1, None),
    ("max", "int8", (6, 192, 704), 0, None),
    ("sum", "int8", (12, 40_000), 0, None),
    ("max", "int8", (8_000_000, 4), 1, None),
    ("sum", "int8", (8_000_000, 5), 1, None),
    ("max", "int8", (8_000_000, 7), 1, None),
]
SLOWER = [
    ("max", "float16", (1_500_000, 10), 1, None),
    ("sum", "int8", (4_000_000, 12), 1, None),
    ("mean", "bfloat16", (8, 32, 196, 768), 1, None),
    ("sum", "bfloat16", (8, 32, 1024, 128), 1, None),
    ("sum", "float32", (1 << 17, 32), 1, None),
    ("sum", "float32", (3872, 168, 2, 32, 1), 4, (5376, 32, 0, 1, 1)),
    ("sum", "float32", (13, 262, 38, 3, 557), 0, None),
    ("sum", "float32", (64, 1 << 14), 0, None),
    ("sum", "float64", (274_128, 144, 4), 2, None),
    ("sum", "bfloat16", (1116, 20, 96), (1, 2), None),
    ("sum", "bfloat16", (16, 16, 928, 3, 8), 4, None),
    ("mean_var", "float16", (1 << 14, 256), 1, (1024, 4)),
    ("mean_var", "float16", (1_890_304, 5, 16), 2, None),
    ("argmax", "int8", (2, 100, 8469, 5, 15), 4, None),
]
"""Cases by whether this kernel or another was faster on an H100 (benchmarks/NOTES.md, "Few elements to a thread")."""


@pytest.mark.parametrize(("case", "name"), [(case, "elements") for case in FASTER] + [(case, None) for case in SLOWER])
def test_it_is_preferred_where_it_was_faster(case, name):
    op, dtype, shape, axis, strides = case
    itemsize = element_type(dtype).itemsize
    strides = None if strides is None else tuple(itemsize * stride for stride in strides)
    second = {"second_strides_bytes": strides} if op == "dot" else {}
    request = request_of(op, shape=shape, dtype=dtype, axis=axis, strides_bytes=strides, **second)
    chosen = select(request, HOPPER).strategy
    assert (chosen.name == "elements") == (name is not None)
    assert (why(request, HOPPER).startswith("by the model of strategy/element_costs.py")) == (name is not None)


@pytest.mark.parametrize(
    ("op", "dtype", "shape", "axis", "wanted"),
    [
        ("argmax", "bfloat16", (176, 43), 0, "elements"),
        ("mean_var", "bfloat16", (33, 4149), 0, "elements"),
        ("mean_var", "bfloat16", (18, 11, 9361), 1, "elements"),
        ("mean_var", "bfloat16", (1056, 208), 0, "elements"),
        ("mean_var", "float16", (128, 1 << 14), 0, "columns"),
        ("mean_var", "float16", (1 << 17, 8), 1, "elements"),
        ("mean_var", "float16", (500, 1500), 1, "elements"),
        ("mean_var", "bfloat16", (312, 584), 1, "short_rows"),
        ("mean_var", "bfloat16", (1768, 48, 8, 248), 3, "short_rows"),
        ("logsumexp", "bfloat16", (3112, 24), 1, "elements"),
        ("logsumexp", "bfloat16", (40, 3496), 0, "elements"),
        ("logsumexp", "float16", (1224, 272), 1, "short_rows"),
    ],
)
def test_operators_of_several_numbers_take_what_was_faster(op, dtype, shape, axis, wanted):
    """As measured: benchmarks/NOTES.md, "Moments of two bytes"."""
    assert select(request_of(op, shape=shape, dtype=dtype, axis=axis), HOPPER).strategy.name == wanted


@pytest.mark.parametrize(
    ("op", "rows", "length", "name", "halved"),
    [
        ("logsumexp", 5140, 151, "elements", False),
        ("logsumexp", 12_000, 99, "elements", False),
        ("logsumexp", 12_000, 151, "elements", False),
        ("logsumexp", 20_000, 151, "short_rows", True),
        ("logsumexp", 40_000, 151, "short_rows", True),
        ("logsumexp", 80_000, 151, "short_rows", False),
        ("sum", 5140, 151, "elements", False),
        ("sum", 10_000, 151, "elements", False),
        ("sum", 20_000, 151, "short_rows", False),
        ("max", 20_000, 100, "elements", False),
    ],
)
def test_rows_of_some_dozens_of_small_elements_at_odd_addresses(op, rows, length, name, halved):
    """As measured on an H200: benchmarks/NOTES.md, "Transposed arrays"."""
    found = select(request_of(op, shape=(rows, length), dtype="bfloat16", axis=1), HOPPER).strategy
    assert (found.name, bool(found.halved)) == (name, halved)

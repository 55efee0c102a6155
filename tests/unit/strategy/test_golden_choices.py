"""What is chosen for random problems on several devices: what is recorded, and the same however it is found."""

import itertools
import random

import pytest

from lowlevel_reduce import layout
from lowlevel_reduce.strategy import columns, rows, selection, whole
from lowlevel_reduce.strategy.base import Task
from tests.golden import choices


@pytest.mark.parametrize("device", choices.DEVICES)
def test_what_is_recorded_is_chosen(device):
    """A change for a reason is recorded anew by ``python -m tests.golden.choices``."""
    found = [(problem, choices.choice(device, problem), then) for of, problem, then in choices.read() if of == device]
    assert len(found) == 70
    assert [(problem, now) for problem, now, then in found if now != then] == []


def assert_the_first_of_those_that_cost_least(problem, device, itemsize, accumulator, *, heavy, two_arrays):
    task = Task(problem, choices.DEVICES[device], itemsize, accumulator, heavy, two_arrays)
    least = min(columns.ways(task), key=lambda each: columns.cost(*each))
    assert columns.choose_columns(task) == columns.strategy_of(*least), problem


@pytest.mark.parametrize("device", ["A100", "H200", "a sixth of an H200"])
@pytest.mark.parametrize(("itemsize", "accumulator", "heavy", "two_arrays"), [
    (4, 8, False, False), (2, 4, False, False), (1, 8, False, False), (8, 16, False, False), (16, 16, False, False),
    (2, 24, True, False), (4, 12, True, False), (4, 8, True, True), (4, 40, True, False),
])  # fmt: skip
def test_columns_are_cut_in_the_first_of_the_ways_that_cost_least(device, itemsize, accumulator, heavy, two_arrays):
    """`choose_columns` looks at few of them."""
    rng = random.Random(itemsize * accumulator)
    for _ in range(16):
        length, side_by_side, runs = (int(2 ** rng.uniform(0, most)) for most in (20, 14, 4))
        stride = (side_by_side + rng.choice((0, 0, 1, 4))) * itemsize
        strides = (length * stride, stride, itemsize)
        problem = layout.problem_of((runs, length, side_by_side), itemsize, axis=1, strides_bytes=strides)
        if problem.kind == "columns":
            assert_the_first_of_those_that_cost_least(
                problem, device, itemsize, accumulator, heavy=heavy, two_arrays=two_arrays
            )


@pytest.mark.parametrize(
    ("length", "side_by_side", "itemsize", "accumulator"),
    [(1053, 26, 4, 40), (2026, 44, 4, 40), (1760, 195, 4, 64), (2758, 3724, 1, 8), (3497, 2281, 8, 16)],
)
def test_clusters_without_room_for_partials_cost_nothing_less(length, side_by_side, itemsize, accumulator):
    problem = layout.problem_of((length, side_by_side), itemsize, axis=0)
    assert_the_first_of_those_that_cost_least(
        problem, "H200", itemsize, accumulator, heavy=accumulator > 16, two_arrays=False
    )


@pytest.mark.parametrize(
    ("length", "side_by_side", "itemsize", "accumulator"),
    [(96, 6195, 2, 4), (116, 2439, 4, 40), (59, 25_065, 1, 8), (8, 29_189, 8, 16)],
)
def test_small_blocks_are_not_left_out_where_they_are_few(length, side_by_side, itemsize, accumulator):
    """Blocks of half as many warps give each multiprocessor one; with whole ones a third of them would have none."""
    problem = layout.problem_of((length, side_by_side), itemsize, axis=0)
    chosen = columns.choose_columns(Task(problem, choices.DEVICES["H200"], itemsize, accumulator, accumulator > 16))
    assert chosen.warps == 4
    assert chosen.blocks > 132 > chosen.blocks // 2


@pytest.mark.parametrize(
    ("shape", "apart"), [((8, 32, 1024, 128), True), ((8, 32, 196, 768), True), ((1, 104, 241_448), False)]
)
def test_threads_with_columns_of_their_own_see_no_waves(shape, apart):
    """Of elements of two bytes, as an H200 was faster."""
    problem = layout.problem_of(shape, 2, axis=1)
    chosen = columns.choose_columns(Task(problem, choices.DEVICES["H200"], 2, 4))
    assert (chosen.tile.columns == 8 * chosen.block_threads) == apart


def test_a_choice_that_is_remembered_is_for_the_same_strides_number_and_device():
    """Each differs from the one before in one thing that the choice depends on, and is asked for with all others."""
    given = [
        (length, columns_, itemsize, pad, axes, device)
        for length in (9, 40, 3000)
        for columns_ in (64, 65)
        for itemsize in (4, 8, 16)
        for pad in (0, 2, itemsize)
        for axes in (1, 2)
        for device in ("H200", "a sixth of an H200")
    ]
    problems = [
        layout.problem_of(
            (axes, length, columns_),
            itemsize,
            axis=(0, 1),
            strides_bytes=(1 << 22, columns_ * itemsize + pad, itemsize),
        )
        for length, columns_, itemsize, pad, axes, _ in given
    ]

    def chosen():
        return [
            columns.choose_columns(Task(problem, choices.DEVICES[of[5]], of[2], 8))
            for problem, of in zip(problems, given, strict=True)
        ]

    remembered = chosen()
    for problem, of, strategy in zip(problems, given, remembered, strict=True):
        columns._chosen.clear()
        assert strategy == columns.choose_columns(Task(problem, choices.DEVICES[of[5]], of[2], 8)), of
    assert len(set(remembered)) > 20


def test_no_more_choices_are_remembered_than_the_bound(monkeypatch):
    monkeypatch.setattr(columns, "_REMEMBERED", 8)
    columns._chosen.clear()
    for length in range(1000, 90000, 2000):
        problem = layout.problem_of((length, 64), 4, axis=0)
        columns.choose_columns(Task(problem, choices.DEVICES["H200"], 4, 8))
    assert 0 < len(columns._chosen) <= 8


def test_kernels_follow_from_what_strategies_are_like():
    """Calls of new shapes look a kernel up by that alone."""
    kernels, strategies = {}, set()
    for device, problem, _ in choices.read():
        for dtype in ("float32", "float64", "int8"):
            request = choices._request(**{**problem, "op": "sum", "dtype": dtype, "strides": None})
            chosen, sources, _ = selection.select(request, choices.DEVICES[device])
            found = sources, chosen.block_threads, chosen.cluster
            assert kernels.setdefault((device, dtype, chosen.like), found) == found, (device, problem, dtype)
            strategies.add(chosen)
    for leaves, wide in itertools.product(range(0, 6000, 7), (False, True)):
        chosen = whole.choose(leaves, choices.DEVICES["H200"], wide_accumulator=wide)
        found = selection.sources_of(request.text, chosen), chosen.block_threads, chosen.cluster
        assert kernels.setdefault(("of whole arrays", chosen.like), found) == found, leaves
    assert len(kernels) * 2 < len(strategies)


def rows_of(count, length, itemsize, pad):
    strides = (length * itemsize + pad, itemsize)
    return layout.problem_of((count, length), itemsize, axis=1, strides_bytes=strides)


@pytest.mark.usefixtures("without_elements")
@pytest.mark.parametrize(("itemsize", "accumulator", "heavy", "two_arrays"), [
    (4, 8, False, False), (2, 4, False, False), (1, 8, False, False), (16, 16, False, False), (4, 24, True, False),
    (4, 8, True, True),
])  # fmt: skip
def test_a_choice_for_rows_is_the_same_if_it_is_remembered(itemsize, accumulator, heavy, two_arrays):
    """Lengths that share a choice are asked for by turns, with rows of other numbers and at other addresses."""
    vector = 16 // itemsize
    short = [vectors * vector + more for vectors in range(1, 70) for more in {0, vector - 1}]
    long = [length + more for length in range(250 * vector, 2600 * vector, 77 * vector) for more in (-1, 0)]
    for device in ("H200", "A100"):
        facts = choices.DEVICES[device]
        for length in (*short, *long):
            whole = -length * itemsize % 16  # behind each row, to its last vector's end
            for count, pad in ((3, 0), (700, 0), (700, whole), (9000, itemsize), (9000, whole)):
                problem = rows_of(count, length, itemsize, pad)
                task = Task(problem, facts, itemsize, accumulator, heavy, two_arrays)
                assert selection._remembered_rows(task) == rows.choose_rows(task), (length, count, pad)


def test_no_more_choices_for_rows_are_remembered_than_the_bound(monkeypatch):
    monkeypatch.setattr(selection, "_MOST_CHOICES", 8)
    selection._chosen.clear()
    for length in range(1000, 90000, 2000):
        selection._remembered_rows(Task(rows_of(3, length, 4, 0), choices.DEVICES["H200"], 4, 8))
    assert 0 < len(selection._chosen) <= 8

"""Which strided rows' leaves are staged, and how blocks share them."""

import pytest

from lowlevel_reduce import layout
from lowlevel_reduce.strategy.base import Task
from lowlevel_reduce.strategy.fields import shape_values
from lowlevel_reduce.strategy.selection import request_of, select
from lowlevel_reduce.strategy.staged_rows import described, staged_leaves
from lowlevel_reduce.strategy.whole import DeviceFacts

H200 = DeviceFacts((9, 0), 132, clusters=True, cooperative=True)


def staged(shape, strides, itemsize=4, accumulator=4, axis=None, facts=H200, **options):
    problem = layout.problem_of(shape, itemsize, axis=axis, strides_bytes=[itemsize * stride for stride in strides])
    return staged_leaves(Task(problem, facts, itemsize, accumulator, **options))


def test_how_blocks_share_them():
    found = staged((37, 2228949), (1, 37))
    assert found.beside == 13, "three blocks share 37 runs evenly"
    assert found.blocks == 3 * 88
    assert found.leaves * 88 >= 2228949 / 1024
    assert found.warps == 16
    assert described(found.word).startswith("264 blocks stage 25 leaves of each of 13 runs")


def test_whose_leaves_are_staged():
    assert staged((1001, 50001), (1, 1001), 2)
    assert staged((37, 7, 222894), (1, 37, 259))
    assert not staged((37, 2228949), (2, 74)), "nothing lies side by side"
    assert not staged((37, 2228949), (2228949, 1)), "all does"
    assert not staged((37, 3000), (1, 37)), "too little"
    assert not staged((5, 10000001), (1, 5)), "too few runs"
    assert not staged((1001, 50001), (1, 1001), 1, 8), "sums of bytes lack registers"
    assert not staged((1001, 50001), (1, 1001), 2, 16)
    assert not staged((1001, 50001), (1, 1 << 20)), "elements of a chunk are too far from each other"
    assert not staged((37, 2228949), (1, 37), facts=H200._replace(compute_capability=(10, 0))), "would spill"
    assert not staged((0, 37, 50001), (0, 1, 37), axis=(1, 2))


@pytest.mark.parametrize("first", [True, False])
def test_choices_are_remembered_by_how_leaves_are_staged(first):
    strides = [(4, 148), (8, 296)]
    requests = [request_of("sum", shape=(37, 2228949), dtype="float32", strides_bytes=each) for each in strides]
    for request in requests if first else reversed(requests):
        assert (select(request, H200).strategy.staged > 0) == (request is requests[0])


def test_the_argument_tells_the_kernel():
    request = request_of("sum", shape=(37, 2228949), dtype="float32", strides_bytes=(4, 148))
    chosen = select(request, H200).strategy
    assert shape_values(request.problem, run=chosen.staged)[-2] == chosen.staged
    assert chosen.parts == -(-37 * 2228949 // 1024)
    assert chosen.blocks == (chosen.staged & 0xFFFFFFFF) + chosen.folders

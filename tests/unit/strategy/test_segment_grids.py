"""The grids of segments: enough blocks where most elements must lie in long segments, few where none has to."""

import re

import numpy as np
import pytest

from lowlevel_reduce.compiler import sources
from lowlevel_reduce.plans import segments

LEAF, TILE = 1024, 16 * 1024
MULTIPROCESSORS = 132


def blocks_of(length, count):
    return segments._blocks_of_long(length, count, LEAF, TILE, MULTIPROCESSORS)


def items_of(lengths):
    """Return the tiles of long segments and the groups whose partials are folded, as the second kernel counts them."""
    long = [each for each in lengths if each > 16 * LEAF]
    groups = len(long) if len(long) <= 256 else -(-len(long) // 8)
    return sum(-(-each // TILE) for each in long) + groups


@pytest.mark.parametrize("mean", [40, 100, 1000, 30_000])
def test_long_segments_have_a_block_for_each_tile(mean):
    rng = np.random.default_rng(mean)
    for count in (1, 8, 255, 256, 257, 1000):
        lengths = rng.exponential(mean * LEAF, count).astype(int) + 32 * LEAF
        assert items_of(lengths.tolist()) <= blocks_of(int(lengths.sum()), count)


def test_as_many_long_segments_as_there_can_be():
    lengths = [17 * LEAF + 1] * 2000 + [2000 * 32 * LEAF]
    assert items_of(lengths) <= blocks_of(sum(lengths), len(lengths))


@pytest.mark.parametrize(("length", "count"), [(10**8, 10**6), (4 * 10**7, 10**7), (120_000_000, 1_050_004)])
def test_short_segments_cost_no_more_blocks_than_have_room(length, count):
    assert blocks_of(length, count) == 2 * MULTIPROCESSORS


def test_small_arrays_need_few_blocks():
    assert blocks_of(40_000, 1) <= 2 + 1 + 1
    assert blocks_of(0, 70) == 2


def test_tiny_segments_share_warps_where_there_are_many():
    groups = segments._groups_of_a_warp
    assert groups(4 * 10**7, 10**7, 4, MULTIPROCESSORS) == 4
    assert groups(4 * 10**5, 10**5, 4, MULTIPROCESSORS) == 1
    assert groups(10**8, 10**6, 4, MULTIPROCESSORS) == 1


def test_constants_are_those_of_the_kernels():
    text = (sources.source_root() / "segments/segments.cuh").read_text(encoding="utf-8")
    for name, value in {
        "long_leaves": segments._LONG_LEAVES,
        "few_segments": segments._FEW_SEGMENTS,
        "entries_at_once": segments._ENTRIES_AT_ONCE,
    }.items():
        assert re.search(rf"{name} = (\d+);", text)[1] == str(value)
    assert re.search(r"sizeof\(typename Op::Accumulator\) > 8 \? (\d+) : (\d+);", text).groups() == tuple(
        str(segments.segment_blocks(size)[1] // 32) for size in (16, 8)
    )

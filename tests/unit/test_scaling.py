"""An array over up to 1,024 ranks in NumPy: shares of equal size, gathered plainly, fold to the bits of one array."""

import re
from pathlib import Path

import numpy as np
import pytest

from lowlevel_reduce import tree
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.errors import CutError
from lowlevel_reduce.operators import Items, Row, resolve
from lowlevel_reduce.parts.chunks import chunk_elements, shard_lengths
from lowlevel_reduce.parts.cut import cut_of
from lowlevel_reduce.parts.fold import share_bytes
from lowlevel_reduce.parts.free_cut import FreeCut, free_cut

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
LEAF = 1024


def values(length):
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(length) * 10.0 ** rng.integers(-9, 10, length)).astype(np.float32)
    half = length // 2
    x[half : 2 * half] = -rng.permutation(x[:half])  # so that the sum is nothing but rounding
    return x


def over_ranks(x, op, ranks, chunk):
    """Return the results of an array whose parts are reduced apart, each rank's partials in a share of equal size."""
    operation, element = resolve(op), element_type(x.dtype)
    types, cut = operation.types(element), cut_of(len(x), x.dtype, ranks, chunk)
    pivot = operation.pivot(x[None, :1], types) if operation.pivot else None
    shares = None
    for rank in range(ranks):
        place = cut.place(rank)
        for number in range(place.chunks):
            start = place.start + number * cut.chunk
            part = x[None, start : min(start + cut.chunk, place.start + place.length)]
            items = Items(part, None, np.arange(start, start + part.shape[1], dtype=np.uint64), pivot)
            fields = tree._fold_rows(items, operation, types)
            if shares is None:
                shares = [np.full((ranks, cut.share), 123, field.dtype) for field in fields]
            for share, field in zip(shares, fields, strict=True):
                share[rank, number] = field[0]
    # Chunk c of C is on rank floor(c R / C), behind those from ceil(C r / R) on: what the kernel computes.
    c = np.arange(cut.chunks)
    rank = c * ranks // cut.chunks
    at = rank * cut.share + c - -(-cut.chunks * rank // ranks)
    root = tree._fold(tuple(share.reshape(1, -1)[:, at] for share in shares), operation, types)
    return operation.finish(root, Row(len(x), None if pivot is None else pivot[:, 0]), types)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["sum", "argmax", "mean_var"])
@pytest.mark.parametrize("ranks", [1, 3, 64, 1024])
def test_the_bits_of_one_array_over_many_ranks(op, ranks):
    x = values(1500 * LEAF + 77)
    with np.errstate(all="ignore"):
        found = over_ranks(x, op, ranks, LEAF)
    expected = tree.reduce(x, op)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert [each[0].tobytes() for each in found] == [each.tobytes() for each in expected]


def test_such_a_sum_depends_on_its_order():
    x = values(1500 * LEAF + 77)
    assert tree.reduce(x).tobytes() != tree.reduce(np.roll(x, LEAF)).tobytes()


@pytest.mark.parametrize("length", [0, 1, LEAF, 1_000_000, 16_000_000, 1_000_000_000, 2**24])
@pytest.mark.parametrize("ranks", [1, 2, 7, 1024])
def test_larger_chunks_keep_the_cut(length, ranks):
    cut, chunk = cut_of(length, "float32", ranks), chunk_elements(length, "float32")
    assert list(cut.lengths) == shard_lengths(length, "float32", ranks)
    assert cut.chunk % chunk == 0
    assert shard_lengths(length, "float32", ranks, chunk=cut.chunk) == list(cut.lengths)
    assert sum(cut.place(rank).chunks for rank in range(ranks)) == cut.chunks
    if length == 2**24 and ranks == 2:
        assert (cut.chunk, cut.share) == (2**23, 1), "a part that is a subtree is one partial"


def test_a_part_that_does_not_fit_is_told_where_to_cut():
    cut = cut_of(10 * LEAF, "float32", 3)
    cut.check_all([4 * LEAF, 3 * LEAF, 3 * LEAF])
    with pytest.raises(
        CutError, match="rank 1 has 4096 elements, and by the cut of 10240 over 3 ranks 3072: from number"
    ):
        cut.check_all([4 * LEAF, 4 * LEAF, 2 * LEAF])


def test_the_page_has_the_bytes_that_ranks_send():
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d[\d,]*) \| (\d[\d,]*) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|", text, re.MULTILINE)
    assert len(rows) >= 8
    for row in rows:
        ranks, elements, chunks, sent, received = (int(each.replace(",", "")) for each in row)
        cut = cut_of(1_000_000_000, "float32", ranks)
        share = share_bytes(cut, 1, 2)
        found = (max(cut.lengths), cut.share, share, share * ranks)
        assert (elements, chunks, sent, received) == found


@pytest.mark.parametrize("lengths", [(10**7, 0), (0, 10**7), (0, 0, 10**7 + 5, 0), (0, 5, 0)])
def test_a_rank_that_has_all_of_a_row_makes_one_partial_of_it(lengths):
    cut = free_cut(lengths, "float32", cut_of(sum(lengths), "float32", len(lengths)))
    assert (cut.chunks, cut.share) == (1, 1)
    assert [cut.place(rank).chunks for rank in range(len(lengths))] == [int(length > 0) for length in lengths]


@pytest.mark.parametrize("seed", range(20))
def test_a_row_that_is_cut_anywhere_has_every_element_once(seed):
    rng = np.random.default_rng(seed)
    length = int(rng.integers(1, 12 * LEAF))
    step = int(rng.choice([1, 1, LEAF, 4 * LEAF]))
    borders = np.sort(np.minimum(rng.integers(0, length + 1, rng.integers(1, 7)) // step * step, length))
    lengths = np.diff([0, *borders, length]).tolist()
    cut = free_cut(lengths, "float32", cut_of(length, "float32", len(lengths)))
    if isinstance(cut, FreeCut):
        seen, chunks = [], []
        starts = np.cumsum([0, *lengths])
        for rank, held in enumerate(cut.held):
            chunks += range(held.first, held.first + held.main + (held.extra > 0))
            begin = starts[rank] + held.head
            assert held.main + held.extra == 0 or begin == held.first * cut.chunk
            seen += range(begin, begin + held.main * cut.chunk + held.tail)
            for other, count in held.borrowed:
                assert count == cut.held[other].head
                seen += range(starts[other], starts[other] + count)
            assert held.extra == held.tail + sum(count for _, count in held.borrowed)
        assert sorted(seen) == list(range(length))
        assert chunks == list(range(cut.chunks))
        assert cut.head < cut.chunk

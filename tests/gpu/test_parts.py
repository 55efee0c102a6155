"""An array, or each row of one, in parts: what ranks contribute in equal shares folds to the bits of the whole."""

import math

import ml_dtypes
import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.driver import Buffer
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.parts.combining import divided, rooted_for
from lowlevel_reduce.parts.cut import cut_of
from lowlevel_reduce.parts.fold import TAG_BYTES, fold_plan, share_bytes
from lowlevel_reduce.parts.local import pieces_of, pivot_plan

TAG = bytes(range(1, TAG_BYTES + 1))


def values(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)
    return x.astype(dtype) if np.dtype(dtype).kind != "u" else np.abs(x).astype(dtype)


def in_parts(x, op, axis, ranks, stream, context, chunk=None, **options):
    """Reduce an array whose reduced axis is cut over ranks, all of which are here, one after the other."""
    element = element_type(x.dtype)
    kept = (math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :]))
    rows = kept[0] * kept[1]
    cut = cut_of(x.shape[axis], x.dtype, ranks, chunk)
    reduction = rooted_for(op, x.dtype, rows=rows, where=False, accumulate=None, **options)
    apart = share_bytes(cut, rows, reduction.results)
    shares = Buffer.allocate(ranks * apart, context)
    shares.fill(0xFF)
    folding = divided(op, **options)
    types = folding.types(element)
    first = None
    for rank in range(ranks):
        place = cut.place(rank)
        part = np.ascontiguousarray(x.swapaxes(0, axis)[place.start : place.start + place.length].swapaxes(0, axis))
        there = lr.DeviceArray.from_numpy(part, stream)
        if rank == 0 and folding.second == "first":
            first = lr.DeviceArray.empty((rows,), x.dtype, stream)
            pivot_plan(types, kept, place.length, context).bind(stream)(there.pointer, first.pointer)
        mine = Buffer.from_pointer(shares.pointer + rank * apart, apart, context=context, owner=shares)
        mine.copy_from(np.frombuffer(TAG, np.uint8), size_bytes=TAG_BYTES)
        for piece in pieces_of(reduction, x.dtype, kept, place, cut.chunk, context):
            second = () if first is None else (first.pointer + piece.second,)
            launch = piece.plan.bind(stream)
            addresses = (there.pointer + piece.source, mine.pointer + TAG_BYTES + piece.result, *second)
            launch.check(*addresses)
            launch(*addresses)
        stream.synchronize()
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    plan = fold_plan(folding, types, cut, kept=kept, apart=apart, lead=TAG_BYTES, tag=TAG, shape=shape, context=context)
    result = lr.DeviceArray.empty((plan.results, *shape), plan.result_dtype, stream)
    plan.bind(stream)(shares.pointer, result.pointer, *(() if first is None else (first.pointer,)))
    return result.numpy()


def bits(results):
    return [each.tobytes() for each in (results if isinstance(results, tuple) else (results,))]


@pytest.mark.parametrize(
    ("op", "dtype", "options"),
    [
        ("sum", "float32", {}),
        ("max", "float16", {}),
        ("argmax", "float32", {}),
        ("argmin", "int16", {"last": True}),
        ("mean_var", "float32", {}),
        ("var", "complex64", {}),
        ("softmax_stats", ml_dtypes.bfloat16, {}),
        ("logsumexp", "float32", {}),
        ("sum", "float32", {"map": "x * x"}),
    ],
)
@pytest.mark.parametrize(("before", "behind"), [(1, 1), (3, 1), (2, 3)])
def test_ranks_have_the_bits_of_one_device(op, dtype, options, before, behind, stream, context, cut):
    leaf = 4096 // np.dtype(dtype).itemsize
    x = values((before, 5 * leaf + 77, behind), dtype)
    whole = lr.reduce(x, op, axis=1, stream=stream, **options)
    expected = [each.numpy().tobytes() for each in (whole if isinstance(whole, tuple) else (whole,))]
    for ranks in cut((1, 2, 4, 8), (2,)):
        found = in_parts(x, op, 1, ranks, stream, context, **options)
        assert [each.tobytes() for each in found] == expected, ranks


@pytest.mark.parametrize(
    ("op", "options"), [("sum", {}), ("argmax", {}), ("mean_var", {"ddof": 1}), ("max", {"initial": 9.0})]
)
@pytest.mark.parametrize("gathered_as", ["uint32", "int32", "uint8"])
def test_equal_counts_of_partials_are_gathered_plainly(op, options, gathered_as, stream, cut):
    length, shards, chunk = 1024 * 11 + 5, 5, 1024
    x = values(length, "float32")
    lengths = lr.shard_lengths(length, "float32", shards, chunk=chunk)
    rows = max(-(-each // chunk) for each in lengths)
    assert len({-(-each // chunk) for each in lengths}) > 1, "some are absent"
    about = {"first": x[:1]} if op == "mean_var" else {}
    made, start = [], 0
    for each in lengths:
        part = lr.partials(x[start : start + each], op, chunk=chunk, rows=rows, stream=stream, **about)
        made.append(part.numpy())
        start += each
    gathered = np.concatenate(made).view(gathered_as)
    found = lr.combine_partials(
        gathered, op, length=length, chunk=chunk, dtype="float32", shards=shards, stream=stream, **about, **options
    )
    whole = lr.reduce(x, op, stream=stream, **options)
    pairs = zip(*((each if isinstance(each, tuple) else (each,)) for each in (found, whole)), strict=True)
    assert all(a.numpy().tobytes() == b.numpy().tobytes() for a, b in pairs)


@pytest.mark.parametrize(("rows", "ranks"), [(1, 3), (2, 140), (2, 256), (2, 300)])
def test_the_fold_looks_at_the_tags_of_all_shares(rows, ranks, stream, context):
    """Of more ranks than a block has threads, and than it finds the chunks of without a table."""
    cut = cut_of(3000, "float32", ranks)
    folding, kept = divided("sum"), (rows, 1)
    types = folding.types(element_type(np.dtype("f4")))
    apart = share_bytes(cut, rows, 2)
    shares = np.zeros((ranks, apart), np.uint8)
    shares[:, :TAG_BYTES] = np.frombuffer(TAG, np.uint8)
    expected = np.zeros(rows)
    for rank in range(ranks):
        chunks = cut.place(rank).chunks
        made = np.arange(1.0, rows * chunks + 1).reshape(chunks, rows) * (
            rank + 1
        )  # whole ones or the rest, of all rows
        shares[rank, TAG_BYTES : TAG_BYTES + made.nbytes] = made.reshape(-1).view(np.uint8)
        expected += made.sum(axis=0)
    assert cut.share == 1, "each rank has one chunk at most"
    there, result = Buffer.allocate(shares.nbytes, context), lr.DeviceArray.empty((rows,), "float32", stream)
    verdict = Buffer.allocate(8, context)
    plan = fold_plan(
        folding, types, cut, kept=kept, apart=apart, lead=TAG_BYTES, tag=TAG, verdict=verdict, shape=(rows,),
        context=context,
    )  # fmt: skip
    assert (plan._table.size_bytes > 0) == (ranks > 256)
    launch = plan.bind(stream)

    def seen():
        verdict.fill(0, stream=stream)
        there.copy_from(shares, stream=stream)
        launch(there.pointer, result.pointer)
        word = np.empty(1, np.uint64)
        verdict.copy_to(word.view(np.uint8), stream=stream)
        stream.synchronize()
        return int(word[0])

    assert seen() == 0
    assert result.numpy().tolist() == expected.tolist()
    for rank in {0, 1, ranks // 2, ranks - 1}:
        for byte in (0, TAG_BYTES - 1):
            shares[rank, byte] ^= 1
            assert seen() == 1, (rank, byte)
            shares[rank, byte] ^= 1


def test_shares_of_wrong_sizes_are_refused(stream):
    made = lr.partials(np.ones(4096, "f4"), chunk=1024, rows=6, stream=stream)
    assert made.numpy()[4:].tobytes() == b"\xff" * 16
    options = {"length": 4 * 4096, "chunk": 1024, "dtype": "float32", "stream": stream}
    with pytest.raises(ValueError, match="have 4 rows or more of 2 words a shard"):
        lr.combine_partials(made, shards=4, **options)
    with pytest.raises(ValueError, match="which 3 rows cannot hold"):
        lr.partials(np.ones(4096, "f4"), chunk=1024, rows=3, stream=stream)
    with pytest.raises(TypeError, match="these are of float32"):
        lr.combine_partials(np.ones(8, "f4"), shards=4, **options)
    with pytest.raises(ValueError, match="are no partials, which consist of words"):
        lr.combine_partials(np.ones(9, "u1"), shards=4, **options)

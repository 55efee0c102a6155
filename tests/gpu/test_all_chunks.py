"""All chunks of a part in one launch: the partials that one for each kind of chunks makes, where the fold reads."""

import ml_dtypes
import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.driver import Buffer
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.parts.all_chunks import AllChunksPlan, suits
from lowlevel_reduce.parts.combining import rooted_for
from lowlevel_reduce.parts.cut import Place
from lowlevel_reduce.parts.local import pieces_of


def values(shape, dtype):
    rng = np.random.default_rng(7)
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-2, 3, shape)).astype(dtype)


def place_of(length, chunk):
    return Place(0, length, *divmod(length, chunk))


@pytest.mark.parametrize(
    ("op", "dtype", "leaves", "rows", "whole", "rest"),
    [
        ("sum", "float32", 1, 1, 6, 576),
        ("sum", "float64", 16, 1, 1, 9 * 512 + 1),
        ("sum", "float32", 2, 3, 3, 1024 + 4),
        ("logsumexp", ml_dtypes.bfloat16, 2, 3, 2, 384),
        ("max", "float16", 4, 2, 1, 3 * 2048 + 8),
        ("min", "int16", 1, 1, 3, 5),
    ],
)
@pytest.mark.parametrize("shift", [0, 1])
def test_one_launch_makes_the_partials_of_all_chunks(op, dtype, leaves, rows, whole, rest, shift, stream, context):
    element = element_type(dtype)
    chunk = leaves * element.leaf
    length = whole * chunk + rest
    x = values((rows, length), dtype)
    reduction = rooted_for(op, dtype, rows=rows, where=False, accumulate=None)
    # Of whole chunks alone, and of a rest alone, another kernel makes them.
    kinds = [row[: whole * chunk] for row in x] + [row[whole * chunk :] for row in x]
    expected = np.concatenate([lr.partials(each, op, chunk=chunk, stream=stream).numpy() for each in kinds])

    memory = np.zeros(x.size + 64, element.dtype)
    memory[shift : shift + x.size] = x.reshape(-1)
    there = lr.DeviceArray.from_numpy(memory, stream)
    found = Buffer.allocate(expected.nbytes + 16, context)
    found.fill(0xFF, stream=stream)
    (piece,) = pieces_of(reduction, element.dtype, (rows, 1), place_of(length, chunk), chunk, context)
    assert isinstance(piece.plan, AllChunksPlan)
    launch = piece.plan.bind(stream)
    source = there.pointer + shift * element.itemsize
    launch.check(source + piece.source, found.pointer + piece.result)
    launch(source + piece.source, found.pointer + piece.result)
    stream.synchronize()
    out = np.empty(expected.nbytes + 16, np.uint8)
    found.copy_to(out)
    assert out[: expected.nbytes].tobytes() == expected.tobytes()
    assert out[expected.nbytes :].tobytes() == b"\xff" * 16, "nothing is written behind them"


@pytest.mark.parametrize(
    ("op", "rows", "length", "chunk"),
    [
        ("sum", (1, 1), 4 * 1024, 1024),  # no rest: one launch anyhow
        ("sum", (1, 1), 1000, 1024),  # nothing but a rest
        ("sum", (1, 3), 4 * 1024 + 4, 1024),  # rows side by side
        ("sum", (2, 1), 4 * 1024 + 1, 1024),  # rows whose vectors lie apart
        ("sum", (1, 1), 33 * 1024, 32 * 1024),  # chunks of more leaves than a block has warps
        ("argmax", (1, 1), 4 * 1024 + 4, 1024),  # a wide accumulator
        ("mean_var", (1, 1), 4 * 1024 + 4, 1024),  # about the first element
        ("dot", (1, 1), 4 * 1024 + 4, 1024),  # two arrays
    ],
)
def test_what_takes_a_launch_for_each_kind_of_chunks(op, rows, length, chunk):
    reduction = rooted_for(op, "float32", rows=rows[0] * rows[1], where=False, accumulate=None)
    assert not suits(reduction, "float32", rows, place_of(length, chunk), chunk)

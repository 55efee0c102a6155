"""`lr.vocabulary`: rows in parts over ranks that are threads, with the bits that one GPU gives whole rows."""

import functools
import itertools

import ml_dtypes
import numpy as np
import pytest
from ranks_in_threads import bits, engines, on_each

import lowlevel_reduce as lr

LENGTH = 2048 + 300
CUTS = {"at leaves": (2048, 0, 300, 0), "anywhere": (1000, 1, 0, 1347)}
TARGET = np.array([0, LENGTH - 1, -100, LENGTH, 1000])


def logits_of(dtype):
    x = np.random.default_rng(1).standard_normal((5, LENGTH)) * 3
    return x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def parts_of(x, lengths):
    borders = [0, *itertools.accumulate(lengths)]
    return borders, [np.ascontiguousarray(x[:, start:end]) for start, end in itertools.pairwise(borders)]


def test_parts_of_a_gradient_are_those_of_one(stream, context):
    x = (np.random.default_rng(2).standard_normal((5, LENGTH)) * 3).astype(np.float32)
    borders, parts = parts_of(x, next(iter(CUTS.values())))
    dloss = np.arange(1, 6, dtype=np.float32)
    loss, largest, rest = lr.cross_entropy(x, TARGET, reduction="none", return_stats=True, stream=stream)
    stats = {"largest": largest, "rest": rest, "stream": stream}
    whole = lr.cross_entropy_backward(dloss, x, TARGET, **stats).numpy()

    def work(engine, own):
        part, first = lr.DeviceArray.from_numpy(parts[engine.rank], own), borders[engine.rank]
        way = {"length": LENGTH, "first": first, "stream": own}
        found = lr.vocabulary.cross_entropy(part, TARGET, engine, return_stats=True, **way)
        of_loss, *kept = found
        dx = lr.vocabulary.cross_entropy_backward(dloss, part, TARGET, *kept, first=first, stream=own)
        return of_loss.numpy(), dx.numpy()

    for rank, found in enumerate(on_each(engines(4), work, context)):
        assert not isinstance(found, Exception), found
        assert found[0].tobytes() == loss.numpy().tobytes()
        assert found[1].tobytes() == np.ascontiguousarray(whole[:, borders[rank] : borders[rank + 1]]).tobytes()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("lengths", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_parts_of_a_softmax_are_those_of_one(stream, context, name, lengths, dtype):
    x = logits_of(dtype)
    borders, parts = parts_of(x, lengths)
    whole = getattr(lr, name)(x, stream=stream).numpy()

    def work(engine, own):
        part = lr.DeviceArray.from_numpy(parts[engine.rank], own)
        of_part = functools.partial(getattr(lr.vocabulary, name), part, engine, length=LENGTH, stream=own)
        found = of_part().numpy()
        of_part(out=part)
        return found, part.numpy()

    for rank, found in enumerate(on_each(engines(4), work, context)):
        assert not isinstance(found, Exception), found
        mine = np.ascontiguousarray(whole[:, borders[rank] : borders[rank + 1]]).tobytes()
        assert [each.tobytes() for each in found] == [mine, mine]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("lengths", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize(("name", "options"), [("log_prob", {}), ("cross_entropy", {"reduction": "none"})])
def test_four_ranks_have_the_bits_of_one(stream, context, name, options, lengths, dtype):
    x = logits_of(dtype)
    borders, parts = parts_of(x, lengths)
    whole = bits(getattr(lr, name)(x, TARGET, stream=stream, **options))

    def work(engine, own):
        part = lr.DeviceArray.from_numpy(parts[engine.rank], own)
        way = {"first": borders[engine.rank], "length": LENGTH, "stream": own}
        return bits(getattr(lr.vocabulary, name)(part, TARGET, engine, **way))

    for found in on_each(engines(4), work, context):
        assert not isinstance(found, Exception), found
        assert found == whole


def test_targets_of_other_shapes_are_refused(stream):
    x = np.zeros((3, 5), np.float32)
    with pytest.raises(ValueError, match="one element for each row"):
        lr.vocabulary.log_prob(x, np.zeros(2, int), engines(1)[0], length=5, first=0)
    with pytest.raises(TypeError, match="target of logits_of_targets is of integers"):
        lr.vocabulary.log_prob(x, np.zeros(3), engines(1)[0], length=5, first=0, stream=stream)


@pytest.mark.parametrize("is_repeated", [False, True])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"target": np.zeros(2, int)}, "one element for each row"),
        ({"target": np.zeros(3)}, "target of logits_of_targets is of integers"),
        ({"part": "no array"}, "'str' object has no attribute 'shape'"),
        ({"ignore_index": 0.5}, "ignore_index is an integer"),
    ],
)
def test_what_is_wrong_on_one_rank_is_heard_by_all(wrong, words, is_repeated, context):
    """Each of the two reductions has ranks that wait for all others."""

    def work(engine, own):
        way = {"part": np.zeros((3, 1024), np.float32), "target": np.zeros(3, int), "first": 1024 * engine.rank}
        way |= {"group": engine, "length": 2048, "stream": own}
        if is_repeated:
            lr.vocabulary.cross_entropy(**way)
        try:
            lr.vocabulary.cross_entropy(**way | (wrong if engine.rank == 1 else {}))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
            found = error
        return found, float(lr.vocabulary.cross_entropy(**way).loss.numpy()[0])

    (heard, after), (raised, after_too) = on_each(engines(2), work, context)
    assert isinstance(heard, lr.GroupError), heard
    assert ("rank 1 could not take part" if is_repeated else words) in str(heard)
    assert words in str(raised)
    assert after == after_too == float(np.log(np.float32(2048)))

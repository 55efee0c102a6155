"""Arrays larger than the device: in pieces, from memory, files and iterators, with the bits of the whole."""

import dataclasses
import functools
import itertools
import os
import threading
import time
import weakref

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from lowlevel_reduce.arrays import page_locked
from lowlevel_reduce.driver import Context
from lowlevel_reduce.parts import feed, large, sources, whole

LEAF = 1024


def values(shape, dtype="float32"):
    rng = np.random.default_rng(1)
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(dtype)


def bits(results):
    return [each.numpy().tobytes() for each in (results if isinstance(results, tuple) else (results,))]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(large, "PIECE_BYTES", 8 * 4096)
    monkeypatch.setattr(feed, "LEAST_PIECE_BYTES", 4 * 4096)
    monkeypatch.setattr(feed, "SHARE_BYTES", 12_000)  # no multiple of a leaf, nor of most rows


@pytest.mark.parametrize("op", ["sum", "argmax", "mean_var", "logsumexp"])
@pytest.mark.parametrize("length", [0, 5, 8 * LEAF, 21 * LEAF + 77])
def test_a_whole_array_in_pieces(op, length, stream):
    if length == 0 and op == "argmax":
        with pytest.raises(ValueError, match="zero-size array to reduction operation argmax which has no identity"):
            lr.reduce_large(np.ones(0, "f4"), op, stream=stream)
        return
    x = values(length)
    assert bits(lr.reduce_large(x, op, stream=stream)) == bits(lr.reduce(x, op, stream=stream))


@pytest.mark.parametrize("part", [whole.FREE_PART, 1 << 60], ids=["whole", "gathered"])
@pytest.mark.parametrize("op", ["sum", "mean_var", "argmax"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((40, 700), 1),  # blocks of rows
        ((2, 11 * LEAF + 4), 1),  # rows in parts
        ((3 * LEAF + 5, 6), 0),  # columns in parts
        ((LEAF + 5, 12), 0),  # more columns than a piece has leaves
        ((2, 3 * LEAF, 3), 1),  # a middle axis
        ((3, 900, 5), (0, 2)),  # axes apart
        ((3, 40, 50), (1, 2)),
    ],
)
def test_any_axis_in_pieces(op, shape, axis, part, stream, monkeypatch):
    """Those that may come whole also by themselves, as where the device has no memory for that."""
    monkeypatch.setattr(whole, "FREE_PART", part)
    x = values(shape)
    if op == "argmax" and isinstance(axis, tuple):
        op = "max"
    expected = bits(lr.reduce(x, op, axis=axis, keepdims=True, stream=stream))
    assert bits(lr.reduce_large(x, op, axis=axis, keepdims=True, stream=stream)) == expected


@pytest.mark.parametrize("limit", [None, 64_000], ids=["whole", "limited"])
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2), (1, 2)])
def test_arrays_that_lie_in_another_order(axis, limit, stream, tmp_path):
    """They come as they lie, whole where their rows have no order there; NumPy gathers what is too large."""
    x = np.asfortranarray(values((9, 50, 12), "float64"))  # whose sums tell the order of the elements
    np.save(tmp_path / "x.npy", x)
    told = []
    for each in (tmp_path / "x.npy", x, x.transpose(0, 2, 1)):
        expected = x.transpose(0, 2, 1) if each is not x and isinstance(each, np.ndarray) else x
        for op in ("sum", "mean_var"):
            found = lr.reduce_large(
                each, op, axis=axis, stream=stream, max_device_bytes=limit, progress=lambda *of: told.append(of)
            )
            assert bits(found) == bits(lr.reduce(np.ascontiguousarray(expected), op, axis=axis, stream=stream))
            assert told[-1] == (x.nbytes, x.nbytes)
    assert len(told) >= 12, "there is some progress before the end"


def test_no_more_than_a_part_of_the_free_memory_is_taken(stream, monkeypatch):
    """An array in another order comes whole, its bytes as they lie, if it takes that little, or half of the limit."""
    x, reads = np.asfortranarray(values((90, 70))), []

    def read(self, out, start, before=sources._Memory.read):
        reads.append(self.is_contiguous)
        before(self, out, start)

    monkeypatch.setattr(sources._Memory, "read", read)
    expected = bits(lr.sum(np.ascontiguousarray(x), stream=stream))
    for free, limit, is_whole in [
        (4 * x.nbytes, None, True),
        (4 * x.nbytes - 4, None, False),
        (0, 2 * x.nbytes + 4, True),
        (4 * x.nbytes, 2 * x.nbytes, False),
    ]:
        monkeypatch.setattr(whole.binding, "call", lambda name, free=free: (free, 1 << 40))
        assert whole.Whole(sources.source_of(x), x.shape, x.strides, (0, 1), is_needed=True).fits(4, limit) == is_whole
        monkeypatch.undo()
        monkeypatch.setattr(sources._Memory, "read", read)
        if limit is not None:
            assert bits(lr.reduce_large(x, stream=stream, max_device_bytes=limit)) == expected
            assert set(reads) == {is_whole}
            reads.clear()


@pytest.mark.parametrize("order", ["C", "F"])
def test_files_are_one_array_and_progress_is_told(order, stream, tmp_path):
    x = values((2, 11, LEAF))
    paths = [tmp_path / f"{number}.npy" for number in range(2)]
    for path, part in zip(paths, x, strict=True):
        np.save(path, np.asarray(part, order=order))
    told = []
    found = lr.reduce_large(paths, stream=stream, progress=lambda done, total: told.append((done, total)))
    assert bits(found) == bits(lr.reduce(x, stream=stream))
    assert told[-1] == (x.nbytes, x.nbytes)
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert bits(lr.reduce_large(str(paths[1]), axis=1, stream=stream)) == bits(lr.reduce(x[1], axis=1, stream=stream))
    mapped = np.load(paths[0], mmap_mode="r")
    assert bits(lr.reduce_large(mapped, "max", stream=stream)) == bits(lr.reduce(x[0], "max", stream=stream))


def test_an_iterator_of_chunks(stream):
    x = values(21 * LEAF + 77)

    def chunks(end=None):
        for start in range(0, len(x), 5000):
            yield x[start : min(start + 5000, end or len(x))]

    for op in ("sum", "mean_var"):
        found = lr.reduce_chunks(chunks(), op, length=len(x), stream=stream)
        assert bits(found) == bits(lr.reduce(x, op, stream=stream))
    with pytest.raises(ValueError, match="the chunks have more than the 20000 elements"):
        lr.reduce_chunks(chunks(), length=20_000, stream=stream)
    with pytest.raises(ValueError, match=f"the chunks end after {len(x)} elements of 30000"):
        lr.reduce_chunks(chunks(), length=30_000, stream=stream)
    with pytest.raises(TypeError, match="chunks are an iterable of arrays, not 3"):
        lr.reduce_chunks(3, length=5)
    with pytest.raises(ValueError, match="there is no chunk"):
        lr.reduce_chunks([], length=3, stream=stream)
    with pytest.raises(TypeError, match="a chunk is of float64, the first of float32"):
        lr.reduce_chunks([x, x.astype("f8")], length=2 * len(x), stream=stream)


class Watched(large.Source):
    """Twelve leaves, all of whose elements are the number of the first that is read with them.

    A test sees each reading: into which address, and from which element on.
    """

    shape, dtype = (12 * LEAF,), np.dtype("f4")

    def __init__(self, is_random, during=lambda start: None):
        self.is_random, self.during, self.reads = is_random, during, []

    def read(self, out, start):
        self.reads.append((out.__array_interface__["data"][0], start))
        self.during(start)
        out[:] = start


def test_shares_take_turns(stream, monkeypatch):
    monkeypatch.setattr(feed, "SHARE_BYTES", 4096)
    source, used = Watched(False), []
    with feed.Feed(source, 8192, stream) as fed:
        fed.run(([(start, 2 * LEAF)], used.append) for start in (0, 2 * LEAF))
    places = [place for place, _ in source.reads]
    assert places[0] == places[2] != places[1] == places[3], "one is filled while the other's copy runs"
    assert [start for _, start in source.reads] == [0, LEAF, 2 * LEAF, 3 * LEAF]
    assert len(used) == 2


def test_two_pieces_take_turns_and_wait_for_each_other(stream, monkeypatch):
    """Copies are in a stream of their own: a piece is used behind them, and comes in behind what used its place."""
    monkeypatch.setattr(feed, "SHARE_BYTES", 4096)
    monkeypatch.setattr(feed, "LEAST_PIECE_BYTES", 4096)
    log, raising = [], feed.raising

    def logged(name, *args):
        call = raising(name, *args)
        return lambda: (log.append((name, *args)), call())[1]

    monkeypatch.setattr(feed, "raising", logged)
    with feed.Feed(Watched(False), 2 * 4096, stream) as fed:
        first, copies = fed._there.pointer, fed._rooms.copies.handle
        fed.run(([(start, LEAF)], lambda place: log.append(("use", place))) for start in range(0, 4 * LEAF, LEAF))
    uses = [number for number, (name, *_) in enumerate(log) if name == "use"]
    assert [log[number][1] for number in uses] == [first, first + 4096, first, first + 4096]
    ends = [log[number + 1] for number in uses]
    used = [event for _, event, _ in ends]
    assert used[0] == used[2] != used[1] == used[3]
    for number, event, other in zip(uses, used, used[1:] + used[:1], strict=True):
        copied = log[number - 1][2]
        assert log[number - 2 : number] == [
            ("cuEventRecord", copied, copies),
            ("cuStreamWaitEvent", stream.handle, copied, 0),
        ]
        assert log[number + 1 : number + 3] == [
            ("cuEventRecord", event, stream.handle),
            ("cuStreamWaitEvent", copies, other, 0),
        ]


def test_the_next_piece_is_read_while_one_is_on_its_way(stream, context, monkeypatch):
    """And what was read early stays there until it is copied."""
    monkeypatch.setattr(feed, "SHARE_BYTES", 4096)
    monkeypatch.setattr(feed, "readers_here", lambda: 2)
    second, used, waited = threading.Event(), [], []

    def during(start):
        if start == 0:  # the first piece is not read before the second is
            waited.append(second.wait(20))
            time.sleep(0.1)
        if start == LEAF:
            second.set()

    def use(pointer):
        found = np.empty(LEAF, np.float32)
        lr.Buffer.from_pointer(pointer, 4096, context=context).copy_to(found, stream=stream)
        stream.synchronize()
        used.append((found.min(), found.max()))

    with feed.Feed(Watched(True, during), 4096, stream) as fed:
        fed.run(([(start, LEAF)], use) for start in range(0, 12 * LEAF, LEAF))
    assert waited == [True]
    assert used == [(start, start) for start in range(0, 12 * LEAF, LEAF)]


def test_shares_of_a_piece_may_come_in_any_order(stream, monkeypatch):
    monkeypatch.setattr(feed, "SHARE_BYTES", 4096)
    monkeypatch.setattr(feed, "readers_here", lambda: 3)
    later, told = threading.Barrier(2), []

    def during(start):
        if start % (4 * LEAF) in (0, 2 * LEAF):  # the first share of four is read when the third is
            later.wait(20)

    with feed.Feed(Watched(True, during), 4 * 4096, stream, told.append) as fed:
        fed.run(([(start, 4 * LEAF)], lambda pointer: None) for start in range(0, 12 * LEAF, 4 * LEAF))
    assert told == [4 * 4096, 8 * 4096, 12 * 4096]


def test_what_a_reading_thread_raises_is_raised_and_nothing_leaks(monkeypatch):
    monkeypatch.setattr(feed, "SHARE_BYTES", 4096)

    def fails(start):
        if start == 5 * LEAF:
            raise OSError("the disk is gone")

    with simulator.use("H200") as driver:
        with lr.Context.primary() as context, context.pushed(), lr.Stream.create(context) as stream:
            used = []
            with pytest.raises(OSError, match="the disk is gone"), feed.Feed(Watched(True, fails), 4096, stream) as fed:
                fed.run(([(start, LEAF)], used.append) for start in range(0, 12 * LEAF, LEAF))
            assert len(used) <= 5
            del fed
        assert not driver.leaks()


@pytest.mark.parametrize("seed", range(4))
def test_pieces_of_any_length_by_any_number_of_threads(seed, stream, context, monkeypatch):
    drawn = np.random.default_rng(seed)
    for _ in range(5):
        share, piece = int(drawn.choice([64, 100, 256, 1000])), int(drawn.choice([64, 128, 500, 2048]))
        readers = int(drawn.integers(1, 9))
        monkeypatch.setattr(feed, "SHARE_BYTES", share)
        monkeypatch.setattr(feed, "readers_here", lambda readers=readers: readers)
        x = np.arange(int(drawn.integers(1, 3000)), dtype=np.float32)
        counts = drawn.integers(0, piece // 4 + 1, 4000)
        borders = [0, *np.minimum(np.cumsum(counts), len(x))]
        steps, found = [(int(a), int(b - a)) for a, b in itertools.pairwise(borders) if a < len(x)], []

        def use(pointer, count, found=found):
            part = np.empty(count, np.float32)
            if count:
                lr.Buffer.from_pointer(pointer, 4 * count, context=context).copy_to(part, stream=stream)
                stream.synchronize()
            found.append(part)

        with feed.Feed(large.source_of(x), piece, stream) as fed:
            fed.run(([(start, count)], functools.partial(use, count=count)) for start, count in steps)
        assert len(found) == len(steps)
        np.testing.assert_array_equal(np.concatenate(found), x)


def test_page_locked_memory_is_kept_from_one_call_to_the_next(monkeypatch):
    monkeypatch.setattr(page_locked, "BLOCK_BYTES", 4096)
    monkeypatch.setattr(feed, "SHARE_BYTES", 4096)
    monkeypatch.setattr(feed, "readers_here", lambda: 3)
    x = values(40 * LEAF)
    expected = lr.tree.reduce(x).tobytes()
    with simulator.use("H200") as driver:
        with lr.Context.primary() as context, context.pushed(), lr.Stream.create(context) as stream:
            lr.sum(x, stream=stream).numpy()
            before = driver.calls["cuMemHostRegister"]
            for _ in range(4):
                assert lr.reduce_large(x, stream=stream).numpy().tobytes() == expected
            made = driver.calls["cuMemHostRegister"] - before
            assert 1 <= made <= 6, "two of each thread"
            assert lr.memory_stats()["page_locked_bytes"] == 4096 * made
            lr.empty_cache()
            assert lr.memory_stats()["page_locked_bytes"] == 0
        assert not driver.leaks().keys() - {"libraries"}


def test_an_interrupt_while_threads_end_leaves_no_copy_under_way(monkeypatch):
    """What it copies out of is freed as objects go, behind the copy."""
    join, interrupted = threading.Thread.join, []

    def joined(thread, *rest):
        join(thread, *rest)
        if thread.name == "read a file" and not interrupted:
            interrupted.append(thread)
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "join", joined)
    with simulator.use("H200") as driver:
        with lr.Context.primary() as context, context.pushed(), lr.Stream.create(context) as stream:
            before = driver.calls["cuStreamSynchronize"]
            with pytest.raises(KeyboardInterrupt):
                lr.reduce_large(values(12 * LEAF), stream=stream)
            assert driver.calls["cuStreamSynchronize"] > before


def test_a_green_context_is_current_on_the_calling_thread_alone(device, context, monkeypatch):
    """As the driver asks for it: the calling thread reads there."""
    names, pushed = [], Context.pushed
    monkeypatch.setattr(Context, "pushed", lambda self: names.append(threading.current_thread().name) or pushed(self))
    monkeypatch.setattr(feed, "readers_here", lambda: 3)
    x = values(12 * LEAF + 7)
    try:
        share = Context.green(device, max(device.multiprocessor_count // 8, 1))
    except lr.UnsupportedError as error:
        pytest.skip(str(error))
    with share, lr.Stream.create(share) as stream:
        assert lr.reduce_large(x, stream=stream).numpy().tobytes() == lr.tree.reduce(x).tobytes()
    assert "read a file" not in names
    lr.reduce_large(x, stream=lr.Stream.legacy(context))
    assert "read a file" in names


def test_files_are_closed(stream, tmp_path, monkeypatch):
    x, path = values((3, 40, 50)), tmp_path / "x.npy"
    np.save(path, x)
    opened, closed, make, close = [], [], os.open, os.close
    monkeypatch.setattr(os, "open", lambda name, *flags: opened.append((name, make(name, *flags))) or opened[-1][1])
    monkeypatch.setattr(os, "close", lambda file: closed.append(file) or close(file))
    for axis in (None, (0, 2)):
        expected = bits(lr.reduce(x, axis=axis, stream=stream))
        assert bits(lr.reduce_large(path, axis=axis, stream=stream)) == expected
    with pytest.raises(ValueError, match="axis"):
        lr.reduce_large(path, axis=7, stream=stream)
    files = [file for name, file in opened if name == path]
    assert len(files) == 3
    assert all(closed.count(file) >= files.count(file) for file in files)


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system takes no advice about files")
def test_the_system_is_told_of_files_that_are_read_in_order(stream, tmp_path, monkeypatch):
    x, told, advise = values((LEAF + 5, 12)), [], os.posix_fadvise
    paths = [tmp_path / f"{number}.npy" for number in range(2)]
    for path in paths:
        np.save(path, x)
    monkeypatch.setattr(os, "posix_fadvise", lambda file, *rest: told.append(rest) or advise(file, *rest))
    lr.reduce_large(paths[0], axis=1, stream=stream)
    assert told == [(0, 0, os.POSIX_FADV_SEQUENTIAL)]
    lr.reduce_large(paths, stream=stream)
    assert len(told) == 3
    some_columns = 20_000  # of all rows, then the next
    found = lr.reduce_large(paths[0], axis=0, stream=stream, max_device_bytes=some_columns)
    assert len(told) == 3
    assert bits(lr.reduce_large(paths[0], axis=0, stream=stream)) == bits(found)
    assert len(told) == 4, "it comes whole, as it lies"


def test_a_file_that_is_cut_short_is_an_error(stream, tmp_path):
    np.save(tmp_path / "x.npy", np.ones(100_000, "f4"))
    source = large.source_of(tmp_path / "x.npy")
    with (tmp_path / "x.npy").open("r+b") as file:
        file.truncate(200_000)
    with pytest.raises(ValueError, match=r"x.npy ends after 200000 bytes, before its array of shape \(100000,\)"):
        source.read(np.empty(100_000, "f4"), 0)
    source.close()
    with pytest.raises(ValueError, match="is closed"):
        source.read(np.empty(1, "f4"), 0)


def test_the_device_has_less_memory_than_the_array(monkeypatch):
    x = values((40 * LEAF,))
    limit = 72 * 1024
    model = dataclasses.replace(simulator.by_name("H200"), memory_bytes=limit + 16 * 1024)
    expected = lr.tree.reduce(x).tobytes()
    monkeypatch.setattr(simulator, "by_name", lambda name: model)
    with simulator.use("H200 with little memory") as driver:
        with lr.Context.primary() as context, context.pushed(), lr.Stream.create(context) as stream:
            with pytest.raises(lr.CudaError, match="OUT_OF_MEMORY"):
                lr.sum(x, stream=stream)
            found = lr.reduce_large(x, max_device_bytes=limit, stream=stream)
            assert found.numpy().tobytes() == expected
            del found
        assert driver.leaks().keys() <= {"libraries"}, "kernels stay loaded"
    with pytest.raises(ValueError, match="max_device_bytes=4000 is too little"):
        lr.reduce_large(x, max_device_bytes=4000)


@pytest.mark.parametrize(
    ("shape", "dtype", "axis", "limit"),
    [
        ((4000, 4), "u1", 1, 64_000 + 20_000),  # 4 bytes a row, 16 of results
        ((1, 2, 520), "u1", 1, 8320 + 2 * 8192),  # more results side by side than a piece has bytes
        ((40, 2), "u1", 1, 640 + 1280),  # a piece of less than a leaf
        ((130 * 512, 3), "f8", 0, 48 + 2 * 8192),  # partials of two columns, then of one
    ],
)
def test_the_least_memory_holds_results_on_their_way_too(shape, dtype, axis, limit, monkeypatch):
    """Of operators with several: each piece's lie together before they are brought to their places."""
    x = (np.arange(np.prod(shape)) % 251).astype(dtype).reshape(shape)
    taken, allocate, allocate_async = [0, 0], lr.Buffer._allocate.__func__, lr.Buffer.allocate_async.__func__

    def counted(cls, size_bytes, *rest, make, **options):
        made = make(cls, size_bytes, *rest, **options)
        if made._kind == "device":
            taken[:] = taken[0] + size_bytes, max(taken[1], taken[0] + size_bytes)
            weakref.finalize(made, lambda: taken.__setitem__(0, taken[0] - size_bytes))
        return made

    with simulator.use("H200"), lr.Context.primary() as context, context.pushed(), lr.Stream.create(context) as stream:
        expected = [each.tobytes() for each in lr.tree.reduce(x, "mean_var", axis=axis)]
        for name, make in (("_allocate", allocate), ("allocate_async", allocate_async)):
            monkeypatch.setattr(lr.Buffer, name, classmethod(functools.partial(counted, make=make)))
        assert bits(lr.reduce_large(x, "mean_var", axis=axis, max_device_bytes=limit, stream=stream)) == expected
    assert 0 < taken[1] <= limit


@pytest.mark.parametrize(
    ("x", "words"),
    [(3, "not int"), ([1, 2], "not list"), ([np.ones(3, "f4"), np.ones(3, "f8")], "number 1 is of float64")],
)
def test_what_is_no_array_is_refused(x, words, stream):
    with pytest.raises((TypeError, ValueError), match=words):
        lr.reduce_large(x, stream=stream)


def test_two_arrays_are_refused(stream):
    with pytest.raises(ValueError, match="dot takes two arrays.*by second="):
        lr.reduce_large(np.ones(3, "f4"), "dot", stream=stream)

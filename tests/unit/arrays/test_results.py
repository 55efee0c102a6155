"""The memory of results: sizes, reuse, what is kept and what is given back, and an interrupt at every step."""

import gc
import itertools
from types import SimpleNamespace

import interrupts
import pytest
from fake_driver import FakeDriver, in_use

import lowlevel_reduce as lr
from lowlevel_reduce.arrays import results
from lowlevel_reduce.driver import Context, Stream
from tests.fuzz import memory_faults


@pytest.fixture
def fake():
    with in_use(FakeDriver(), "fake-results") as driver:
        yield driver


@pytest.fixture
def pool(fake):
    with Context.create(0) as context, Stream.create(context) as stream:
        yield results.Pool(stream, context)
        gc.collect()


@pytest.mark.parametrize("size", [1, 256, 257, 1000, 4096, 5000, 32_769, 100_000, 1_000_001, 1 << 25])
def test_cells_have_room_for_what_is_asked_and_at_most_a_quarter_more(size):
    found = results.cell_size(size)
    assert size <= found
    assert found % results.CELL_BYTES == 0
    assert found <= max(results.CELL_BYTES, size + size // 4 + results.CELL_BYTES)


def test_cells_of_a_chunk_do_not_overlap(monkeypatch):
    chunks = (SimpleNamespace(pointer=number << 20) for number in itertools.count(1))
    monkeypatch.setattr(results, "Buffer", SimpleNamespace(allocate_async=lambda size, stream: next(chunks)))
    pool = results.Pool(None, SimpleNamespace(id=1))
    for size in (256, 700, 5000, 30_000):
        cells = [pool.take(size) for _ in range(20)]
        places = sorted(cell.pointer for cell in cells)
        assert all(after - before >= size for before, after in itertools.pairwise(places))
        assert all(place % results.CELL_BYTES == 0 for place in places)
        assert all(place % (1 << 20) + size <= results._CHUNK_BYTES for place in places)


@pytest.mark.parametrize("size", [100, 3000, 200_000])
def test_a_cell_is_used_again_once_it_is_let_go_and_the_driver_is_not_asked(fake, pool, size):
    first = pool.take(size)
    place, asked = first.pointer, fake.count("cuMemAllocAsync")
    second = pool.take(size)
    assert second.pointer != place
    del first
    third = pool.take(size)
    assert third.pointer == place
    assert fake.count("cuMemAllocAsync") == asked + (size > results._ALONE_BYTES)
    del second, third


def test_what_is_kept_of_large_results_is_bounded(fake, pool, monkeypatch):
    monkeypatch.setattr(results, "MAX_KEPT_BYTES", 500_000)
    cells = [pool.take(200_000) for _ in range(4)]
    del cells
    assert pool.kept_bytes <= 500_000
    assert fake.count("cuMemFreeAsync") == 2


def test_memory_is_counted_and_given_back_on_request(fake, pool):
    small, large = pool.take(300), pool.take(1 << 20)
    before = lr.memory_stats()
    assert before["held_bytes"] >= results._CHUNK_BYTES
    part = results.Part(small, 128)
    assert part.pointer == small.pointer + 128
    del small
    lr.empty_cache()
    assert pool.stats()[0] == results._CHUNK_BYTES, "the part keeps its cell, and so its chunk"
    del part, large
    assert pool.stats() == (results._CHUNK_BYTES + (1 << 20),) * 2 or pool.stats()[0] == pool.stats()[1]
    lr.empty_cache()
    assert pool.stats() == (0, 0)
    assert fake.count("cuMemFreeAsync") == fake.count("cuMemAllocAsync") == 2


@pytest.fixture
def new(monkeypatch):
    """Return what makes pools whose memory is no device's, eight cells of a chunk."""
    monkeypatch.setattr(results, "_CHUNK_BYTES", 8 * results.CELL_BYTES)

    def allocate(size, stream):
        return SimpleNamespace(pointer=next(places), close=lambda: None)

    places = itertools.count(1 << 20, 1 << 16)
    monkeypatch.setattr(results, "Buffer", SimpleNamespace(allocate_async=allocate))
    return lambda: results.Pool(None, SimpleNamespace(id=1))


def all_there(of, held=()):
    """Tell whether each cell of each chunk is free, or held, once."""
    addresses = [*free_of(of), *(cell.pointer for cell in held)]
    there = {chunk.pointer + i * results.CELL_BYTES for kept in of._chunks.values() for chunk in kept for i in range(8)}
    return len(addresses) == len(there) and set(addresses) == there


def free_of(of):
    return [address for free in of._small.values() for address in free.addresses]


def test_cells_are_apart_and_given_back(new):
    of = new()
    held = [of.take() for _ in range(17)]
    assert all(cell.pool is of for cell in held)
    assert all_there(of, held)
    freed = held.pop(5).pointer
    assert of.take().pointer == freed, "of the last one that was given back"
    held.clear()
    assert all_there(of)
    assert len(free_of(of)) == 24


def test_an_interrupt_loses_no_cell(new):
    for step in itertools.count():
        of, held = new(), []

        def work(of=of, held=held):
            held.append(of.take())
            held.clear()
            of.take()

        over = interrupts.interrupted(work, step, files={results.__file__}) is None
        held.clear()
        assert all_there(of), step
        if over:
            break
    assert step > 60


def test_an_interrupt_of_a_release_loses_no_cell(new):
    for step in itertools.count():
        of = new()
        cells = [of.take() for _ in range(20)]  # of three chunks
        held = [cells.pop(10)]
        cells.clear()
        over = interrupts.interrupted(of.release, step, files={results.__file__}, signals_only=True) is None
        assert all_there(of, held), step
        if over:
            break
    assert step > 8
    assert len(free_of(of)) == 7, "of the chunk of the one that is held"


@pytest.mark.skipif(memory_faults.why_not() is not None, reason=str(memory_faults.why_not()))
def test_a_failed_allocation_leaves_no_memory_without_cells(new):
    import _testcapi

    refused = 0
    for number in range(60):
        of = new()
        held = [of.take() for _ in range(8)]  # the next one needs another chunk
        try:
            _testcapi.set_nomemory(number, number + 1)
            held.append(of.take())
        except MemoryError:
            _testcapi.remove_mem_hooks()
            refused += 1
        _testcapi.remove_mem_hooks()
        held.append(of.take())
        assert len(free_of(of)) + len(held) in (15, 16), "but for one that was taken when there was no memory for it"
        assert not set(free_of(of)) & {cell.pointer for cell in held}
    assert refused > 5

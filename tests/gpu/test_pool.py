"""Memory pools: made and borrowed, allocated from in a stream's order, measured and trimmed."""

import numpy as np
import pytest

from lowlevel_reduce.driver import Buffer, MemoryPool

pytestmark = pytest.mark.bindings

SIZE = 4 << 20


@pytest.fixture
def pool(device, context):
    with MemoryPool.create(device) as pool:
        yield pool


def test_memory_of_a_pool_is_memory(pool, stream):
    with pool.allocate(SIZE, stream) as buffer:
        buffer.fill(9, stream=stream)
        there = np.empty(SIZE, np.uint8)
        buffer.copy_to(there, stream=stream)
        stream.synchronize()
        assert (there == 9).all()


def test_a_pool_counts_what_it_holds(pool, stream):
    assert pool.statistics().used_bytes == 0
    with pool.allocate(SIZE, stream):
        held = pool.statistics()
        assert SIZE <= held.used_bytes <= held.reserved_bytes
    stream.synchronize()
    freed = pool.statistics()
    assert freed.used_bytes == 0
    assert freed.used_high_bytes == held.used_bytes
    pool.reset_high()
    assert pool.statistics().used_high_bytes == 0


def test_a_pool_keeps_up_to_its_threshold_until_it_is_trimmed(device, context, stream):
    with MemoryPool.create(device, release_threshold_bytes=1 << 40) as pool:
        assert pool.release_threshold_bytes == 1 << 40
        pool.allocate(SIZE, stream).close()
        stream.synchronize()
        assert pool.statistics().reserved_bytes >= SIZE
        pool.trim()
        assert pool.statistics().reserved_bytes == 0
        pool.release_threshold_bytes = 0
        assert pool.release_threshold_bytes == 0


def test_memory_outlives_its_pool(device, context, stream):
    pool = MemoryPool.create(device)
    buffer = pool.allocate(SIZE, stream)
    pool.close()
    pool.close()
    buffer.fill(1, stream=stream)
    buffer.close()
    stream.synchronize()
    with pytest.raises(ValueError, match="memory pool is closed"):
        pool.allocate(SIZE, stream)


def test_the_devices_own_pools_are_borrowed(device, context, stream):
    default, current = MemoryPool.default(device), MemoryPool.current(device)
    assert default.is_borrowed
    assert current.device == device
    before = default.statistics().used_bytes
    with Buffer.allocate_async(SIZE, stream, pool=MemoryPool.from_handle(default.handle, device)):
        assert default.statistics().used_bytes >= before + SIZE
    default.close()
    assert MemoryPool.default(device).handle, "closing a borrowed pool leaves it as it is"


@pytest.mark.parametrize("name", ["release_threshold_bytes", "max_size_bytes"])
def test_sizes_that_make_no_sense(device, context, name):
    with pytest.raises(ValueError, match="not negative"):
        MemoryPool.create(device, **{name: -1})
    with pytest.raises(TypeError, match="an int, not float"):
        MemoryPool.create(device, **{name: 1.0})
    with MemoryPool.create(device) as pool, pytest.raises(ValueError, match="keep_bytes is not negative"):
        pool.trim(-1)


def test_an_empty_allocation_asks_the_pool_for_nothing(pool, stream):
    with pool.allocate(0, stream) as buffer:
        assert buffer.pointer == 0
    assert pool.statistics().used_high_bytes == 0

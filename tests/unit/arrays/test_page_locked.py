"""Page-locked memory that is kept: used again, bounded, given back on request, and gone with its context."""

import os
import sys

import pytest
from cuda.bindings import driver as cu
from fake_driver import FakeDriver, in_use

import lowlevel_reduce as lr
from lowlevel_reduce.arrays import page_locked
from lowlevel_reduce.driver import Context


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(page_locked, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(page_locked, "MAX_KEPT_BYTES", 2500)
    monkeypatch.setattr(page_locked, "_kept", {})
    with in_use(FakeDriver(), "fake-page-locked") as driver:
        yield driver


def test_a_block_is_used_again_by_its_context_alone(fake):
    with Context.create(0) as first, Context.create(0) as second:
        block = page_locked.take(1000, first)
        pointer = block.pointer
        page_locked.give_back(block)
        other = page_locked.take(1000, second)
        assert other.pointer != pointer
        again = page_locked.take(1000, first)
        assert again.pointer == pointer
        assert fake.count("cuMemHostRegister") == 2
        again.close()
        other.close()


def test_what_is_kept_is_bounded_and_of_one_size(fake):
    with Context.create(0) as context:
        for size in (999, 1001, 1000):
            taken = [page_locked.take(size, context) for _ in range(4)]
            for each in taken:
                page_locked.give_back(each)
        assert page_locked.free_bytes() == lr.memory_stats()["page_locked_bytes"] == 2000
        assert fake.count("cuMemHostUnregister") == 2 + 4 + 4
        lr.empty_cache()
        assert page_locked.free_bytes() == 0
        assert fake.count("cuMemHostUnregister") == fake.count("cuMemHostRegister") == 12


def test_nothing_is_kept_of_a_context_that_has_ended(fake):
    with Context.create(0) as context:
        page_locked.give_back(page_locked.take(1000, context))
        assert len(page_locked._kept) == 1
    freed = fake.count("cuMemHostUnregister")
    with Context.create(0) as context:
        page_locked.give_back(page_locked.take(1000, context))
        assert len(page_locked._kept) == 1, "only that of the new one"
        assert page_locked.free_bytes() == 1000
        assert fake.count("cuMemHostUnregister") == freed, "the driver ends it with its context"
        page_locked.release()


def test_what_is_kept_keeps_no_primary_context(fake):
    with Context.primary(0) as context:
        page_locked.give_back(page_locked.take(1000, context))
    assert fake.retained[0] == 0


def test_pages_are_the_driver_s_where_it_registers_none(fake):
    with Context.create(0) as context, page_locked.take(100, context) as block:
        assert block.pointer % (2 << 20) == 0, "large pages"
        assert block.kind == "pinned"
        view = block.host_view()
        assert view.nbytes == 100
        view[:] = 7
    fake.attributes["HOST_REGISTER_SUPPORTED"] = 0
    with in_use(fake, "fake-without"), Context.create(0) as context, page_locked.take(100, context) as block:
        assert fake.count("cuMemHostAlloc") == 1
        block.host_view()[:] = 7


def test_a_refused_registration_is_raised_and_nothing_is_left(fake):
    with Context.create(0) as context:
        fake.fails["cuMemHostRegister"] = cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        with pytest.raises(lr.CudaError, match="OUT_OF_MEMORY"):
            page_locked.take(1000, context)
        assert fake.count("cuMemHostUnregister") == 0


@pytest.mark.skipif(sys.platform != "linux", reason="pages are mapped on Linux alone")
def test_a_forked_child_has_other_pages(fake):
    """Else the parent would write to new ones, and the device read the old ones."""
    with Context.create(0) as context, page_locked.take(1000, context) as block:
        view = block.host_view()
        view[:] = 7
        child = os.fork()
        if child == 0:
            os._exit(int(view.any()))
        assert os.waitpid(child, 0)[1] == 0
        assert (view == 7).all()
        assert fake.count("cuMemHostRegister") == 1


def test_of_too_many_contexts_nothing_is_kept(fake, monkeypatch):
    monkeypatch.setattr(page_locked, "_MOST_CONTEXTS", 1)
    with Context.create(0) as first, Context.create(0) as second:
        for context in (first, second, first):
            page_locked.give_back(page_locked.take(1000, context))
        assert len(page_locked._kept) == 1
        assert page_locked.free_bytes() == 1000
        page_locked.release()

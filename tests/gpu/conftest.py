"""Tests that need a GPU: skipped, with the reason, where there is none."""

from pathlib import Path

import pytest

from lowlevel_reduce.driver import Context, Device, Stream, why_unavailable

REASON = why_unavailable()


def pytest_collection_modifyitems(items):
    # The hook sees the whole session's items; only those of this folder are meant.
    here = Path(__file__).parent
    if REASON is not None:
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=f"needs a GPU: {REASON}"))


@pytest.fixture(scope="session")
def device():
    return Device(0)


@pytest.fixture(scope="session")
def primary(device):
    """The primary context, retained for the session: letting go of it would tear it down after each test."""
    with Context.primary(device) as primary:
        yield primary


@pytest.fixture
def context(device, primary):
    """The primary context, current on this thread; what was current before is current afterwards."""
    with Context.primary(device) as context, context.pushed():
        yield context


@pytest.fixture
def stream(context):
    with Stream.create(context) as stream:
        yield stream
        stream.synchronize()

"""The public functions on simulated GPUs: they need NVRTC and no GPU; without NVRTC they are skipped and say so."""

import pytest

from lowlevel_reduce import Context, Device, Stream, simulator


@pytest.fixture(scope="session", autouse=True)
def _compiled(kept_kernels):
    """Every test here runs compiled kernels."""


@pytest.fixture
def name():
    """The simulated device; a test may ask for another one."""
    return "H200"


@pytest.fixture
def driver(name):
    with simulator.use(name) as driver:
        yield driver


@pytest.fixture
def context(driver):
    with Context.primary(Device(0)) as context, context.pushed():
        yield context


@pytest.fixture
def stream(context):
    with Stream.create(context) as stream:
        yield stream

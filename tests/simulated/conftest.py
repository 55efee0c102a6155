"""The public functions on simulated GPUs: they need NVRTC and no GPU; without NVRTC they are skipped and say so."""

import pytest

from lowlevel_reduce import Context, Device, Stream, simulator
from lowlevel_reduce.compiler import version
from lowlevel_reduce.errors import NoCompilerError


@pytest.fixture(scope="session", autouse=True)
def _needs_nvrtc():
    try:
        version()
    except NoCompilerError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session", autouse=True)
def _one_cache_for_all(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


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

"""For all tests: hypothesis without a deadline, since no test asserts a time; the switch of tests/gpu; one cache."""

import os

import pytest
from hypothesis import settings

from lowlevel_reduce import NoCompilerError, compiler

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


def pytest_addoption(parser):
    parser.addoption(
        "--simulated",
        action="store_true",
        help="where there is a GPU, run tests/gpu on the simulated one too; where there is none, that is done anyway",
    )


@pytest.fixture(scope="session")
def cache_of_the_simulated(tmp_path_factory):
    """What tests on simulated GPUs compile is compiled once a run; without NVRTC they are skipped and say so."""
    try:
        compiler.version()
    except NoCompilerError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # which the run's processes share
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", str(folder / "cache of the simulated"))
        yield

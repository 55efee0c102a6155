"""Random bad inputs of the public functions: each is refused in words, by a typed error, or is right."""

import pytest

from tests.fuzz.arguments import fuzz_arguments
from tests.fuzz.protocols import fuzz_protocols


@pytest.fixture
def seed(request):
    return request.config.option.seed  # which pytest's first lines name, and which repeats a run


def test_producers_that_lie_are_refused(seed):
    tally = fuzz_protocols(seed, 500)
    tally.check()
    assert tally.tried == 500
    assert min(tally.accepted, tally.refused["TypeError"], tally.refused["ValueError"]) >= 10


def test_bad_arguments_are_refused_by_name(seed):
    tally = fuzz_arguments(seed, 500)
    tally.check()
    assert tally.tried > 450
    assert min(tally.accepted, tally.refused["TypeError"], tally.refused["ValueError"]) >= 10

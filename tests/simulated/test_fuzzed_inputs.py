"""Random bad inputs of the public functions: each is refused in words, by a typed error, or is right."""

import pytest

from tests.fuzz.arguments import fuzz_arguments
from tests.fuzz.protocols import ByCapsule, device, fuzz_protocols, raising, uses


@pytest.fixture
def seed(request):
    return request.config.option.seed  # which pytest's first lines name, and which repeats a run


def test_producers_that_lie_are_refused(seed):
    tally = fuzz_protocols(seed, 500)
    tally.check()
    assert tally.tried == 500
    assert min(tally.accepted, tally.refused["TypeError"], tally.refused["ValueError"]) >= 10


class ByRaising(ByCapsule):
    """An array by DLPack with the attributes that some ask first."""

    shape, dtype = (24,), "float32"


@pytest.mark.parametrize("member", ["__dlpack__", "__dlpack_device__"])
@pytest.mark.parametrize("is_property", [False, True], ids=["function", "property"])
def test_every_way_names_the_array_that_raises(member, is_property):
    """Whatever a member of a protocol raises, an error of a kind that is documented names the array's class."""
    with device() as x:
        for kind, told in ((TypeError, TypeError), (ValueError, ValueError), (KeyError, BufferError)):
            function = raising(kind)
            producer = type("ByRaising", (ByRaising,), {member: property(function) if is_property else function})
            for name, way in uses(x).items():
                with pytest.raises(told, match="ByRaising") as caught:
                    way(producer(x))
                assert type(caught.value) is told, name
                assert ("shard 0: " in str(caught.value)) == (name == "shards" and member == "__dlpack_device__"), name


def test_bad_arguments_are_refused_by_name(seed):
    tally = fuzz_arguments(seed, 500)
    tally.check()
    assert tally.tried > 450
    assert min(tally.accepted, tally.refused["TypeError"], tally.refused["ValueError"]) >= 10

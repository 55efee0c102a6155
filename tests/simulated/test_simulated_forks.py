"""A child forked after calls were made: what the parent's threads keep for their next calls is not used there."""

import json
import os
from contextlib import nullcontext

import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.driver import Stream
from tests.fuzz.operations import LINE, SHARDS
from tests.fuzz.worlds import Machine, keep_kernels, world

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def _in_a_stream(one):
    x = lr.DeviceArray.from_numpy(LINE, one.stream)
    return lambda: lr.sum(x, stream=one.stream)


def _in_a_default_stream(one):
    x = lr.DeviceArray.from_numpy(LINE, Stream.legacy(one.context))
    return lambda: lr.sum(x)


def _of_numpys(one):
    """Of which a call asks what context is current, by a function's address."""
    return lambda: lr.sum(LINE)


def _of_shards(one):
    arrays = [lr.DeviceArray.from_numpy(part, one.stream) for part in SHARDS]
    return lambda: lr.reduce_shards(arrays)


def _in_a_child(one, call):
    """Return how a call ends in a forked child, and which functions of the driver it calls there."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        one.valve.reset()
        try:
            call()
            ended = "a result"
        except BaseException as error:  # noqa: BLE001 - the parent looks at it
            ended = f"{type(error).__name__}: {error}"
        os.write(writing, json.dumps([ended, one.valve.names]).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as file:
        found = file.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return json.loads(found)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12's, where other threads run
@pytest.mark.parametrize("is_current", [False, True], ids=["", "in the current context"])
@pytest.mark.parametrize("make", [_in_a_stream, _in_a_default_stream, _of_numpys, _of_shards])
def test_a_repeated_call_asks_nothing_of_the_driver_in_a_forked_child(make, is_current):
    """Its driver cannot be used there: what a thread has prepared calls it by an address, and would be let in."""
    keep_kernels()
    with world(Machine()) as one, one.context.pushed() if is_current else nullcontext():
        call = make(one)
        call()
        call()
        ended, names = _in_a_child(one, call)
        assert ended.startswith("NoDriverError: this process was forked")
        assert names == []
        assert call().numpy().tobytes(), "the parent's goes on"

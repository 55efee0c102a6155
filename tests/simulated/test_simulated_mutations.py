"""Mutations of this package's own PTX, in the place of kernels that are about to run; they need NVRTC and no GPU."""

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from tests.fuzz import ptx_mutations

CALLS = {
    "sum of a row": lambda: lr.sum(np.arange(300, dtype=np.float32)),
    "columns": lambda: lr.max(np.arange(64, dtype=np.float16).reshape(8, 8), axis=0),
    "places": lambda: lr.argmin(np.arange(100, 0, -1, dtype=np.int64)),
}
RIGHT = {"sum of a row": np.float32(44850), "columns": np.arange(56, 64), "places": np.int64(99)}


def tally_of(call, seed, count):
    """Mutate the first kernel that a call launches before it runs; return the tally and the call's result."""
    with simulator.use("H200") as driver:
        load, run, texts, tallies = driver._state.engine.parse, driver._state.engine.run, [], []

        def parse(text):
            texts.append(text)
            return load(text)

        def interposed(launch, memory):
            if not tallies:
                text = next(text for text in texts if launch.kernel.name in load(text).kernels)
                tallies.append(ptx_mutations.of_a_launch(text, launch, memory, seed, count))
            return run(launch, memory)

        object.__setattr__(driver._state.engine, "parse", parse)
        object.__setattr__(driver._state.engine, "run", interposed)
        result = np.asarray(call())
    return tallies[0], result


def check(call, seed, count):
    tally, result = tally_of(CALLS[call], seed, count)
    tally.check()
    assert tally.tried == count
    np.testing.assert_array_equal(result, RIGHT[call])
    assert tally.accepted


@pytest.mark.parametrize("call", CALLS)
def test_mutated_kernels_run_or_are_refused(call, request):
    check(call, request.config.option.seed, 20)


@pytest.mark.soak
@pytest.mark.parametrize("call", CALLS)
def test_many_mutated_kernels_run_or_are_refused(call, request):
    check(call, request.config.option.seed, 600)

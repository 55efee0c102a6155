"""The ladder on a device: every rung right at small and large lengths, and timed where there is time to tell."""

import pytest

from lowlevel_reduce.driver import binding
from lowlevel_reduce.ladder import RUNGS, iterate, run

LARGE = [2**24 + 3, 10**8, 10**8 + 1]


def simulated():
    return binding.selected().image == "ptx"


def medium():
    """Return a length of several blocks and a tail, which the simulator need not sit over for long."""
    return 2051 if simulated() else 16_387


def runnable(context, **wanted):
    """Return the rungs that this device can run, those with these attributes."""
    chosen = [rung for rung in RUNGS.values() if all(getattr(rung, name) == value for name, value in wanted.items())]
    return [rung for rung in chosen if rung.lacking(context.device) is None]


def check(records):
    wrong = [record for record in records if record.correct != record.expected_correct]
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("n", [0, 1, 255, 1000])
def test_every_rung_at_small_lengths(context, n):
    check(run(runnable(context), n=n, context=context, timed=False))


@pytest.mark.parametrize("n", LARGE)
def test_every_rung_at_large_lengths(context, n):
    if simulated():
        pytest.skip("the simulator takes minutes for 2^24 elements")
    check(run(runnable(context), n=n, context=context, timed=False))


@pytest.mark.parametrize("block", [32, 128, 512, 1024])
def test_every_block(context, block):
    check(run(runnable(context), n=medium(), block=block, context=context, timed=False))


def test_every_rung_that_takes_float16(context):
    taking = [rung for rung in runnable(context) if "float16" in rung.dtypes]
    check(run(taking, n=medium(), dtype="float16", context=context, timed=False))


def test_the_race_is_wrong(context):
    (record,) = run([RUNGS["race"]], n=medium(), context=context, timed=False)
    assert not record.correct
    assert not record.expected_correct


def test_times_and_rates(context, stream):
    if simulated():
        pytest.skip("the simulator tells no time")
    rungs = runnable(context, system="A") + runnable(context, operation="transpose")
    for record in iterate(rungs, n=2**22 + 1, repeat=3, context=context, stream=stream):
        assert record.microseconds > 0
        bytes_moved = 4 * record.n * (2 if record.rung.startswith("transpose") else 1)
        assert record.gb_per_s == pytest.approx(bytes_moved / record.microseconds / 1e3)
        assert record.percent_of_peak == pytest.approx(1e11 * record.gb_per_s / context.device.peak_bandwidth)
        assert record.counters is None

"""The ladder on a device: every rung right at small and large lengths, and timed where there is time to tell."""

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.driver import binding
from lowlevel_reduce.ladder import RUNGS, iterate, run
from lowlevel_reduce.ladder.data import elements
from lowlevel_reduce.ladder.launches import ReadyRung

LARGE = [2**24 + 3, 10**8, 10**8 + 1]
MAXIMA = [rung.id for rung in RUNGS.values() if rung.operation == "max"]


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
def test_every_rung_at_small_lengths(context, few, n):
    check(run(few(runnable(context), 20), n=n, context=context, timed=False))


@pytest.mark.simulated_if(lambda n: False)  # 2^24 elements would take minutes
@pytest.mark.parametrize("n", LARGE)
def test_every_rung_at_large_lengths(context, n):
    check(run(runnable(context), n=n, context=context, timed=False))


@pytest.mark.simulated_if(lambda n: False)  # 2^24 elements would take minutes
@pytest.mark.parametrize("n", LARGE)
def test_every_rung_that_takes_float16_at_large_lengths(context, n):
    taking = [rung for rung in runnable(context) if "float16" in rung.dtypes]
    check(run(taking, n=n, dtype="float16", context=context, timed=False))


@pytest.mark.parametrize("block", [32, 128, 512, 1024])
def test_every_block(context, few, block):
    check(run(few(runnable(context), 24), n=medium(), block=block, context=context, timed=False))


def test_every_rung_that_takes_float16(context):
    taking = [rung for rung in runnable(context) if "float16" in rung.dtypes]
    check(run(taking, n=medium(), dtype="float16", context=context, timed=False))


def test_the_race_is_wrong(context):
    (record,) = run([RUNGS["race"]], n=medium(), context=context, timed=False)
    assert not record.correct
    assert not record.expected_correct


def reduced(stream, rung, values):
    """Return what a rung makes of values of the test's own."""
    ready = ReadyRung(RUNGS[rung], values.size, values.dtype.name, 256, stream)
    with lr.Buffer.allocate(values.nbytes, stream.context) as source:
        source.copy_from(values)
        ready.poison()
        ready.run(source.pointer)
        (result,) = ready.result()
    ready.close()
    return result


@pytest.mark.parametrize("rung", MAXIMA)
def test_a_maximum_of_negative_values(context, stream, rung):
    lacking = RUNGS[rung].lacking(context.device)
    if lacking is not None:
        pytest.skip(lacking)
    values = -1.0 - np.random.default_rng(7).random(2003, np.float32)
    for place in (0, 1001, -1):  # the last of which fills no vector
        greatest = values.copy()
        greatest[place] = -1.0
        assert reduced(stream, rung, greatest) == -1.0
    values[:] = -np.inf
    assert reduced(stream, rung, values) == -np.inf


def test_compensation_keeps_what_a_plain_sum_loses(stream):
    random = np.random.default_rng(5)
    small, large = elements(3003, "float32", "sum"), random.integers(2**24, 2**30, 1000).astype(np.float32)
    values = random.permutation(np.concatenate((small, large, -large)))
    # Multiples of 1/256 below 2^35 in two parts of 24 bits: no rounding is lost.
    assert reduced(stream, "kahan", values) == small.sum(dtype=np.float64)
    assert reduced(stream, "two_stage", values) != small.sum(dtype=np.float64)


def test_means_of_float16_do_not_overflow_where_sums_do(stream):
    values = np.full(5003, 100.0, np.float16)
    assert reduced(stream, "float16_narrow", values) == np.inf
    assert reduced(stream, "float16_promoted", values) == 500_300.0
    # 8 and 5 levels of halves, each of which rounds to 11 bits.
    assert reduced(stream, "float16_scaled", values) == pytest.approx(500_300.0, rel=13 * 2.0**-11)


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

"""Whole leaves of float32, half of whose elements are summed scaled: where that could show, bit for bit."""

import numpy as np
import pytest

import lowlevel_reduce as lr

LEAF = 1024
RNG = np.random.default_rng(2024)


def of_bits(low, high, shape):
    """Return numbers of both signs with random bits, those of the magnitude from `low` to below `high`."""
    bits = RNG.integers(low, high, shape, np.uint32) | RNG.integers(0, 2, shape, np.uint32) << np.uint32(31)
    return bits.view(np.float32)


def cancelling(shape):
    """Return numbers whose neighbours cancel, all but a few of them."""
    x = of_bits(0, 0x7F800000, shape)
    x[..., 1::2] = -x[..., ::2]
    x[..., ::97] = of_bits(0, 0x00900000, shape)[..., ::97]
    return x


FINITE = {
    "any": lambda shape: of_bits(0, 0x7F800000, shape),
    "subnormal": lambda shape: of_bits(0, 0x00800000, shape),
    "about the smallest normal": lambda shape: of_bits(0x007FFF00, 0x01800000, shape),
    "with few bits, far apart": lambda shape: (of_bits(0, 0x7F800000, shape).view("u4") & 0xFFE00000).view("f4"),
    "huge": lambda shape: np.abs(of_bits(0x7F7FFF00, 0x7F800000, shape)),
    "huge, of both signs": lambda shape: of_bits(0x7F000000, 0x7F800000, shape),
    "cancelling": cancelling,
    "zeros of both signs": lambda shape: of_bits(0, 1, shape),
    "negative zeros": lambda shape: np.full(shape, -0.0, np.float32),
}


def assert_tree(x, stream, axis=None):
    """Sum as the kernels do and as the tree does, to float64, which hides no bit."""
    found = lr.sum(lr.DeviceArray.from_numpy(x, stream), axis=axis, dtype="float64", stream=stream).numpy()
    expected = lr.tree.reduce(x, axis=axis, dtype="float64")
    wrong = np.flatnonzero(found.view("u8") != expected.view("u8"))
    assert not wrong.size, f"{wrong[:5]}: {found.ravel()[wrong[:5]]} is not {expected.ravel()[wrong[:5]]}"


@pytest.mark.parametrize("kind", FINITE)
def test_finite_numbers(stream, cut, kind):
    assert_tree(FINITE[kind](LEAF), stream)
    assert_tree(FINITE[kind](5 * LEAF), stream)
    assert_tree(FINITE[kind]((cut(200, 20), 2 * LEAF)), stream, axis=1)


SPECIALS = [[np.inf], [-np.inf], [np.nan], [np.inf, np.inf], [-np.inf, -np.inf], [np.inf, -np.inf], [np.inf, np.nan]]


@pytest.mark.parametrize("special", SPECIALS, ids=str)
@pytest.mark.parametrize("kind", ["any", "huge", "negative zeros"])
def test_infinities_and_nan_in_every_slot(stream, special, kind):
    vectors = [(step, lane) for step, lane in ((0, 0), (3, 31), (7, 16))]
    places = [4 * (32 * step + lane) + slot for step, lane in vectors for slot in range(4)]
    x = FINITE[kind]((len(places) ** len(special), 2 * LEAF))
    for row, at in zip(x, np.ndindex(*(len(places),) * len(special)), strict=True):
        row[[places[each] for each in at]] = special
    assert_tree(x, stream, axis=1)
    assert_tree(x[0], stream)

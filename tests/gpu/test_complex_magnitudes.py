"""Magnitudes of complex64, whose squares float64 holds: of parts of every size, infinite or NaN, bit for bit."""

import itertools

import numpy as np
import pytest
from placed import assert_same, reduced

import lowlevel_reduce as lr
from lowlevel_reduce import tree

LEAF = 512
PARTS = [0.0, -0.0, 1e-45, 2.0**-126, 1.0, -3.0, 3.4028235e38, np.inf, -np.inf, np.nan, -np.nan]


def elements(shape, finite):
    rng = np.random.default_rng(6)
    parts = (rng.standard_normal((2, *shape)) * 2.0 ** rng.integers(-120, 120, shape)).astype(np.float32)
    if finite == "large":
        parts = np.float32(3e38) + parts / np.abs(parts)
    x = np.empty(shape, np.complex64)
    x.real, x.imag = parts
    if finite == "one is not":
        x.reshape(-1)[x.size // 2] = complex(np.nan, 1)
    return x


def check(x, op, stream, axis=None, **options):
    assert_same(reduced(x, op, stream=stream, axis=axis, **options), tree.reduce(x, op, axis=axis), f"{op} {x.shape}")


@pytest.mark.parametrize("op", ["norm1", "norm_inf"])
def test_all_parts_in_all_places_of_a_vector(stream, op):
    """An infinite part makes a magnitude infinite, also beside a NaN, and a NaN elsewhere wins."""
    pairs = list(itertools.product(PARTS, PARTS))
    x = np.zeros((2 * len(pairs), 2), np.complex64)
    for i, (re, im) in enumerate(pairs):
        x[i, 0] = x[len(pairs) + i, 1] = complex(re, im)
    x[len(pairs) :: 3, 0] = complex(np.nan, -np.inf)
    check(x, op, stream, axis=1)


@pytest.mark.parametrize("finite", ["of any size", "large", "one is not"])
@pytest.mark.parametrize("op", ["norm1", "norm_inf"])
def test_every_kind_of_kernel(stream, op, finite, few):
    for length, offset in few([(1, 0), (2 * LEAF - 2, 0), (3 * LEAF + 1, 8), (2 * LEAF, 4)], 2):
        check(elements((length,), finite), op, stream, offset=offset)
    for shape, axis in few([((5, 2), 1), ((5, 7), 1), ((4, 64), 1), ((3, 2 * LEAF + 3), 1), ((30, 7), 0)], 2):
        check(elements(shape, finite), op, stream, axis=axis)
    x, offsets = elements((900,), finite), np.array([0, 3, 20, 84, 900])
    found = lr.segmented_reduce(x, offsets, op, stream=stream).numpy()
    for i, (first, end) in enumerate(itertools.pairwise(offsets)):
        assert_same(found[i], tree.reduce(x[first:end], op), f"{op}, segment {i}")

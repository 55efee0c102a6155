"""Float64 arrays whose sum is far smaller than their elements, for tests of the compensated accumulator."""

import math

import numpy as np
import numpy.typing as npt


def cancelling(length: int, condition: float, seed: int) -> npt.NDArray[np.float64]:
    """Return values x with sum(abs(x)) / abs(sum(x)) near `condition`, in random order.

    Four fifths of them are pairs a and -a whose magnitudes spread over 2^30, and which so add up to nothing; the sum is
    that of the rest, which is scaled for the condition number to come out.
    """
    rng = np.random.default_rng(seed)
    pairs = max(length * 2 // 5, 1)
    half = rng.standard_normal(pairs) * 2.0 ** rng.uniform(0, 30, pairs)
    rest = rng.standard_normal(length - 2 * pairs)
    rest *= 2 * np.abs(half).sum() / (condition * abs(math.fsum(rest)))
    return rng.permutation(np.concatenate([half, -half, rest]))


def condition_of(x: npt.NDArray[np.float64]) -> float:
    """Return an array's condition number for summation, by the exact sum."""
    return math.fsum(np.abs(x)) / abs(math.fsum(x))


def ulps(found: float, x: npt.NDArray[np.float64]) -> float:
    """Return by how many units in the last place of the exact sum, rounded, `found` differs from it."""
    exact = math.fsum(x)
    return float(abs(float(found) - exact) / np.spacing(abs(exact)))

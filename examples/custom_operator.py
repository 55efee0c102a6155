"""Reduce by an operator of your own: a few expressions in CUDA C++, by the same tree as all other operators.

The operator here is a weighted mean, with the second array's elements as the weights: one pass over both arrays, and an
accumulator of two numbers. Given its definition in NumPy, the tree also computes it on the host, with the same bits. A
mistake raises an error that shows the line of your text, before anything is launched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from _device import any_device

import lowlevel_reduce as lr
from lowlevel_reduce.operators import NumpyMeaning

Array = npt.NDArray[Any]


def terms(x: Array, y: Array | None, places: Array) -> tuple[Array, Array]:
    """Do the same as the operator's map, in NumPy, for elements, weights, and places in the row, which are not used."""
    weights = np.ones_like(places, "f8") if y is None else y.astype("f8")
    return x.astype("f8") * weights, weights


WEIGHTED_MEAN = lr.Operator(
    "weighted_mean",
    accumulator="struct { float64 sum, weight; }",
    accumulator_bytes=16,
    map="{float64(x) * float64(y), float64(y)}",
    combine="{a.sum + b.sum, a.weight + b.weight}",
    identity="{-0.0, -0.0}",  # adding -0.0 changes no number; adding 0.0 would change -0.0
    finish="a.sum / a.weight",
    second=True,
    numpy=NumpyMeaning(
        identity=(-0.0, -0.0),
        map=terms,
        combine=lambda a, b: (a[0] + b[0], a[1] + b[1]),
        finish=lambda a, n: a[0] / a[1],
    ),
)


def main() -> None:
    """Take weighted means of everything, of rows and of columns; then show what a mistake looks like."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 700)).astype(np.float32)
    weights = rng.uniform(0.5, 2.0, x.shape).astype(np.float32)
    with any_device(), lr.Context.primary() as context, context.pushed():
        for axis in (None, 1, 0):
            means = lr.reduce(x, WEIGHTED_MEAN, axis=axis, second=weights).numpy()
            tree = lr.tree.reduce(x, WEIGHTED_MEAN, axis=axis, second=weights)
            near = np.allclose(means, np.average(x, axis=axis, weights=weights), rtol=1e-4, atol=1e-6)
            same = means.tobytes() == np.asarray(tree).tobytes()
            print(f"axis {axis}: {means.size} weighted means, near np.average: {near}, the bits of the tree: {same}")
        try:
            lr.reduce(x, lr.Operator("absmax", map="fabsf(z)", combine="fmaxf(a, b)", identity='nanf("")'))
        except lr.CompileError as error:
            print(f"refused: {next(line for line in str(error).splitlines() if 'error:' in line)}")


if __name__ == "__main__":
    main()

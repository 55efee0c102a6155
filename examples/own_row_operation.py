"""A row operation of your own: reductions of a row, then an expression that writes it back, in one read and one write.

The operation here centres each row about its mean, scales it by a largest magnitude, and keeps that. Its meaning in
NumPy is a function, so `lr.tree` computes it on the host, with the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from _device import any_device

import lowlevel_reduce as lr

CENTRED = lr.RowOperation(
    "centred",
    reduce={"middle": "mean", "largest": "norm_inf"},  # both in one pass
    row={"inverse": "1 / largest"},  # once a row
    write={"out": "(x - middle) * inverse * weight"},  # for each element
    keep={"largest": "largest"},  # one for each row
    columns=("weight",),
    numpy=lr.RowMeaning(
        row=lambda v: {"inverse": v.number(1) / v.largest},
        write=lambda v: {"out": (v.x - v.middle) * v.inverse * v.weight, "largest": v.largest},
    ),
)


def equal(results: Any, meant: Any) -> bool:
    """Tell whether all results have the bits of NumPy's."""
    return all(one.numpy().tobytes() == other.tobytes() for one, other in zip(results, meant, strict=True))


def main() -> None:
    """Apply the operation by a call and by a plan; then show what a mistake looks like."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, 1200)).astype(np.float32)
    weight = rng.uniform(0.5, 2.0, 1200).astype(np.float32)
    with any_device(), lr.Context.primary() as context, context.pushed(), lr.Stream.create(context) as stream:
        found = lr.row_operation(CENTRED, x, weight=weight, stream=stream)
        meant = lr.tree.row_operation(CENTRED, x, weight=weight)
        print(f"a call: {found._fields}, the bits of NumPy: {equal(found, meant)}")

        plan = lr.row_plan(CENTRED, shape=x.shape, dtype="float32", context=context)
        print(plan.describe())
        launch = plan.bind(stream)  # from now on one driver call each: capturable, without allocation or wait
        arrays = [lr.DeviceArray.from_numpy(each, stream) for each in (x, weight)]
        arrays += [lr.DeviceArray.empty(shape, "float32", stream) for shape in (x.shape, x.shape[:1])]
        launch.check(*(each.pointer for each in arrays))
        launch(*(each.pointer for each in arrays))
        print(f"a bound launch: the bits of NumPy: {equal(arrays[2:], meant)}")

        try:
            lr.row_operation(lr.RowOperation("wrong", reduce={"s": "sum"}, write={"out": "x / z"}), x)
        except lr.CompileError as error:
            print(f"refused: {next(line for line in str(error).splitlines() if 'error:' in line)}")


if __name__ == "__main__":
    main()

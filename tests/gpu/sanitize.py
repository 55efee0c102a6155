"""Runs every kernel on small, awkward inputs and checks the bits; made to be run under compute-sanitizer.

compute-sanitizer --tool memcheck|racecheck|synccheck|initcheck --error-exitcode 9 python tests/gpu/sanitize.py
"""

import itertools
import sys

import numpy as np

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import numpy_dtype

KERNELS = [
    {"strategy": "block"},
    {"strategy": "cluster", "cluster": 8},
    {"strategy": "cluster", "cluster": 16},
    {"strategy": "tiles", "cluster": 1},
    {"strategy": "tiles", "cluster": 4},
    {"strategy": "tiles", "cluster": 1, "block_threads": 512},
    {"strategy": "two_pass"},
    {"strategy": "cooperative"},
]
TYPES = [("float32", None), ("float16", None), ("float64", "compensated"), ("int8", None)]
LENGTHS = [0, 1, 1023, 4097, 300_001]
OFFSETS = [0, 1, 12]


def main():
    rng = np.random.default_rng(0)
    done = 0
    with lr.Context.primary() as context, context.pushed(), lr.Stream.create(context) as stream:
        for (dtype, accumulate), kernel in itertools.product(TYPES, KERNELS):
            for n, offset in itertools.product(LENGTHS, OFFSETS):
                x = (rng.standard_normal(n) * 50).astype(numpy_dtype(dtype))
                size = max(x.nbytes + offset, 1)  # exactly: a byte too far is out of bounds
                with (
                    lr.plan("sum", shape=n, dtype=dtype, accumulate=accumulate, context=context, **kernel) as plan,
                    lr.Buffer.allocate(size, context) as memory,
                    lr.Buffer.allocate(plan.result_dtype.itemsize, context) as result,
                ):
                    place = lr.Buffer.from_pointer(memory.pointer + offset, x.nbytes, context=context)
                    place.copy_from(x)
                    launch = plan.bind(stream)
                    for _ in range(2):
                        launch(place.pointer, result.pointer)
                    value = np.empty((), plan.result_dtype)
                    stream.synchronize()
                    result.copy_to(value)
                    launch.close()
                    if value.tobytes() != lr.tree.reduce(x, accumulate=accumulate).tobytes():
                        sys.exit(f"wrong: {dtype} {kernel} n={n} offset={offset}: {value}")
                    done += 1
    print(f"{done} launches checked")


if __name__ == "__main__":
    main()

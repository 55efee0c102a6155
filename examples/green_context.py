"""Run reductions on a share of the GPU: a green context, whose grids and cooperative launches are sized by the share.

A runtime that gives one share of the multiprocessors to prefill and another to decoding wants each part's kernels to
stay in their share. A persistent, cooperative grid that is sized for the whole device would not even start in a share.
The bits do not depend on the share: the tree is always the same.
"""

from __future__ import annotations

import numpy as np
from _device import any_device

import lowlevel_reduce as lr


def total(x: np.ndarray, context: lr.Context) -> np.ndarray:
    """Return the sum by a cooperative plan in `context`, and print the size of its grid."""
    with (
        lr.Stream.create(context) as stream,
        lr.plan("sum", shape=x.shape, dtype=x.dtype, context=context, strategy="cooperative") as plan,
        lr.Buffer.allocate(x.nbytes, context) as source,
        lr.Buffer.allocate(x.itemsize, context) as result,
    ):
        source.copy_from(x)
        launch = plan.bind(stream)
        launch(source.pointer, result.pointer)
        value = np.empty((), x.dtype)
        result.copy_to(value, stream=stream)
        stream.synchronize()
        launch.close()
        blocks = plan.launches[0][1].grid_blocks
        print(f"{context.multiprocessor_count} multiprocessors: a cooperative grid of {blocks} blocks, sum {value}")
        return value


def main() -> None:
    """Sum on the whole device and on a share of it, and compare the bits."""
    with any_device() as simulated, lr.Context.primary() as whole, whole.pushed():
        x = np.random.default_rng(0).standard_normal(1_000_000 if simulated else 50_000_000).astype(np.float32)
        values = [total(x, whole)]
        try:
            with lr.Context.green(whole.device, max(whole.device.multiprocessor_count // 8, 1)) as share:
                values.append(total(x, share))
        except lr.UnsupportedError as error:
            print(f"no green context here: {error}")
        bits = {value.tobytes() for value in (*values, lr.tree.reduce(x))}
        print(f"the same bits everywhere: {len(bits) == 1}")


if __name__ == "__main__":
    main()

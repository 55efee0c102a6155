"""Sum with a persistent, cooperative grid: as many blocks as fit at once, and one barrier of the whole grid.

An occupancy query for the context gives the size of the grid. A larger grid could wait forever for blocks that have no
room to begin, so it is refused with a clear error. Smaller and larger inputs take the same number of blocks.
"""

from __future__ import annotations

import numpy as np
from _device import any_device

import lowlevel_reduce as lr
from lowlevel_reduce.driver import occupancy
from lowlevel_reduce.driver.checks import check_launch


def main() -> None:
    """Sum inputs of several sizes cooperatively, then request one block too many."""
    with any_device() as simulated, lr.Context.primary() as context, context.pushed():
        if not context.device.supports_cooperative_launch:
            print(f"{context.device.name} has no cooperative launch")
            return
        for n in (1000, 300_000, 1_500_000 if simulated else 100_000_000):
            x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
            with lr.plan("sum", shape=n, dtype=x.dtype, context=context, strategy="cooperative") as plan:
                kernel, config = plan.launches[0]
                value = lr.sum(x, strategy="cooperative").numpy()
            equal = value.tobytes() == lr.tree.reduce(x).tobytes()
            print(
                f"{n} elements: {config.grid_blocks} blocks of {config.block_threads}, sum {value}, bits equal: {equal}"
            )
        fit = occupancy.max_cooperative_blocks(kernel, config.block_threads, context=context)
        print(f"{context.multiprocessor_count} multiprocessors hold {fit} such blocks at once")
        try:
            check_launch(kernel, lr.LaunchConfig(fit + 1, config.block, cooperative=True), context)
        except ValueError as error:
            print(f"refused: {error}")


if __name__ == "__main__":
    main()

"""Run a reduction in a context that is yours, and leave everything around it as it was.

A runtime owns its contexts: the package uses the one that it is given, and creates, retains or switches none by itself.
Here a context is created beside the primary one, and a plan is made for it. The primary context is current in the
calling thread, and it is still current after every call, even after one that fails.
"""

from __future__ import annotations

import numpy as np
from _device import any_device

import lowlevel_reduce as lr


def main() -> None:
    """Sum in a created context while another one is current."""
    x = np.random.default_rng(0).standard_normal(50_000).astype(np.float32)
    with any_device(), lr.Context.primary() as primary, primary.pushed(), lr.Context.create() as mine:
        with lr.Stream.create(mine) as stream, lr.plan("sum", shape=x.shape, dtype=x.dtype, context=mine) as plan:
            source, result = lr.Buffer.allocate(x.nbytes, mine), lr.Buffer.allocate(4, mine)
            source.copy_from(x)
            launch = plan.bind(stream)
            launch(source.pointer, result.pointer)  # one driver call
            value = np.empty((), np.float32)
            result.copy_to(value, stream=stream)
            stream.synchronize()
            assert lr.Context.current() == primary
            print(f"sum {value}, the bits of NumPy's tree: {value.tobytes() == lr.tree.reduce(x).tobytes()}")

            with lr.Buffer.allocate(4, primary) as elsewhere:
                try:
                    launch.check(source.pointer, elsewhere.pointer)
                except ValueError as error:
                    print(f"refused: {error}")
            assert lr.Context.current() == primary
            for handle in (launch, result, source):  # close what was made in a context before the context
                handle.close()
        print(f"current before and after: {lr.Context.current() == primary}")


if __name__ == "__main__":
    main()

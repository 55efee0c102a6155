"""Capture a reduction into a CUDA graph, replay it with new content, and point it at other memory.

A bound launch allocates nothing, so any plan can be captured. A replay reads from the captured addresses: new content
there needs no change, another input needs an update of the executable graph, which takes a fraction of the time of
instantiating one.
"""

from __future__ import annotations

import numpy as np
from _device import any_device

import lowlevel_reduce as lr

N = 100_000


def main() -> None:
    """Replay a captured sum with the same input, new content, and another input."""
    rng = np.random.default_rng(0)
    first, second, third = (rng.standard_normal(N).astype(np.float32) for _ in range(3))
    with any_device(), lr.Context.primary() as context, context.pushed(), lr.Stream.create(context) as stream:
        plan = lr.plan("sum", shape=N, dtype="float32", context=context)
        launch = plan.bind(stream)
        here, there = lr.DeviceArray.from_numpy(first, stream), lr.DeviceArray.from_numpy(third, stream)
        result = lr.DeviceArray.empty((), "float32", stream)

        with lr.Graph.capture(stream) as graph:  # nothing runs in this block
            launch(here.pointer, result.pointer)
        print(f"captured: {graph.node_count} kernel, {plan.strategy.name}")

        with graph, graph.instantiate() as replay:
            replay.launch(stream)
            show("the input of the capture", result, first)
            lr.Buffer.from_pointer(here.pointer, first.nbytes, context=context).copy_from(second, stream=stream)
            replay.launch(stream)
            show("new content at its address", result, second)
            with lr.Graph.capture(stream) as changed:
                launch(there.pointer, result.pointer)
            with changed:
                replay.update(changed)
            replay.launch(stream)
            show("another address, by an update", result, third)


def show(what: str, result: lr.DeviceArray, x: np.ndarray) -> None:
    """Print a result and whether its bits are those of NumPy's tree."""
    value = result.numpy()
    print(f"{what}: {value}, the bits of NumPy's tree: {value.tobytes() == lr.tree.reduce(x).tobytes()}")


if __name__ == "__main__":
    main()

"""Sum PyTorch tensors on PyTorch's stream, in PyTorch's memory, and inside a PyTorch CUDA graph.

The package itself allocates nothing: the workspace comes from PyTorch's caching allocator, and so does the result,
unless it is a tensor. The launch is one driver call in PyTorch's current stream. It needs PyTorch with a GPU; without,
it prints a sentence and ends.
"""

from __future__ import annotations

import importlib
from typing import Any

import lowlevel_reduce as lr


def allocator_of(torch: Any) -> lr.Allocator:
    """Return PyTorch's caching allocator as an `Allocator` of this package."""

    def alloc(size_bytes: int, stream_handle: int) -> int:
        # The legacy default stream's handle is 0 in PyTorch, 1 in the driver.
        stream = 0 if stream_handle == 1 else stream_handle
        return int(torch.cuda.caching_allocator_alloc(size_bytes, stream=stream))

    def free(pointer: int, size_bytes: int, stream_handle: int) -> None:
        torch.cuda.caching_allocator_delete(pointer)

    return lr.Allocator(alloc, free)


def main(torch: Any) -> None:
    """Sum a tensor in one line, by a bound launch, and in a graph that is replayed with new content."""
    x = torch.randn(10_000_000, device="cuda")
    allocator = allocator_of(torch)
    print(f"in one line: {float(torch.from_dlpack(lr.sum(x))):.6f}, torch.sum: {float(x.sum()):.6f}")
    result = torch.from_dlpack(lr.sum(x, allocator=allocator))
    print(f"in memory of PyTorch's allocator: {float(result):.6f}")

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        mine = lr.Stream.from_handle(stream.cuda_stream, owner=stream)
        plan = lr.plan("sum", shape=tuple(x.shape), dtype="float32", context=mine.context)
        launch = plan.bind(mine, allocator=allocator)
        out = torch.empty((), device="cuda")
        stream.wait_stream(torch.cuda.default_stream())
        launch(x.data_ptr(), out.data_ptr())
        print(f"in a stream of PyTorch's, into a tensor of PyTorch's: {float(out):.6f}")

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            launch(x.data_ptr(), out.data_ptr())
            doubled = out * 2
        x.fill_(0.5)
        graph.replay()
        print(f"twice the sum, from a graph, after x.fill_(0.5): {float(doubled):.1f}")
        stream.synchronize()
    launch.close()  # the workspace goes back to PyTorch


if __name__ == "__main__":
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        print("PyTorch is not installed: pip install torch")
    else:
        if torch.cuda.is_available():
            main(torch)
        else:
            print("PyTorch finds no GPU here, and a simulated one is not for it to see")

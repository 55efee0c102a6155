"""Sum CuPy arrays on CuPy's stream, with the workspace and the result from CuPy's memory pool.

It needs CuPy with a GPU; without, it prints a sentence and ends.
"""

from __future__ import annotations

import importlib
from typing import Any

import lowlevel_reduce as lr


def allocator_of(cupy: Any) -> lr.Allocator:
    """Return CuPy's current memory pool as an `Allocator` of this package."""
    held: dict[int, Any] = {}  # CuPy frees memory to which there is no reference

    def alloc(size_bytes: int, stream_handle: int) -> int:
        with cupy.cuda.ExternalStream(stream_handle):  # the pool manages memory by stream
            memory = cupy.cuda.alloc(size_bytes)
        held[memory.ptr] = memory
        return int(memory.ptr)

    def free(pointer: int, size_bytes: int, stream_handle: int) -> None:
        del held[pointer]

    return lr.Allocator(alloc, free)


def main(cupy: Any) -> None:
    """Sum an array in one line, and by a bound launch in a stream and memory of CuPy's."""
    x = cupy.random.default_rng(0).standard_normal(10_000_000, dtype=cupy.float32)
    allocator = allocator_of(cupy)
    print(f"in one line: {float(cupy.from_dlpack(lr.sum(x))):.6f}, cupy.sum: {float(x.sum()):.6f}")
    result = cupy.from_dlpack(lr.sum(x, allocator=allocator))
    print(f"in memory of CuPy's pool: {float(result):.6f}")

    cupy.cuda.get_current_stream().synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        mine = lr.Stream.from_handle(stream.ptr, owner=stream)
        with lr.plan("sum", shape=x.shape, dtype=x.dtype, context=mine.context) as plan:
            launch = plan.bind(mine, allocator=allocator)
            out = cupy.empty((), cupy.float32)
            launch(x.data.ptr, out.data.ptr)
            print(f"in a stream and in memory of CuPy's: {float(out):.6f}")
            launch.close()


if __name__ == "__main__":
    try:
        cupy = importlib.import_module("cupy")
    except ImportError:
        print("CuPy is not installed: pip install cupy-cuda12x, or cupy-cuda13x")
    else:
        if cupy.cuda.is_available():
            main(cupy)
        else:
            print("CuPy finds no GPU here, and a simulated one is not for it to see")

"""Programmatic dependent launch: your kernels before and after a plan's, each beginning before the previous one ends.

The rules. A kernel that is launched with ``programmatic_stream_serialization`` may begin while its predecessor is still
running. So it must execute ``griddepcontrol.wait`` before it first reads what the predecessor writes; the kernels of
this package do so. With ``griddepcontrol.launch_dependents``, a kernel says when its successor may begin. That is
optional, and the successor's wait still covers everything that the kernel writes.
"""

from __future__ import annotations

import numpy as np
from _device import any_device

import lowlevel_reduce as lr
from lowlevel_reduce.compiler import Output, Program, compile_program
from lowlevel_reduce.driver import BoundKernel, binding

SOURCE = r"""
#include "base/ptx.cuh"

extern "C" __global__ void before(float* x, uint32 n)  // x = 2 x
{
    launch_dependents();
    wait_for_prerequisites();  // of the round before, whose sum may still read x
    const uint32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2.0f;
}

extern "C" __global__ void after(const float* sum, float* history, uint32 round)
{
    launch_dependents();
    wait_for_prerequisites();  // the sum is not there before
    if (threadIdx.x == 0) history[round] = *sum;
}
"""
N, ROUNDS = 65_536, 4


def main() -> None:
    """Double, sum and record, in rounds of three kernels; every sum must be twice the one before it."""
    x = np.random.default_rng(0).random(N, dtype=np.float32)
    with any_device(), lr.Context.primary() as context, context.pushed(), lr.Stream.create(context) as stream:
        image: Output = "ptx" if binding.selected().image == "ptx" else "cubin"
        code = compile_program(Program("dependent", SOURCE), context.device.architecture, output=image)
        library = lr.Library.load(code.data, name="dependent")
        overlap = context.device.compute_capability >= (9, 0)  # these instructions came with Hopper
        many = lr.LaunchConfig(N // 256, 256, programmatic_stream_serialization=overlap)
        one = lr.LaunchConfig(1, 32, programmatic_stream_serialization=overlap)
        before = BoundKernel(library.kernel("before"), many, stream, "QI")
        after = BoundKernel(library.kernel("after"), one, stream, "QQI")
        with lr.plan("sum", shape=N, dtype="float32", context=context) as plan:
            print(plan.describe())
            launch = plan.bind(stream)
            source, history = lr.DeviceArray.from_numpy(x, stream), lr.DeviceArray.empty((ROUNDS,), "float32", stream)
            total = lr.DeviceArray.empty((), "float32", stream)
            for round_ in range(ROUNDS):
                before(source.pointer, N)
                launch(source.pointer, total.pointer)
                after(total.pointer, history.pointer, round_)
            sums = history.numpy()
        expected = np.array([lr.tree.reduce(x * np.float32(2 ** (i + 1))) for i in range(ROUNDS)])
        print(f"sums {sums}, the bits of NumPy's tree: {sums.tobytes() == expected.tobytes()}")


if __name__ == "__main__":
    main()

"""Reduce one array whose parts lie on several GPUs: the result has the bits that one GPU computes for the whole array.

`shard_lengths` says where to cut. `reduce_shards` does everything in one process. Where each GPU has a process of its
own, each calls `partials` for its part, all of them gather a few kilobytes with NCCL or MPI, and each calls
`combine_partials`; the second half of this example does the same by hand.
"""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
from _device import any_device

import lowlevel_reduce as lr


def main() -> None:
    """Sum, and find the largest element, in parts and as a whole, and compare the bits."""
    with any_device(devices=4) as simulated, contextlib.ExitStack() as stack:
        devices = lr.Device.all()
        shards = max(len(devices), 2)  # a single GPU has both parts
        contexts = [stack.enter_context(lr.Context.primary(device)) for device in devices]
        streams = [stack.enter_context(lr.Stream.create(contexts[i % len(contexts)])) for i in range(shards)]

        x = np.random.default_rng(0).standard_normal(300_000 if simulated else 100_000_000, dtype=np.float32)
        lengths = lr.shard_lengths(len(x), x.dtype, shards)
        ends = list(itertools.accumulate(lengths))
        parts = [
            lr.DeviceArray.from_numpy(x[end - length : end], stream)
            for end, length, stream in zip(ends, lengths, streams, strict=True)
        ]
        print(f"{len(x)} float32 in parts of {lengths} on {len(devices)} devices")

        total, place = lr.reduce_shards(parts, "sum"), lr.reduce_shards(parts, "argmax")
        whole = lr.tree.reduce(x)
        print(f"sum {total.numpy()}, the bits of the whole in NumPy: {total.numpy().tobytes() == whole.tobytes()}")
        print(f"largest at {int(place)}, as in NumPy: {int(place) == int(np.argmax(x))}")

        # As processes do it: each has its part, and all have the partials once they are gathered.
        chunk = lr.chunk_elements(len(x), x.dtype)
        made = [lr.partials(part, "sum", chunk=chunk, stream=part.stream).numpy() for part in parts]
        gathered = np.concatenate(made)
        again = lr.combine_partials(gathered, length=len(x), chunk=chunk, dtype=x.dtype, stream=streams[0])
        print(
            f"{gathered.nbytes} bytes of partials for {len(made)} parts, the same bits: "
            f"{again.numpy().tobytes() == whole.tobytes()}"
        )


if __name__ == "__main__":
    main()

"""nccl4py's communicators: on the device, in the order of streams."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowlevel_reduce.driver import Buffer, Context, Device, Stream
from lowlevel_reduce.parts.groups import Gather, Group
from lowlevel_reduce.parts.letters import letter_bytes

__all__ = ["NcclGroup"]


class _Bytes:
    """Device memory as nccl4py takes it."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.__cuda_array_interface__ = {
            "shape": (buffer.size_bytes,),
            "typestr": "|u1",
            "data": (buffer.pointer, False),
            "strides": None,
            "version": 3,
            "stream": None,  # who gathers names the stream
        }


class NcclGroup(Group):
    """The ranks of a ``nccl.core.Communicator``."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine.rank, engine.nranks)
        self.communicator, self.letter_bytes = engine, letter_bytes(self.size)

    def exchange(self, message: bytes) -> list[bytes]:
        """Return the messages of all ranks, by way of the communicator's device."""
        device = Device(int(self.communicator.device.device_id))
        with Context.primary(device) as context, context.pushed(), Stream.create(context) as stream:
            made = self.gather(len(message), stream)
            mine, everyone = made._own.buffer, made._there.buffer
            mine.copy_from(np.frombuffer(message, np.uint8), stream=stream)
            made(b"")
            found = np.empty(everyone.size_bytes, np.uint8)
            everyone.copy_to(found, stream=stream)
            stream.synchronize()
        return [each.tobytes() for each in found.reshape(self.size, len(message))]

    def gather(self, share_bytes: int, stream: Stream) -> _NcclGather:
        """Return a gather in the order of a stream."""
        return _NcclGather(self, share_bytes, stream)


class _NcclGather(Gather):
    def __init__(self, group: NcclGroup, share_bytes: int, stream: Stream) -> None:
        self._own = _Bytes(Buffer.allocate(share_bytes, stream.context))
        self._there = _Bytes(Buffer.allocate(share_bytes * group.size, stream.context))
        self.mine, self.everyone = self._own.buffer.pointer, self._there.buffer.pointer
        self.share_bytes = share_bytes
        self._gather, self._stream = group.communicator.allgather, stream.handle

    def __call__(self, tag: bytes) -> None:
        """Put the gather into the stream; the tags are looked at on the device, by the fold."""
        self._gather(self._own, self._there, stream=self._stream)

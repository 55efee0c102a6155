"""mpi4py's communicators: with device memory where the MPI takes it, else through page-locked memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowlevel_reduce.driver import Buffer, Stream
from lowlevel_reduce.errors import GroupError
from lowlevel_reduce.parts.groups import BytesGroup, Gather, Group
from lowlevel_reduce.parts.nccl_group import _Bytes

__all__ = ["MpiDeviceGroup", "MpiHostGroup", "mpi_group"]

_KINDS = "mpi_memory_alloc_kinds"
"""The key under which a communicator says what memory it takes, from MPI 4.1 on."""


def mpi_group(engine: Any) -> Group:
    """Return the group: with device memory where the communicator's info says that it takes ``cuda`` memory."""
    kinds = engine.Get_info().Get(_KINDS) or ""
    is_aware = any(kind.partition(":")[0].strip() == "cuda" for kind in kinds.split(","))
    return MpiDeviceGroup(engine) if is_aware else MpiHostGroup(engine)


class MpiHostGroup(BytesGroup):
    """The ranks of an MPI that takes memory of the host."""

    def __init__(self, engine: Any) -> None:
        Group.__init__(self, engine.Get_rank(), engine.Get_size())
        self.communicator = engine

    def exchange(self, message: bytes) -> list[bytes]:
        """Return the messages of all ranks."""
        everyone = np.empty(len(message) * self.size, np.uint8)
        self.gather_bytes(np.frombuffer(message, np.uint8), everyone)
        return [each.tobytes() for each in everyone.reshape(self.size, len(message))]

    def gather_bytes(self, mine: Any, everyone: Any) -> None:
        """Gather the bytes of one array into another, both of the host or both of the device."""
        try:
            self.communicator.Allgather(mine, everyone)
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "mpi4py":
                raise
            # As MPI_ERR_TRUNCATE, of a rank that sends another number of bytes.
            raise GroupError(f"rank {self.rank} could not gather: {error}") from error


class MpiDeviceGroup(MpiHostGroup):
    """The ranks of an MPI that takes device memory."""

    sees_tags = False

    def gather(self, share_bytes: int, stream: Stream) -> Gather:
        """Return a gather of device memory, for which the host waits."""
        return _MpiGather(self, share_bytes, stream)


class _MpiGather(Gather):
    capturable = False

    def __init__(self, group: MpiDeviceGroup, share_bytes: int, stream: Stream) -> None:
        self._own = _Bytes(Buffer.allocate(share_bytes, stream.context))
        self._there = _Bytes(Buffer.allocate(share_bytes * group.size, stream.context))
        self.mine, self.everyone = self._own.buffer.pointer, self._there.buffer.pointer
        self.share_bytes, self._stream, self._group = share_bytes, stream, group

    def __call__(self, tag: bytes) -> None:
        """Wait for the stream and gather; the tags are looked at on the device, by the fold."""
        self._stream.synchronize()  # an MPI knows no streams
        self._group.gather_bytes(self._own, self._there)
